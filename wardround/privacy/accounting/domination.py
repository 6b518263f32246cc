"""A block of events reduced to one Gaussian and a slack, with a certificate.

The filter adds squared mu and slack. A block that was fixed before its first step may be
charged as a whole: the least mu whose Gaussian is at least as revealing as the block everywhere,
but for a slack (PROOFS.md#domination). The charge is made before the block begins.
"""

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from wardround.privacy.accounting.composition import Curve, RunningLoss
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT, Cost
from wardround.privacy.accounting.events import Approximate, Event, Gaussian, Pure, Schedule
from wardround.privacy.accounting.gaussian_dp import delta_of
from wardround.privacy.accounting.profiles import FloatVector, gaussian_delta

# Below this the arithmetic of a transform is larger than the slack itself.
LEAST_SLACK = 1e-13
_LEAST_MU = 1e-6
# A block beyond this (mu about 6.6) is one that no filter would admit.
_LARGEST_DELTA = 0.999
# More than the error of a vectorised profile, relative to the profile.
_MARGIN = 1e-9
# Where rounding takes more than this part of the slack, the tail is computed once more, tilted.
_LARGEST_ROUNDING = 0.25
# How far a mu is searched beyond the last one, when what is covered depends on it.
_GROWTH = 1.001
# Beyond this the normal quantile has no double.
_LARGEST_PURE = 700.0


@lru_cache(maxsize=256)
def dominating_cost(block: Schedule, *, slack: float) -> Cost:
    """What a pre-registered block costs the filter, in whole units rounded up.

    Gaussian events are exact and approximate ones pay their own delta; `slack` is spent on
    the rest of the block, if there is any.
    """
    counts: Counter[Event] = Counter()
    certain = Fraction(0)
    for event, count in block.counts:
        match event:
            case Gaussian():
                pass
            case Approximate(epsilon, delta):
                certain += Fraction(delta) * count
                if epsilon > 0.0:
                    counts[Pure(epsilon)] += count
            case _:
                counts[event] += count
    # A few last places more than the rounding of the sum.
    mu_squared = Fraction(block.mu_squared) * (1 + Fraction(1, 2**48))
    if counts:
        mu = least_mu(Schedule.of(counts), slack=slack)
        mu_squared += Fraction(mu) ** 2
        certain += _charged(slack, mu)
    return Cost(mu_squared=math.ceil(mu_squared * MU_UNIT), pure=0, slack=math.ceil(certain * SLACK_UNIT))


def least_mu(block: Schedule, *, slack: float) -> float:
    """The least mu, rounded up, with delta_block <= delta_mu + `slack` at every epsilon, both ways."""
    return _held(_LEAST_MU, _curves(block, slack), slack)


def charged_mu(block: Schedule, *, charged: float) -> float:
    """The least mu, rounded up, that is enough when a chance of `charged` to tell everything is paid for beside it."""
    curves, mu = _curves(block, charged), _LEAST_MU
    while True:
        # What the chance covers falls with mu: it is taken where mu can still grow to.
        promised = mu * _GROWTH
        mu = _held(mu, curves, charged * hidden_share(promised))
        if mu <= promised:
            return mu


def pure_mu(epsilon: float) -> float:
    """The mu whose Gaussian is at least as revealing as anything `epsilon`-private; exact."""
    if epsilon > _LARGEST_PURE:
        return math.inf
    return -2.0 * NormalDist().inv_cdf(1.0 / (1.0 + math.exp(epsilon))) * (1.0 + 1e-12)


def _curves(block: Schedule, slack: float) -> tuple[Curve, ...]:
    """The block's profile in each direction, good enough to be compared but for `slack`."""
    if not LEAST_SLACK <= slack < 1.0:
        raise ValueError(f"a slack must be a number from {LEAST_SLACK:g} to 1, not {slack!r}")
    curves = RunningLoss(block, slack, even=True).curves()
    if all(curve.delta[-1] <= _LARGEST_ROUNDING * slack for curve in curves):
        return curves
    tails = RunningLoss(block, slack).curves()
    return tuple(_least(curve, tail) for curve, tail in zip(curves, tails, strict=True))


def _held(mu: float, curves: tuple[Curve, ...], slack: float) -> float:
    """`mu`, or the least larger one whose Gaussian is nowhere below the curves, but for `slack`."""
    for curve in curves:
        mu = _raised(mu, *_stairs(curve, slack))
    return mu


def hidden_share(mu: float) -> float:
    """1 - delta_mu(0), rounded down: of a chance to tell everything, the part that is not there already."""
    return math.erfc(mu / math.sqrt(8.0)) * (1.0 - 1e-9)


def _charged(slack: float, mu: float) -> Fraction:
    """`slack`/(1 - delta_mu(0)), rounded up: the chance of a catastrophe that covers the slack."""
    return min(Fraction(slack) / Fraction(hidden_share(mu)), Fraction(1))


def _least(even: Curve, tail: Curve) -> Curve:
    """The smaller of two bounds at every point of the first: one is good in the middle, one in the tail."""
    epsilon = even.step * (even.first + np.arange(even.delta.size, dtype=np.float64))
    # Delta falls, so the point at or left of an epsilon bounds it; a rounded quotient may only go further left.
    index = np.floor(epsilon / tail.step * (1.0 - 1e-12)).astype(np.int64) - tail.first
    bound = np.where(index < 0, 1.0, tail.delta[np.clip(index, 0, tail.delta.size - 1)])
    return Curve(even.step, even.first, np.minimum(even.delta, bound))


def _stairs(curve: Curve, slack: float) -> tuple[FloatVector, FloatVector]:
    """Between two points the block is below its left value, the Gaussian above its right one."""
    wanted = curve.delta - slack
    if wanted[-1] > 0.0:
        raise ValueError("the block loses more than its slack with any finite epsilon; allow a larger slack")
    if wanted[0] > _LARGEST_DELTA:
        raise ValueError("the block hides too little to be charged as one Gaussian")
    needed = int(np.flatnonzero(wanted <= 0.0)[0])
    right = curve.step * (curve.first + 1 + np.arange(needed, dtype=np.float64))
    return right, wanted[:needed]


def _raised(mu: float, right: FloatVector, wanted: FloatVector) -> float:
    """`mu`, or the least larger one that holds at every stair."""
    growth = _MARGIN
    while True:
        ratio = wanted / np.maximum(gaussian_delta(right, mu) * (1.0 - _MARGIN), 1e-300)
        if ratio.size == 0 or ratio.max() <= 1.0:
            return mu
        worst = int(np.argmax(ratio))
        mu = max(_solved(float(right[worst]), float(wanted[worst])), mu * (1.0 + growth))
        growth *= 2.0


def _solved(epsilon: float, delta: float) -> float:
    """A mu just above the one with this delta at this epsilon."""
    low, high = 0.0, 1.0
    while delta_of(epsilon, high) < delta:
        high *= 2.0
    while high - low > _MARGIN * high:
        middle = 0.5 * (low + high)
        if delta_of(epsilon, middle) < delta:
            low = middle
        else:
            high = middle
    return high * (1.0 + 2.0 * _MARGIN)
