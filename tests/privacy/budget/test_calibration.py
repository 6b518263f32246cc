"""The least noise that honours a question: it fits, and one 1024th less would not."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, Fact
from wardround.privacy.accounting.gaussian_dp import mu_of
from wardround.privacy.budget.calibration import (
    SLACK_SHARE,
    gaussian_scale,
    laplace_scale,
    mu_squared_units,
    pure_units,
    without_slack,
)
from wardround.privacy.noise.distribution import LARGEST_SCALE, Mechanism, NoiseDistribution

EPSILONS = st.floats(min_value=1e-3, max_value=20.0)
DELTAS = st.floats(min_value=math.log(1e-12), max_value=math.log(1e-2)).map(math.exp)
SHARES = st.fractions(min_value=Fraction(1, 100), max_value=1, max_denominator=1000)
OVERLAPS = st.integers(min_value=1, max_value=20)
ONE_1024TH = Fraction(1, 1024)
ALL = Fraction(1)


def gaussian_price(scale: Fraction, l2_squared: int) -> int:
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, scale)
    fact = Fact(law=law, l1_sensitivity=1, l2_sensitivity_squared=l2_squared, dimension=1)
    return fact.cost().mu_squared


def laplace_price(scale: Fraction, l1: int) -> int:
    law = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, scale)
    return Fact(law=law, l1_sensitivity=l1, l2_sensitivity_squared=1, dimension=1).cost().pure


@given(
    epsilon=EPSILONS,
    delta=DELTAS,
    l2_squared=st.integers(min_value=1, max_value=2**66),
    shares=SHARES,
    overlap=OVERLAPS,
)
def test_a_gaussian_scale_is_the_least_that_fits(
    epsilon: float, delta: float, l2_squared: int, shares: Fraction, overlap: int
) -> None:
    scale = gaussian_scale(
        epsilon=epsilon, delta=delta, l2_sensitivity_squared=l2_squared, shares=shares, overlap=overlap
    )
    # A law refuses more noise than 64 bits hold; the planner then asks for a larger epsilon.
    assume(scale <= LARGEST_SCALE)
    mu = mu_of(epsilon, without_slack(delta))
    limit = math.floor(shares * math.floor(Fraction(mu) ** 2 * MU_UNIT))
    assert overlap * gaussian_price(scale, l2_squared) <= limit
    assert scale >= 4
    if scale > 4:
        assert overlap * gaussian_price(scale - ONE_1024TH, l2_squared) > limit


@given(epsilon=EPSILONS, l1=st.integers(min_value=1, max_value=2**33), shares=SHARES, overlap=OVERLAPS)
def test_a_laplace_scale_is_the_least_that_fits(epsilon: float, l1: int, shares: Fraction, overlap: int) -> None:
    scale = laplace_scale(epsilon=epsilon, l1_sensitivity=l1, shares=shares, overlap=overlap)
    assume(scale <= LARGEST_SCALE)
    limit = math.floor(shares * math.floor(Fraction(epsilon) * PURE_UNIT))
    assert overlap * laplace_price(scale, l1) <= limit
    if scale > ONE_1024TH:
        assert overlap * laplace_price(scale - ONE_1024TH, l1) > limit


@given(
    epsilon=EPSILONS,
    delta=DELTAS,
    weights=st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=6),
    overlap=OVERLAPS,
)
def test_the_parts_of_a_question_together_stay_within_it(
    epsilon: float, delta: float, weights: list[int], overlap: int
) -> None:
    parts = [Fraction(weight, sum(weights)) for weight in weights]
    gaussian = [
        gaussian_scale(epsilon=epsilon, delta=delta, l2_sensitivity_squared=4096, shares=share, overlap=overlap)
        for share in parts
    ]
    laplace = [laplace_scale(epsilon=epsilon, l1_sensitivity=3, shares=share, overlap=overlap) for share in parts]
    asked = mu_squared_units(epsilon=epsilon, delta=delta)
    assert overlap * sum(gaussian_price(scale, 4096) for scale in gaussian) <= asked
    assert overlap * sum(laplace_price(scale, 3) for scale in laplace) <= pure_units(epsilon)


def test_a_fine_count_at_one_and_a_millionth_has_the_analytic_noise() -> None:
    scale = gaussian_scale(epsilon=1.0, delta=1e-6, l2_sensitivity_squared=64**2, shares=ALL, overlap=1)
    assert float(scale) / 64 == pytest.approx(4.22, abs=0.01)


@pytest.mark.parametrize(("epsilon", "scale"), [(0.5, 2.0), (1.0, 1.0), (0.8, 1.25), (0.25, 4.0), (0.12, 25 / 3)])
def test_laplace_noise_is_sensitivity_over_epsilon(epsilon: float, scale: float) -> None:
    given_scale = laplace_scale(epsilon=epsilon, l1_sensitivity=1, shares=ALL, overlap=1)
    assert 0 <= given_scale - scale <= ONE_1024TH


def test_a_mean_of_eight_hours_over_five_hundred_people() -> None:
    # Sensitivity 8/500 on a grid of 1/500 hour: 8 grid units.
    scale = laplace_scale(epsilon=0.12, l1_sensitivity=8, shares=ALL, overlap=1)
    assert float(scale) / 500 == pytest.approx(0.1333, abs=1e-4)


def test_halving_epsilon_quadruples_the_variance() -> None:
    def variance(epsilon: float) -> float:
        scale = laplace_scale(epsilon=epsilon, l1_sensitivity=1, shares=ALL, overlap=1)
        return NoiseDistribution(Mechanism.DISCRETE_LAPLACE, scale).variance

    assert variance(0.5**10) / variance(0.5**9) == pytest.approx(4.0, rel=1e-5)
    assert variance(1.0) == pytest.approx(1.841, abs=1e-3)


def test_overlap_widens_gaussian_noise_by_its_root_and_laplace_noise_by_itself() -> None:
    def gaussian(overlap: int) -> float:
        return float(gaussian_scale(epsilon=1.0, delta=1e-6, l2_sensitivity_squared=2**64, shares=ALL, overlap=overlap))

    def laplace(overlap: int) -> float:
        return float(laplace_scale(epsilon=1.0, l1_sensitivity=2**32, shares=ALL, overlap=overlap))

    assert gaussian(4) / gaussian(1) == pytest.approx(2.0, rel=1e-9)
    assert laplace(4) / laplace(1) == pytest.approx(4.0, rel=1e-9)


def test_a_coarse_grid_gets_at_least_four_grid_units() -> None:
    scale = gaussian_scale(epsilon=50.0, delta=1e-6, l2_sensitivity_squared=1, shares=ALL, overlap=1)
    assert scale == 4


@given(delta=DELTAS)
def test_slack_is_set_aside_before_the_gaussian(delta: float) -> None:
    assert Fraction(without_slack(delta)) <= Fraction(delta) * (1 - SLACK_SHARE)
    assert Fraction(math.nextafter(without_slack(delta), 1.0)) > Fraction(delta) * (1 - SLACK_SHARE)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, math.inf])
def test_a_gaussian_question_needs_a_delta(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must be"):
        gaussian_scale(epsilon=1.0, delta=delta, l2_sensitivity_squared=1, shares=ALL, overlap=1)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        laplace_scale(epsilon=epsilon, l1_sensitivity=1, shares=ALL, overlap=1)
    with pytest.raises(ValueError, match="epsilon must be"):
        gaussian_scale(epsilon=epsilon, delta=1e-6, l2_sensitivity_squared=1, shares=ALL, overlap=1)


def test_a_question_below_one_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="below one unit"):
        laplace_scale(epsilon=2.0**-41, l1_sensitivity=1, shares=ALL, overlap=1)
    with pytest.raises(ValueError, match="below one unit"):
        laplace_scale(epsilon=2.0**-40, l1_sensitivity=1, shares=ALL, overlap=2)
    with pytest.raises(ValueError, match="below one unit"):
        gaussian_scale(epsilon=1e-9, delta=1e-12, l2_sensitivity_squared=1, shares=ALL, overlap=1)


def test_a_part_without_sensitivity_share_or_site_is_refused() -> None:
    with pytest.raises(ValueError, match="sensitivity must be"):
        laplace_scale(epsilon=1.0, l1_sensitivity=0, shares=ALL, overlap=1)
    for share in (Fraction(0), Fraction(3, 2)):
        with pytest.raises(ValueError, match="share must be"):
            laplace_scale(epsilon=1.0, l1_sensitivity=1, shares=share, overlap=1)
    with pytest.raises(ValueError, match="overlap must be"):
        laplace_scale(epsilon=1.0, l1_sensitivity=1, shares=ALL, overlap=0)
