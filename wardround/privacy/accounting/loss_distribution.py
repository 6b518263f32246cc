"""From a privacy profile to a loss distribution on a grid, never below the truth.

The profile is convex in e^epsilon. Joining its values at the grid's points by straight lines
gives the least profile above it that a distribution on the grid can have: "connect the dots"
(Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, 2022; PROOFS.md#loss-distribution).
"""

import math
from dataclasses import dataclass

import numpy as np

from wardround.privacy.accounting.events import Event
from wardround.privacy.accounting.profiles import FloatVector, Profile, profiles

# The arguments at which cumulants are kept: enough to place a window and to bound what is outside it.
TILTS: FloatVector = np.concatenate([-np.geomspace(64.0, 2.0**-4, 8), [0.0], np.geomspace(2.0**-4, 2.0**13, 36)])
NO_TILT = int(np.flatnonzero(TILTS == 0.0)[0])
# No event has more losses than this on its grid.
MOST_POINTS = 1 << 20
# So many of them are enough for cumulants; the others are gathered to these.
_MOST_EXACT = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """The loss of one event, in whole grid steps from `lowest` on; `infinite` is beyond any loss.

    `cumulants` are ln E[exp(t · loss)] over the finite losses, at each t of TILTS.
    """

    lowest: int
    mass: FloatVector
    infinite: float
    cumulants: FloatVector


def loss_distributions(event: Event, *, step: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
    """The event's loss when a unit is removed and when one is added; the same object if equal."""
    removed, added = profiles(event, tail=tail)
    if removed is added:
        both = connected(removed, added, step=step)
        return both, both
    return connected(removed, added, step=step), connected(added, removed, step=step)


def connected(forward: Profile, backward: Profile, *, step: float) -> LossDistribution:
    """Losses above 0 come from `forward`; below 0 they are the mirror image of `backward`."""
    drops, infinite, at_zero = _drops(forward, step)
    mirrored = drops if backward is forward else _drops(backward, step)[0]
    above = _masses(drops, step)
    below = _masses(mirrored, step) * np.exp(-step * np.arange(1, mirrored.size + 1))
    # What the straight lines leave for a loss of exactly 0: everything is a probability.
    centre = max(1.0 - drops[0] - at_zero - mirrored[0], 0.0)
    mass: FloatVector = np.concatenate([below[::-1], [centre], above])
    return LossDistribution(
        lowest=-mirrored.size, mass=mass, infinite=infinite, cumulants=_cumulants(mass, -mirrored.size * step, step)
    )


def _cumulants(mass: FloatVector, lowest: float, step: float) -> FloatVector:
    """The logarithm of E[e^(tilt·loss)] for every tilt; never below, and hardly above for very many points."""
    if mass.size > _MOST_EXACT:
        mass, step = _gathered(mass, step)
    kept = np.flatnonzero(mass)
    logs = np.log(mass[kept])
    losses = lowest + step * kept.astype(np.float64)
    found = np.empty(TILTS.size)
    for index, tilt in enumerate(TILTS):
        exponents = logs + tilt * losses
        most = float(exponents.max())
        found[index] = most + math.log(float(np.exp(exponents - most).sum()))
    return found


def _gathered(mass: FloatVector, step: float) -> tuple[FloatVector, float]:
    """The same mass and mean on a coarser grid: what lies between two points of it is shared out to both.

    An exponential lies below its chords, so no cumulant becomes smaller.
    """
    times = -(-mass.size // _MOST_EXACT)
    cells = np.append(mass, np.zeros(-mass.size % times)).reshape(-1, times)
    right = np.arange(times) / times
    found = np.append(cells @ (1.0 - right), 0.0)
    found[1:] += cells @ right
    return found, times * step


def _drops(profile: Profile, step: float) -> tuple[FloatVector, float, float]:
    """The slopes of the lines in e^epsilon, each times e^(epsilon at its left end)."""
    points = math.ceil(profile.reach / step) + 1
    delta = profile.delta(step * np.arange(points + 1, dtype=np.float64))
    # A profile never rises; rounding may.
    delta = np.maximum.accumulate(delta[::-1])[::-1]
    return -np.diff(delta) / math.expm1(step), float(delta[-1]), float(delta[0])


def _masses(drops: FloatVector, step: float) -> FloatVector:
    """The probability at 1, 2, … steps, from the change of slope there."""
    following = np.append(drops[1:], 0.0)
    found: FloatVector = np.maximum(drops * math.exp(step) - following, 0.0)
    return found
