"""Intervals: the noise's own law, exactly, and coverage that is never below what is claimed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wardround.privacy.inference import error_bars as uncertainty
from wardround.privacy.inference.error_bars import critical_value, mean_interval, ratio_interval, sum_variance
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution


def laplace(scale: Fraction | float) -> NoiseDistribution:
    return NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(scale))


def gaussian(scale: Fraction | float) -> NoiseDistribution:
    return NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(scale))


def reach(law: NoiseDistribution, terms: int, confidence: float) -> int:
    """The integer up to which the interval reaches."""
    critical = critical_value(law, terms=terms, confidence=confidence)
    return math.floor(critical * math.sqrt(sum_variance(law, terms)))


def convolved(law: NoiseDistribution, terms: int, cut: int) -> list[float]:
    """P(sum = -cut..cut), by the definition: one draw after the other, no transform."""
    q = math.exp(-1 / law.scale)
    one = (1 - q) / (1 + q) * q ** np.abs(np.arange(-cut, cut + 1))
    total = one
    for _ in range(terms - 1):
        total = np.convolve(total, one, mode="same")
    return [float(p) for p in total]


def test_variances_add() -> None:
    assert sum_variance(gaussian(8), 5) == pytest.approx(320.0)
    q = math.exp(-1.0)
    assert sum_variance(laplace(1), 3) == pytest.approx(6 * q / (1 - q) ** 2)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)])
@pytest.mark.parametrize("beta", [0.5, 0.1, 0.05, 0.01, 1e-6])
def test_one_discrete_laplace_draw_has_the_exact_tail(epsilon: Fraction, beta: float) -> None:
    exact = math.ceil(math.log(2 / ((1 + math.exp(-epsilon)) * beta)) / epsilon) - 1
    assert reach(laplace(1 / epsilon), 1, 1 - beta) == max(0, exact)


@pytest.mark.parametrize("terms", [1, 2, 3, 7])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_the_transform_finds_what_plain_convolution_finds(terms: int, confidence: float) -> None:
    law, cut = laplace(Fraction(3, 2)), 200
    probability = convolved(law, terms, cut)
    t = reach(law, terms, confidence)
    assert math.fsum(probability[cut - t : cut + t + 1]) >= confidence
    assert math.fsum(probability[cut - t + 1 : cut + t]) < confidence


@pytest.mark.parametrize("scale", [0.25, 1.0, 10.0, 333.25])
@pytest.mark.parametrize("terms", [1, 2, 10, 50, 200])
def test_sums_over_many_sites_are_covered_and_hardly_more(scale: float, terms: int) -> None:
    # A sum of discrete Laplace draws is a difference of two negative binomials.
    t = reach(laplace(scale), terms, 0.95)
    success = -math.expm1(-1.0 / scale)
    upper = int(stats.nbinom.isf(1e-14, terms, success)) + 1
    counts = np.arange(upper + 1)
    mass = stats.nbinom.pmf(counts, terms, success)

    def coverage(reached: int) -> float:
        high = stats.nbinom.cdf(counts + reached, terms, success)
        low = stats.nbinom.cdf(counts - reached - 1, terms, success)
        return float((mass * (high - low)).sum())

    assert coverage(t) >= 0.95 - 1e-12
    assert coverage(t - 1) < 0.95


@pytest.mark.parametrize("terms", [1, 2, 5, 40, 200])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_continuous_law_takes_over_without_a_jump(terms: int, confidence: float) -> None:
    below = critical_value(laplace(4096), terms=terms, confidence=confidence)
    above = critical_value(laplace(4097), terms=terms, confidence=confidence)
    assert below * (1 - 1e-3) <= above <= below * (1 + 1e-2)


def test_one_wide_laplace_draw_has_the_textbook_tail() -> None:
    wide = critical_value(laplace(2**20), terms=1, confidence=0.95)
    assert wide == pytest.approx(math.log(20) / math.sqrt(2), rel=1e-5)


def test_the_laplace_tail_is_the_closed_form_for_two_draws() -> None:
    for x in (0.0, 0.7, 3.0, 20.0):
        assert uncertainty._laplace_tail(2, x) == pytest.approx((2 + x) * math.exp(-x) / 4, rel=1e-14)


def test_thousands_of_sites_are_nearly_normal() -> None:
    assert critical_value(laplace(2**20), terms=5000, confidence=0.95) == pytest.approx(1.96, abs=1e-3)
    assert critical_value(laplace(2), terms=5000, confidence=0.95) == pytest.approx(1.96, abs=1e-2)


@pytest.mark.parametrize("scale", [4.0, 4.5, 7.25, 64.0, 1000.0])
@pytest.mark.parametrize("terms", [1, 3, 10])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_discrete_gaussian_sums_are_covered(scale: float, terms: int, confidence: float) -> None:
    t = reach(gaussian(scale), terms, confidence)
    # A sum of discrete Gaussians of at least 4 is one of the summed variance to 1e-60.
    deviation = scale * math.sqrt(terms)
    outcomes = np.arange(-int(12 * deviation), int(12 * deviation) + 1)
    weights = np.exp(-0.5 * (outcomes / deviation) ** 2)
    assert weights[np.abs(outcomes) <= t].sum() / weights.sum() >= confidence


def test_a_fine_gaussian_has_the_familiar_critical_value() -> None:
    fine = critical_value(gaussian(2**20), terms=4, confidence=0.95)
    assert 1.959963 <= fine == pytest.approx(1.96, abs=1e-4)


def test_noise_that_is_almost_always_zero_needs_no_reach() -> None:
    assert critical_value(laplace(Fraction(1, 16)), terms=3, confidence=0.95) == 0.0


@given(confidence=st.floats(min_value=0.01, max_value=0.999), terms=st.integers(min_value=1, max_value=50))
def test_more_confidence_never_reaches_less_far(confidence: float, terms: int) -> None:
    for law in (laplace(3), laplace(10_000), gaussian(5)):
        wider = critical_value(law, terms=terms, confidence=confidence + 0.0005)
        assert wider >= critical_value(law, terms=terms, confidence=confidence)


@given(reached=st.integers(min_value=0, max_value=2**40), deviation=st.floats(min_value=0.01, max_value=1e12))
def test_a_critical_value_never_loses_its_last_integer(reached: int, deviation: float) -> None:
    assert uncertainty._ratio_up(reached, deviation) * deviation >= reached


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 1.0 - 1e-10, math.nan, math.inf])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="a confidence must be"):
        critical_value(gaussian(4), terms=1, confidence=confidence)


def test_a_sum_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 term"):
        sum_variance(gaussian(4), 0)
    with pytest.raises(ValueError, match="at least 1 term"):
        critical_value(gaussian(4), terms=0, confidence=0.95)


# --- The mean --------------------------------------------------------------------------------------------


def test_a_mean_of_many_patients_has_the_delta_method_interval() -> None:
    a, b, sd = 4.0e6, 6.0e6, 100.0
    lower, upper = mean_interval(a, b, sd=sd, critical=1.96)
    half = 1.96 * sd * math.hypot(0.4, 0.6) / 1.0e7
    assert (lower + upper) / 2 == pytest.approx(0.4, abs=1e-8)
    assert (upper - lower) / 2 == pytest.approx(half, rel=1e-6)


def test_without_noise_a_mean_is_a_point() -> None:
    assert mean_interval(1.0, 3.0, sd=0.0, critical=1.96) == (0.25, 0.25)


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (1.0, 1.0), (-5.0, 3.0), (-50.0, -50.0)])
def test_a_mean_of_too_few_patients_could_be_anything(a: float, b: float) -> None:
    assert mean_interval(a, b, sd=1.0, critical=1.96) == (0.0, 1.0)


def test_a_sum_below_zero_by_more_than_noise_does_not_feign_certainty() -> None:
    low = mean_interval(-10.0, 100.0, sd=1.0, critical=1.96)
    high = mean_interval(100.0, -10.0, sd=1.0, critical=1.96)
    assert low[0] == 0.0 < low[1] < 0.05
    assert 0.95 < high[0] < 1.0 == high[1]


@given(
    a=st.floats(min_value=-1e9, max_value=1e9),
    b=st.floats(min_value=-1e9, max_value=1e9),
    sd=st.floats(min_value=0.0, max_value=1e6),
    critical=st.floats(min_value=0.0, max_value=6.0),
)
def test_a_mean_interval_is_within_its_range(a: float, b: float, sd: float, critical: float) -> None:
    lower, upper = mean_interval(a, b, sd=sd, critical=critical)
    assert 0.0 <= lower <= upper <= 1.0


@given(
    a=st.floats(min_value=0.0, max_value=1e6),
    b=st.floats(min_value=1e-3, max_value=1e6),
    sd=st.floats(min_value=1e-3, max_value=1e4),
)
def test_the_interval_holds_the_estimate_and_widens_with_confidence(a: float, b: float, sd: float) -> None:
    lower, upper = mean_interval(a, b, sd=sd, critical=1.0)
    assert lower <= a / (a + b) * (1 + 1e-9)
    assert a / (a + b) <= upper * (1 + 1e-9)
    wider = mean_interval(a, b, sd=sd, critical=2.0)
    assert wider[0] <= lower + 1e-9
    assert upper - 1e-9 <= wider[1]


@pytest.mark.parametrize("patients", [0, 5, 30, 1000])
@pytest.mark.parametrize("mean", [0.0, 0.1, 0.5, 1.0])
def test_fieller_covers_the_true_mean_as_often_as_it_claims(patients: int, mean: float) -> None:
    rng = np.random.default_rng(20_260_101)
    runs, sd = 4000, 10.0
    truth = (patients * mean, patients * (1 - mean))
    covered = 0
    for a, b in rng.normal(truth, sd, size=(runs, 2)).tolist():
        lower, upper = mean_interval(a, b, sd=sd, critical=1.959964)
        covered += lower <= mean <= upper
    # Four standard errors of a simulation of this size.
    assert covered / runs >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize(
    ("a", "b", "sd", "critical"),
    [
        (math.nan, 1.0, 1.0, 2.0),
        (1.0, math.inf, 1.0, 2.0),
        (1.0, 1.0, -1.0, 2.0),
        (1.0, 1.0, 1.0, -2.0),
        (1.0, 1.0, math.nan, 2.0),
    ],
)
def test_an_interval_of_no_number_is_refused(a: float, b: float, sd: float, critical: float) -> None:
    with pytest.raises(ValueError, match="an interval needs finite"):
        mean_interval(a, b, sd=sd, critical=critical)
    with pytest.raises(ValueError, match="an interval needs finite"):
        ratio_interval(a, b, sd=sd, critical=critical, bound=1.0)


@pytest.mark.parametrize(("bottom", "ratio"), [(1000.0, 0.3), (60.0, -0.9), (25.0, 1.0), (3.0, 0.0)])
def test_the_interval_of_a_ratio_covers_as_often_as_it_claims(bottom: float, ratio: float) -> None:
    rng = np.random.default_rng(20_260_102)
    runs, sd = 4000, 10.0
    covered = narrow = 0
    for t, b in rng.normal((ratio * bottom, bottom), sd, size=(runs, 2)).tolist():
        lower, upper = ratio_interval(t, b, sd=sd, critical=1.959964, bound=1.0)
        assert -1.0 <= lower <= upper <= 1.0
        covered += lower <= ratio <= upper
        lower, upper = ratio_interval(t, b, sd=0.8 * sd, critical=1.959964, bound=1.0)
        narrow += lower <= ratio <= upper
    assert covered / runs >= 0.95 - 4.9 * math.sqrt(0.95 * 0.05 / runs)
    assert bottom < 100.0 or narrow / runs < 0.92


@given(
    t=st.floats(-1e18, 1e18),
    b=st.floats(-1e18, 1e18),
    sd=st.floats(0, 1e15),
    bound=st.sampled_from([1.0, 60.0]),
)
def test_the_interval_of_any_ratio_is_inside_its_bounds(t: float, b: float, sd: float, bound: float) -> None:
    lower, upper = ratio_interval(t, b, sd=sd, critical=1.96, bound=bound)
    assert -bound <= lower <= upper <= bound
    if b > 1.97 * sd and abs(t) <= bound * b and b > 0.0:
        assert lower - 1e-6 * bound <= t / b <= upper + 1e-6 * bound
