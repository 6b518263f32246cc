"""The statistics of an audit: bounds against scipy, never above the truth, and close to it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from wardround.privacy.inference.audit_bounds import (
    Event,
    beta_tail,
    clopper_pearson,
    delta_bound,
    epsilon_bound,
    kurtosis,
    likelihood_ratio,
    mu_bound,
    variance_score,
)
from wardround.privacy.inference.exact_loss import pmf
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise

# A bound may be wrong as often as it says; of these draws, which are the same every time, none is.
pytestmark = pytest.mark.usefixtures("same_noise")
LAPLACE, GAUSSIAN = Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN


@settings(max_examples=200)
@given(st.floats(0, 1), st.floats(0.5, 1e5), st.floats(0.5, 1e5))
def test_the_incomplete_beta_function_is_scipys(x: float, a: float, b: float) -> None:
    assert beta_tail(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-8, abs=1e-12)


@settings(max_examples=100)
@given(st.integers(1, 200_000), st.floats(0, 1), st.sampled_from([0.05, 1e-3, 1e-6]))
def test_clopper_pearson_is_scipys_and_never_narrower(trials: int, share: float, alpha: float) -> None:
    successes = round(share * trials)
    low, high = clopper_pearson(successes, trials, alpha=alpha)
    exact_low = stats.beta.ppf(alpha, successes, trials - successes + 1) if successes else 0.0
    exact_high = stats.beta.isf(alpha, successes + 1, trials - successes) if successes < trials else 1.0
    assert low <= exact_low
    assert low == pytest.approx(exact_low, rel=1e-6, abs=1e-12)
    assert high >= exact_high - 1e-12
    assert 1 - high == pytest.approx(1 - exact_high, rel=1e-6, abs=1e-12)


def test_what_makes_no_sense_has_no_bound() -> None:
    for successes, trials, alpha in ((-1, 5, 0.1), (6, 5, 0.1), (0, 0, 0.1), (1, 5, 0.0), (1, 5, 1.0)):
        with pytest.raises(ValueError, match="a bound needs"):
            clopper_pearson(successes, trials, alpha=alpha)
    for x, a, b in ((-0.1, 1, 1), (1.1, 1, 1), (0.5, 0, 1), (0.5, 1, 0)):
        with pytest.raises(ValueError, match="incomplete beta"):
            beta_tail(x, a, b)
    few = np.zeros(5)
    with pytest.raises(ValueError, match="at least 20 samples"):
        epsilon_bound(few, few, alpha=0.1)
    with pytest.raises(ValueError, match="at least 20 draws"):
        variance_score(np.zeros(5, np.int64), NoiseDistribution(LAPLACE, Fraction(1)))


def noised(law: NoiseDistribution, shift: int, draws: int) -> np.ndarray:
    released = SecureNoise().draw(law, draws)[:, np.newaxis] + shift
    return likelihood_ratio(released, law, with_unit=np.array([1]), without=np.array([0]))


def test_a_bound_on_epsilon_is_close_to_the_truth_and_below_it() -> None:
    for epsilon, draws in ((Fraction(1, 2), 60_000), (Fraction(1), 30_000), (Fraction(2), 30_000)):
        law = NoiseDistribution(LAPLACE, 1 / epsilon)
        bound = epsilon_bound(noised(law, 1, draws), noised(law, 0, draws), alpha=1e-5)
        assert 0.85 * epsilon < bound <= epsilon


def test_the_side_on_which_the_worlds_differ_does_not_matter() -> None:
    # Only the absence of the unit gives itself away, and only by small values.
    present, absent = np.ones(5_000), (np.arange(5_000) % 10 > 0).astype(np.float64)
    for pair in ((present, absent), (absent, present), (-present, -absent), (-absent, -present)):
        assert epsilon_bound(*pair, alpha=1e-3) > 3.0


def test_worlds_that_are_alike_prove_nothing() -> None:
    law = NoiseDistribution(LAPLACE, Fraction(1))
    same = noised(law, 0, 5_000)
    assert epsilon_bound(same, noised(law, 0, 5_000), alpha=1e-5) == 0.0
    assert epsilon_bound(np.ones(100), np.ones(100), alpha=1e-5) == 0.0
    assert mu_bound(np.ones(100), np.ones(100), alpha=1e-5) == 0.0


def test_a_bound_is_wrong_no_more_often_than_it_says() -> None:
    # At 10 % instead of 0.1 %, so that being wrong could be seen; the truth is exactly ε.
    law, wrong = NoiseDistribution(LAPLACE, Fraction(1)), 0
    for _ in range(60):
        wrong += epsilon_bound(noised(law, 1, 400), noised(law, 0, 400), alpha=0.1) > 1.0
    assert stats.binomtest(wrong, 60, 0.1, alternative="greater").pvalue > 1e-6


def test_choosing_the_event_on_the_samples_that_measure_it_would_be_wrong() -> None:
    """What the split is for: among many events one looks telling by luck."""
    generator, lucky, proved = np.random.default_rng(5), 0, 0
    for _ in range(40):
        first, second = (generator.integers(0, 300, 600).astype(np.float64) for _ in range(2))
        events = [Event(float(t), at_least=side) for t in range(0, 300, 4) for side in (True, False)]
        hits = np.array([[event.count(first), event.count(second)] for event in events])
        least = stats.beta.ppf(0.05, hits[:, 0], 601 - hits[:, 0])
        most = stats.beta.isf(0.05, hits[:, 1] + 1, 600 - hits[:, 1])
        lucky += bool(np.any(least > most))
        proved += epsilon_bound(first, second, alpha=0.1) > 0.0
    assert lucky > 2 * proved


def test_the_samples_that_chose_the_event_do_not_count() -> None:
    present, absent = np.zeros(1_000), np.zeros(1_000)
    present[:200] = 1.0
    assert epsilon_bound(present, absent, alpha=1e-3) == 0.0
    assert mu_bound(present, absent, alpha=1e-3) == 0.0


def test_delta_is_subtracted_before_anything_is_proved() -> None:
    # A mechanism that fails outright once in a hundred: unbounded at δ = 0, nothing at δ = 0.02.
    present, absent = np.repeat([0.0, 1.0], [99_000, 1_000]), np.zeros(100_000)
    generator = np.random.default_rng(2)
    generator.shuffle(present)
    assert epsilon_bound(present, absent, alpha=1e-3) > 3.0
    assert epsilon_bound(present, absent, alpha=1e-3, delta=0.02) == 0.0


def test_a_bound_on_delta_is_close_to_the_truth_and_below_it() -> None:
    assert 0.009 < delta_bound(10_000, 0, trials=1_000_000, epsilon=1.0, alpha=1e-3) < 0.01
    assert delta_bound(10_000, 10_000, trials=1_000_000, epsilon=1.0, alpha=1e-3) == 0.0


@pytest.mark.parametrize("shift", [2, 4, 12])
def test_a_bound_on_mu_is_close_to_the_truth_and_below_it(shift: int) -> None:
    law, draws = NoiseDistribution(GAUSSIAN, Fraction(4)), 60_000
    samples = [
        likelihood_ratio(
            SecureNoise().draw(law, draws)[:, np.newaxis] + centre,
            law,
            with_unit=np.array([shift]),
            without=np.array([0]),
        )
        for centre in (shift, 0)
    ]
    mu = shift / 4
    bound = mu_bound(samples[0], samples[1], alpha=1e-5)
    assert 0.8 * mu < bound <= mu


def test_slack_is_added_to_what_may_be_missed() -> None:
    absent = np.random.default_rng(3).normal(size=20_000)
    present = absent[::-1] + 2.0
    bounds = [mu_bound(present, absent, alpha=1e-3, delta=delta) for delta in (0.0, 1e-9, 0.05, 0.3, 1.0)]
    assert 1.8 < bounds[0] < 2.0
    assert bounds[1] == pytest.approx(bounds[0])
    assert bounds[0] > bounds[1] > bounds[2] > bounds[3] > bounds[4] == 0.0


@pytest.mark.parametrize("mechanism", [LAPLACE, GAUSSIAN])
def test_a_likelihood_ratio_is_that_of_the_probabilities(mechanism: Mechanism) -> None:
    law = NoiseDistribution(mechanism, Fraction(4))
    noise = pmf(law)
    released = np.array([[3, -2], [0, 0], [7, 5]])
    with_unit, without = np.array([2, 0]), np.array([0, 1])
    expected = [
        sum(
            math.log(noise.probabilities[y - a - noise.first] / noise.probabilities[y - b - noise.first])
            for y, a, b in zip(row, with_unit, without, strict=True)
        )
        for row in released
    ]
    assert likelihood_ratio(released, law, with_unit=with_unit, without=without) == pytest.approx(expected)


@pytest.mark.parametrize(
    "law",
    [
        NoiseDistribution(LAPLACE, Fraction(1, 2)),
        NoiseDistribution(LAPLACE, Fraction(9)),
        NoiseDistribution(GAUSSIAN, Fraction(4)),
    ],
)
def test_kurtosis_is_that_of_the_probabilities(law: NoiseDistribution) -> None:
    noise = pmf(law)
    x = np.arange(noise.first, noise.first + noise.probabilities.size, dtype=np.float64)
    second, fourth = (float(np.sum(noise.probabilities * x**power)) for power in (2, 4))
    assert kurtosis(law) == pytest.approx(fourth / second**2, rel=1e-9)
    assert kurtosis(NoiseDistribution(LAPLACE, Fraction(2**40))) == pytest.approx(6.0)


@pytest.mark.parametrize(
    "law", [NoiseDistribution(LAPLACE, Fraction(3)), NoiseDistribution(GAUSSIAN, Fraction(300))], ids=str
)
def test_two_per_cent_more_or_less_noise_shows_in_a_million_draws(law: NoiseDistribution) -> None:
    draws = SecureNoise().draw(law, 1_000_000)
    assert abs(variance_score(draws, law)) < 5.0
    for factor, sign in ((Fraction(98, 100), 1), (Fraction(102, 100), -1)):
        claimed = NoiseDistribution(law.mechanism, Fraction(round(law.scale * factor * 1024), 1024))
        assert sign * variance_score(draws, claimed) > 5.0
