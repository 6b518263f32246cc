"""From a question's epsilon and delta to the least noise that honours them.

The scale is the smallest multiple of 1/1024 grid unit whose integer price is within what was
asked, so a question of exactly the cap is admitted by a fresh filter, and never one unit more.
"""

import math
from fractions import Fraction

from wardround.privacy.accounting.cost import LEAST_GAUSSIAN_SCALE, MU_UNIT, PURE_UNIT, gaussian_mu_squared
from wardround.privacy.accounting.gaussian_dp import mu_of
from wardround.privacy.noise.distribution import SCALE_UNIT

# The share of every delta that is kept for the slack of imperfect tables.
SLACK_SHARE = Fraction(1, 1000)


def gaussian_scale(
    *, epsilon: float, delta: float, l2_sensitivity_squared: int, shares: Fraction, overlap: int
) -> Fraction:
    """The least sigma, in grid units, of a part with this share of the question's squared mu.

    A patient at `overlap` sites pays at each of them, and all of it stays within the question.
    """
    _check(sensitivity=l2_sensitivity_squared, shares=shares, overlap=overlap)
    asked = mu_squared_units(epsilon=epsilon, delta=delta)
    limit = _per_site(shares * asked, overlap=overlap)

    def fits(multiple: int) -> bool:
        scale = Fraction(multiple, SCALE_UNIT)
        mu_squared = gaussian_mu_squared(scale=scale, l2_sensitivity_squared=l2_sensitivity_squared)
        return mu_squared * MU_UNIT <= limit

    # Without the correction for coarseness sigma**2 = norm**2/mu**2; with it, at most 2 % more.
    uncorrected = math.isqrt(l2_sensitivity_squared * SCALE_UNIT**2 * MU_UNIT // limit)
    low = max(int(LEAST_GAUSSIAN_SCALE * SCALE_UNIT), uncorrected)
    high = low + low // 50 + 2
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return Fraction(high, SCALE_UNIT)


def laplace_scale(*, epsilon: float, l1_sensitivity: int, shares: Fraction, overlap: int) -> Fraction:
    """The least b, in grid units, of a part with this share of the question's epsilon."""
    _check(sensitivity=l1_sensitivity, shares=shares, overlap=overlap)
    limit = _per_site(shares * pure_units(epsilon), overlap=overlap)
    return Fraction(-(-l1_sensitivity * SCALE_UNIT * PURE_UNIT // limit), SCALE_UNIT)


def mu_squared_units(*, epsilon: float, delta: float) -> int:
    """Whole units of squared mu within (`epsilon`, `delta`) once slack is set aside."""
    return math.floor(Fraction(mu_of(epsilon, without_slack(delta))) ** 2 * MU_UNIT)


def pure_units(epsilon: float) -> int:
    """Whole units of pure loss within `epsilon`."""
    if not (math.isfinite(epsilon) and epsilon >= 0.0):
        raise ValueError(f"epsilon must be a finite number of at least 0, not {epsilon!r}")
    return math.floor(Fraction(epsilon) * PURE_UNIT)


def without_slack(delta: float) -> float:
    """What is left of `delta` for the Gaussian itself, rounded down."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a number between 0 and 1, both excluded, not {delta!r}")
    exact = Fraction(delta) * (1 - SLACK_SHARE)
    nearest = float(exact)
    return nearest if nearest <= exact else math.nextafter(nearest, 0.0)


def _per_site(units: Fraction, *, overlap: int) -> int:
    limit = math.floor(units) // overlap
    if limit == 0:
        raise ValueError("this part of the question is below one unit of loss; ask with a larger epsilon")
    return limit


def _check(*, sensitivity: int, shares: Fraction, overlap: int) -> None:
    if sensitivity < 1:
        raise ValueError(f"the sensitivity must be a whole number of at least 1, not {sensitivity}")
    if not 0 < shares <= 1:
        raise ValueError(f"a share must be above 0 and at most 1, not {shares}")
    if overlap < 1:
        raise ValueError(f"overlap must be at least 1, not {overlap}")
