"""The privacy filter: which questions may still run.

The allowance is fixed when the budget opens and never looks at an answer. That is what keeps
the guarantee when each question is chosen after reading the earlier answers (PROOFS.md#filter).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT, Cost
from wardround.privacy.accounting.gaussian_dp import LARGEST_EPSILON, epsilon_of
from wardround.privacy.budget.calibration import SLACK_SHARE, mu_squared_units, pure_units, without_slack

# A smaller delta would leave no whole units of slack, and every Gaussian question would fail.
LEAST_DELTA = 1e-12


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that may ever be lost: (epsilon, delta), of which a lane of pure epsilon.

    With delta = 0 everything is in the pure lane.
    """

    epsilon: float
    delta: float
    pure_epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= LARGEST_EPSILON:
            raise ValueError(f"a cap's epsilon must be above 0 and at most {LARGEST_EPSILON:g}, not {self.epsilon!r}")
        if self.delta != 0.0 and not LEAST_DELTA <= self.delta < 1.0:
            raise ValueError(f"a cap's delta must be 0, or from {LEAST_DELTA:g} to 1, not {self.delta!r}")
        if not 0.0 <= self.pure_epsilon <= self.epsilon:
            raise ValueError(f"a cap's pure epsilon must be from 0 to epsilon, not {self.pure_epsilon!r}")

    def allowance(self) -> Cost:
        """What may be spent in each lane, rounded down."""
        return _allowance(self)


@lru_cache(maxsize=256)
def _allowance(cap: Cap) -> Cost:
    if cap.delta == 0.0:
        return Cost(mu_squared=0, pure=pure_units(cap.epsilon), slack=0)
    gaussian = _down(Fraction(cap.epsilon) - Fraction(cap.pure_epsilon))
    return Cost(
        mu_squared=mu_squared_units(epsilon=gaussian, delta=cap.delta),
        pure=pure_units(cap.pure_epsilon),
        slack=math.floor(Fraction(cap.delta) * SLACK_SHARE * SLACK_UNIT),
    )


def admits(allowance: Cost, spent: Cost, asked: Cost) -> bool:
    """Whether `asked` may be spent on top of `spent`."""
    return (spent + asked).fits(allowance)


def epsilon_spent(spent: Cost, cap: Cap) -> float:
    """The filter's epsilon, at the cap's delta, of everything spent; rounded up."""
    epsilon = epsilon_charged(spent, delta=cap.delta)
    # Whatever fits the allowance is within the cap; do not report the rounding as an overdraft.
    return min(epsilon, cap.epsilon) if spent.fits(cap.allowance()) else epsilon


@lru_cache(maxsize=1024)
def epsilon_charged(cost: Cost, *, delta: float) -> float:
    """The epsilon of a cost at `delta`, rounded up; infinite where no epsilon bounds it."""
    pure = _up(Fraction(cost.pure, PURE_UNIT))
    if cost.mu_squared == 0:
        return pure
    if delta == 0.0:
        return math.inf
    gaussian = epsilon_of(without_slack(delta), _root_up(cost.mu_squared))
    return _up(Fraction(gaussian) + Fraction(pure))


@lru_cache(maxsize=1024)
def is_within(cost: Cost, *, epsilon: float, delta: float) -> bool:
    """Whether a cost is at most `epsilon` at `delta`, compared in whole units.

    What is planned for exactly `epsilon` is; one unit more, in either lane, is not. No tolerance is needed: an
    epsilon becomes units by the function that planning uses, and is never derived back from them.
    """
    left = Fraction(epsilon) - Fraction(cost.pure, PURE_UNIT)
    if cost.mu_squared == 0 or left <= 0 or delta == 0.0:
        return left >= 0 and cost.mu_squared == 0
    return cost.mu_squared <= mu_squared_units(epsilon=_down(left), delta=delta)


def epsilon_remaining(spent: Cost, cap: Cap, *, delta: float, overlap: int = 1) -> float:
    """The largest next question, as an epsilon at `delta`, that would be admitted.

    The question has one part and may use either lane, whichever has more left; its epsilon is
    the loss of one patient over all of its at most `overlap` sites.
    """
    allowance = cap.allowance()
    if not spent.fits(allowance):
        return 0.0
    # Each of the overlap sites is charged whole units.
    pure_left = allowance.pure - spent.pure
    pure = _down(Fraction(pure_left, PURE_UNIT)) if pure_left >= overlap else 0.0
    mu_left = allowance.mu_squared - spent.mu_squared
    slack_left = allowance.slack - spent.slack
    if delta == 0.0 or mu_left < overlap or slack_left < overlap:
        return pure
    return max(pure, _largest_gaussian(mu_left, delta=delta))


def fraction_remaining(spent: Cost, cap: Cap) -> float:
    """The part of the budget that is left: of squared mu, or of epsilon in a pure study."""
    allowance = cap.allowance()
    if cap.delta == 0.0 or cap.pure_epsilon == cap.epsilon:
        used, whole = spent.pure, allowance.pure
    else:
        used, whole = spent.mu_squared, allowance.mu_squared
    return _down(Fraction(whole - used, whole)) if used < whole else 0.0


def _largest_gaussian(mu_left: int, *, delta: float) -> float:
    """The largest epsilon whose question prices at no more than `mu_left` units."""
    epsilon = epsilon_of(without_slack(delta), _root_up(mu_left))
    # epsilon_of errs upwards by a few last places: step down until the integers agree.
    step = 2.0**-48
    while epsilon > 0.0 and mu_squared_units(epsilon=epsilon, delta=delta) > mu_left:
        epsilon = max(0.0, epsilon * (1.0 - step) - math.ulp(0.0))
        step = min(1.0, 2.0 * step)
    return epsilon


def _root_up(mu_squared: int) -> float:
    """The square root of whole units, as a mu rounded up."""
    exact = Fraction(mu_squared, MU_UNIT)
    root = math.sqrt(exact)
    while Fraction(root) ** 2 < exact:
        root = math.nextafter(root, math.inf)
    return root


def _up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def _down(value: Fraction) -> float:
    nearest = float(value)
    return nearest if nearest <= value else math.nextafter(nearest, -math.inf)
