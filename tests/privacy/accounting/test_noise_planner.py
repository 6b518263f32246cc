"""The planner's figures and what a loss means, to the digits of the design."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.privacy.accounting.gaussian_dp import delta_of, epsilon_of, mu_of
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.report import posterior_beliefs as meaning
from wardround.privacy.report.compare import classic_sigma, epsilon_for, laplace_reach, plan_noise


def test_one_answer_needs_the_analytic_sigma() -> None:
    plan = plan_noise(epsilon=1.0, delta=1e-6)
    assert round(plan.sigma, 2) == 4.22
    assert round(classic_sigma(epsilon=1.0, delta=1e-6), 2) == 5.30
    assert plan.laplace == 1.0
    assert plan.better is Mechanism.DISCRETE_LAPLACE


def test_twelve_rounds_of_ten_answers() -> None:
    plan = plan_noise(epsilon=1.0, delta=1e-6, rounds=12, queries=10)
    assert round(plan.sigma, 1) == 46.3
    assert round(plan.zcdp, 1) == 58.6
    assert round(classic_sigma(epsilon=1.0, delta=1e-6, rounds=12, queries=10)) == 736
    assert plan.better is Mechanism.DISCRETE_GAUSSIAN
    assert delta_of(1.0, math.sqrt(120) / plan.sigma) <= 1e-6 * (1.0 + 1e-9)


def test_the_classic_gaussian_is_refused_where_its_proof_ends() -> None:
    with pytest.raises(ValueError, match="analytic"):
        classic_sigma(epsilon=1.01, delta=1e-6)
    # Split over answers, each is small enough again.
    assert classic_sigma(epsilon=8.0, delta=1e-6, queries=10) > 0.0
    # And the claim itself fails soon after: this is why.
    sigma = math.sqrt(2.0 * math.log(1.25 / 1e-3)) / 10.0
    assert delta_of(10.0, 1.0 / sigma) > 1e-3


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_the_classic_gaussian_is_sound_and_wasteful_where_it_is_allowed(epsilon: float) -> None:
    sigma = classic_sigma(epsilon=epsilon, delta=1e-6)
    assert delta_of(epsilon, 1.0 / sigma) < 1e-6
    assert sigma > plan_noise(epsilon=epsilon, delta=1e-6).sigma


def test_a_smaller_delta_costs_little() -> None:
    n = 1e6
    ratio = classic_sigma(epsilon=1.0, delta=n**-1.1) / classic_sigma(epsilon=1.0, delta=1.0 / n)
    assert round(100 * (ratio - 1.0), 1) == 4.8


@given(
    error=st.floats(0.5, 1e4),
    delta=st.sampled_from([1e-4, 1e-8]),
    rounds=st.integers(1, 20),
    sensitivity=st.floats(0.1, 10.0),
)
def test_the_inverse_is_the_inverse(error: float, delta: float, rounds: int, sensitivity: float) -> None:
    epsilon = epsilon_for(standard_error=error, delta=delta, rounds=rounds, sensitivity=sensitivity)
    if 1e-3 < epsilon < 1e3:
        plan = plan_noise(epsilon=epsilon, delta=delta, rounds=rounds, sensitivity=sensitivity)
        assert plan.sigma == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_gaussian_noise_wins_from_seven_to_ten_coordinates_on(epsilon: float) -> None:
    better = Mechanism.DISCRETE_GAUSSIAN
    dimension = next(n for n in count(1) if plan_noise(epsilon=epsilon, delta=1e-6, queries=n).better is better)
    assert 7 <= dimension <= 10
    laplace = math.sqrt(2.0) * dimension / epsilon
    assert math.sqrt(dimension) / mu_of(epsilon, 1e-6) <= laplace


def test_laplace_figures() -> None:
    assert plan_noise(epsilon=0.8, delta=1e-6).laplace == 1.25
    assert round(plan_noise(epsilon=0.12, delta=1e-6, sensitivity=8 / 500).laplace, 4) == 0.1333
    whole, half = (plan_noise(epsilon=e, delta=1e-6).laplace_deviation ** 2 for e in (0.5, 0.25))
    assert half == pytest.approx(4.0 * whole)
    assert round(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(1)).variance, 3) == 1.841
    assert NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(100)).variance == pytest.approx(
        2.0 * 100**2, rel=1e-4
    )


@pytest.mark.parametrize("epsilon", [0.1, 0.8, 3.0])
@pytest.mark.parametrize("missed", [0.3, 0.05, 0.001])
def test_the_reach_of_discrete_laplace_noise_is_exact(epsilon: float, missed: float) -> None:
    def beyond(k: int) -> float:
        return 2.0 * math.exp(-epsilon * (k + 1)) / (1.0 + math.exp(-epsilon))

    reach = laplace_reach(epsilon=epsilon, missed=missed)
    assert beyond(reach) <= missed * (1.0 + 1e-9)
    assert reach == 0 or beyond(reach - 1) > missed * (1.0 - 1e-9)


def test_impossible_plans_are_refused() -> None:
    for wrong in (
        lambda: plan_noise(epsilon=0.0, delta=1e-6),
        lambda: plan_noise(epsilon=1.0, delta=0.0),
        lambda: plan_noise(epsilon=1.0, delta=1e-6, rounds=0),
        lambda: plan_noise(epsilon=1.0, delta=1e-6, sensitivity=math.inf),
        lambda: classic_sigma(epsilon=1.0, delta=1.0),
        lambda: epsilon_for(standard_error=0.0, delta=1e-6),
        lambda: laplace_reach(epsilon=1.0, missed=1.0),
        lambda: meaning.posterior_bound(1.5, 1.0),
    ):
        with pytest.raises(ValueError, match="must be"):
            wrong()


def test_delta_is_not_the_probability_of_failure() -> None:
    assert round(meaning.chance_of_more_than(1.0, 1e-5) / 1e-5) == 16


def test_a_belief_moves_by_at_most_e_to_the_epsilon() -> None:
    assert round(meaning.posterior_bound(0.01, 0.8), 4) == 0.0220
    assert meaning.posterior_bound(0.5, 0.0) == 0.5
    assert meaning.posterior_bound(1.0, 3.0) == 1.0


def test_a_tenth_of_epsilon_is_a_seventh_of_a_bit_at_worst() -> None:
    assert round(meaning.worst_bits(0.1), 3) == 0.144


def test_a_budget_for_an_error_is_what_the_gaussian_says() -> None:
    assert epsilon_for(standard_error=4.2247, delta=1e-6) == pytest.approx(epsilon_of(1e-6, 1 / 4.2247), rel=1e-12)
