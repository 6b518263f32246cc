"""Delta, epsilon and mu of Gaussian noise, against sixty-digit arithmetic, dp-accounting and each other."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.privacy.accounting.gaussian_dp import LARGEST_EPSILON, LARGEST_MU, delta_of, epsilon_of, mu_of

mpmath.mp.dps = 60

EPSILONS = st.floats(min_value=1e-6, max_value=60.0)
LOG_DELTAS = st.floats(min_value=math.log(1e-300), max_value=math.log(0.9))
LOG_MUS = st.floats(min_value=math.log(1e-6), max_value=math.log(40.0))


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """The textbook formula, with enough digits that cancellation does not matter."""
    e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
    root = mpmath.sqrt(2)
    return (mpmath.erfc((e / m - m / 2) / root) - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / root)) / 2


@pytest.mark.parametrize("mu", [1e-6, 1e-4, 0.02, 0.3, 0.499, 0.5, 0.8, 1.0, 3.0, 10.0, 40.0])
@pytest.mark.parametrize("x", [-20.0, -1.0, -0.2, 0.0, 0.3, 1.0, 2.4, 2.9, 3.0, 3.1, 5.0, 12.0, 30.0, 37.0])
def test_delta_is_exact_and_never_too_small(mu: float, x: float) -> None:
    epsilon = mu * (x + mu / 2)
    if epsilon < 0:
        epsilon = 0.0
    exact = exact_delta(epsilon, mu)
    given_delta = mpmath.mpf(delta_of(epsilon, mu))
    assert exact <= given_delta <= exact * (1 + mpmath.mpf("1e-11"))


@given(log_delta=LOG_DELTAS, log_mu=LOG_MUS)
def test_epsilon_is_enough_and_hardly_more(log_delta: float, log_mu: float) -> None:
    delta, mu = math.exp(log_delta), math.exp(log_mu)
    epsilon = epsilon_of(delta, mu)
    assert delta_of(epsilon, mu) <= delta * (1 + 1e-12)
    if epsilon > 0:
        assert delta_of(epsilon * (1 - 1e-9), mu) > delta


@given(epsilon=EPSILONS, log_delta=LOG_DELTAS)
def test_mu_is_allowed_and_hardly_less(epsilon: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta * (1 + 1e-12)
    assert delta_of(epsilon, mu * (1 + 1e-9)) > delta


@given(epsilon=st.floats(min_value=1e-3, max_value=30.0), log_delta=LOG_DELTAS)
def test_epsilon_and_mu_are_inverse_up_to_rounding_against_us(epsilon: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    back = epsilon_of(delta, mu_of(epsilon, delta))
    assert back == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (3.0, 1e-6), (20.0, 1e-200)])
def test_the_roundings_are_on_the_safe_side_of_the_exact_formula(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert exact_delta(epsilon, mu) <= mpmath.mpf(delta)
    assert exact_delta(epsilon_of(delta, mu), mu) <= mpmath.mpf(delta)


@given(
    log_delta=st.floats(min_value=math.log(1e-200), max_value=math.log(0.5)),
    log_mu=LOG_MUS,
    factor=st.floats(min_value=1.0001, max_value=4.0),
)
def test_more_mu_and_less_delta_never_cost_less(log_delta: float, log_mu: float, factor: float) -> None:
    delta, mu = math.exp(log_delta), math.exp(log_mu)
    assert epsilon_of(delta, mu * factor) >= epsilon_of(delta, mu)
    assert epsilon_of(delta / factor, mu) >= epsilon_of(delta, mu)


def test_the_analytic_gaussian_needs_less_noise_than_the_classic_one() -> None:
    assert 1 / mu_of(1.0, 1e-6) == pytest.approx(4.2247, abs=1e-4)
    assert math.sqrt(2 * math.log(1.25e6)) == pytest.approx(5.30, abs=5e-3)


def test_the_classic_gaussian_breaks_its_claim_for_a_large_epsilon() -> None:
    def claimed(epsilon: float) -> float:
        return epsilon / math.sqrt(2 * math.log(1.25 / 1e-6))

    assert delta_of(1.0, claimed(1.0)) < 1e-6
    assert delta_of(12.0, claimed(12.0)) > 1e-6


@pytest.mark.parametrize(("queries", "epsilon"), [(10, 0.2432), (100, 0.8341), (1000, 2.9216), (10_000, 10.997)])
def test_many_queries_at_sigma_fifty_cost_the_exact_value(queries: int, epsilon: float) -> None:
    assert epsilon_of(1e-6, math.sqrt(queries) / 50) == pytest.approx(epsilon, rel=1e-4)


def test_eight_hundred_queries_at_sigma_twenty_five() -> None:
    assert epsilon_of(1e-7, math.sqrt(800) / 25) == pytest.approx(6.149, abs=1e-3)


def test_twelve_rounds_of_ten_queries_at_one_epsilon() -> None:
    assert math.sqrt(120) / mu_of(1.0, 1e-6) == pytest.approx(46.3, abs=0.05)


def test_delta_is_not_the_probability_that_the_loss_exceeds_epsilon() -> None:
    mu = mu_of(1.0, 1e-5)
    exceeds = 0.5 * math.erfc((1.0 / mu - mu / 2) / math.sqrt(2))
    assert exceeds / 1e-5 == pytest.approx(16, abs=0.5)


@pytest.mark.parametrize("mu", [0.05, 0.2, 1.0, 3.0])
def test_dp_accounting_agrees_from_above(mu: float) -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    report = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    theirs = report.get_epsilon_for_delta(1e-6)
    assert theirs - 2e-4 <= epsilon_of(1e-6, mu) <= theirs + 1e-9


def test_no_noise_to_pay_for_costs_nothing() -> None:
    assert delta_of(1.0, 0.0) == 0.0
    assert epsilon_of(1e-6, 0.0) == 0.0


def test_a_delta_that_is_large_enough_alone_needs_no_epsilon() -> None:
    assert epsilon_of(0.5, 0.1) == 0.0


def test_a_delta_below_every_double_is_still_not_zero() -> None:
    assert delta_of(50.0, 0.01) == math.ulp(0.0)
    assert delta_of(50.0, 1e-300) == math.ulp(0.0)
    assert delta_of(1e8, 5e-324) == math.ulp(0.0)


def test_delta_at_epsilon_zero_is_total_variation() -> None:
    for mu in (1e-6, 1e-3, 0.4, 2.0):
        assert delta_of(0.0, mu) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-12)


def test_delta_never_exceeds_one() -> None:
    assert delta_of(0.0, LARGEST_MU) == 1.0


def test_the_ends_of_the_range_are_answered() -> None:
    assert epsilon_of(1e-300, LARGEST_MU) > LARGEST_MU**2 / 2
    assert 0 < mu_of(LARGEST_EPSILON, 1e-300) < mu_of(LARGEST_EPSILON, 0.9) < LARGEST_MU
    assert mu_of(0.0, 1e-300) > 0


def test_an_absurd_price_is_told_rather_than_raised() -> None:
    seam = epsilon_of(1e-6, LARGEST_MU)
    assert seam <= epsilon_of(1e-6, LARGEST_MU * (1 + 1e-12)) <= seam * 1.001
    assert epsilon_of(1e-6, 1e100) >= 0.5e200
    assert epsilon_of(1e-6, 1e300) == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 2e8])
def test_an_epsilon_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be a number from 0"):
        delta_of(bad, 1.0)
    with pytest.raises(ValueError, match="epsilon must be a number from 0"):
        mu_of(bad, 0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1.0, 2.0])
def test_a_delta_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="delta must be a number between 0 and 1"):
        epsilon_of(bad, 1.0)
    with pytest.raises(ValueError, match="delta must be a number between 0 and 1"):
        mu_of(1.0, bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_a_mu_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="mu must be a number from 0"):
        delta_of(1.0, bad)
    with pytest.raises(ValueError, match="mu must be a number from 0"):
        delta_of(1.0, 2 * LARGEST_MU)
    with pytest.raises(ValueError, match="mu must be a number from 0"):
        epsilon_of(0.1, bad)
