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
from wardround.privacy.accounting.events import Approximate, Event, Gaussian, Pure, Schedule
from wardround.privacy.accounting.profiles import FloatVector, gaussian_delta
from wardround.privacy.gaussian import delta_of
from wardround.privacy.loss import MU_UNIT, SLACK_UNIT, Cost

# Below this the arithmetic of a transform is larger than the slack itself.
LEAST_SLACK = 1e-13
_LEAST_MU = 1e-6
# A block beyond this (mu about 6.6) is one that no filter would admit.
_LARGEST_DELTA = 0.999
# More than the error of a vectorised profile, relative to the profile.
_MARGIN = 1e-9
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
    if not LEAST_SLACK <= slack < 1.0:
        raise ValueError(f"a slack must be a number from {LEAST_SLACK:g} to 1, not {slack!r}")
    mu = _LEAST_MU
    for curve in RunningLoss(block, slack, even=True).curves():
        right, wanted = _stairs(curve, slack)
        mu = _raised(mu, right, wanted)
    return mu


def pure_mu(epsilon: float) -> float:
    """The mu whose Gaussian is at least as revealing as anything `epsilon`-private; exact."""
    if epsilon > _LARGEST_PURE:
        return math.inf
    return -2.0 * NormalDist().inv_cdf(1.0 / (1.0 + math.exp(epsilon))) * (1.0 + 1e-12)


def _charged(slack: float, mu: float) -> Fraction:
    """`slack`/(1 - delta_mu(0)), rounded up: the chance of a catastrophe that covers the slack."""
    hidden = math.erfc(mu / math.sqrt(8.0)) * (1.0 - 1e-9)
    return min(Fraction(slack) / Fraction(hidden), Fraction(1))


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
