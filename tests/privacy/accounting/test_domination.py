"""Blocks reduced to one Gaussian, and the filter that adds them up."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from wardround.privacy.accounting.composition import RunningLoss
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT, Cost
from wardround.privacy.accounting.domination import dominating_cost, least_mu, pure_mu
from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.accounting.gaussian_dp import delta_of, epsilon_of
from wardround.privacy.budget.filter import Cap, admits


@pytest.mark.parametrize(
    ("event", "count", "known"),
    [
        (Laplace(0.1), 50, 0.6976),
        (DiscreteLaplace(0.1), 10, 0.3241),
        (SubsampledGaussian(0.02, 1.2), 400, 0.4712),
        (SubsampledGaussian(0.01, 0.8), 1000, 0.8574),
        (Pure(0.5), 1, 0.6239),
    ],
)
def test_known_blocks_have_their_known_mu(event: Event, count: int, known: float) -> None:
    found = least_mu(Schedule.of({event: count}), slack=1e-9)
    assert known * (1.0 - 1e-4) <= found <= known * (1.0 + 2e-3)


@pytest.mark.parametrize("event", [Laplace(0.3), SubsampledGaussian(0.05, 1.0), Pure(1.0)], ids=str)
def test_the_certificate_holds_between_the_points_it_was_made_at(event: Event) -> None:
    block = Schedule.of({event: 20})
    mu = least_mu(block, slack=1e-9)
    for curve in RunningLoss(block, 1e-10, even=True).curves():
        for index in range(0, curve.delta.size, 53):
            # The block's delta at a point of another grid, against the Gaussian's there.
            epsilon = (curve.first + index) * curve.step
            assert float(curve.delta[index]) <= delta_of(epsilon, mu) + 1.01e-9 + 1e-3 * float(curve.delta[index])


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 3.0])
def test_a_pure_event_is_just_below_its_gaussian(epsilon: float) -> None:
    mu = pure_mu(epsilon)
    assert math.tanh(0.5 * epsilon) == pytest.approx(delta_of(0.0, mu), rel=1e-9)
    for step in range(40):
        at = epsilon * step / 40
        exact = (math.exp(epsilon) - math.exp(at)) / (1.0 + math.exp(epsilon))
        assert exact <= delta_of(at, mu) * (1.0 + 1e-9)
    assert math.isinf(pure_mu(800.0))


def test_a_block_of_gaussians_is_exact_and_free_of_slack() -> None:
    cost = dominating_cost(Schedule.of({Gaussian(2.0): 3}), slack=1e-9)
    assert cost.slack == 0
    assert 0 <= cost.mu_squared - MU_UNIT * 3 // 4 <= 1 + 3 * MU_UNIT // 2**48 + 1


def test_approximate_events_pay_their_own_delta_as_slack() -> None:
    cost = dominating_cost(Schedule.of({Approximate(0.0, 2.0**-40): 3}), slack=1e-9)
    assert cost == Cost(mu_squared=0, pure=0, slack=3 * 2**20)
    pure = dominating_cost(Schedule.of({Pure(0.5): 2}), slack=1e-9)
    approximate = dominating_cost(Schedule.of({Approximate(0.5, 2.0**-40): 2}), slack=1e-9)
    assert approximate.mu_squared == pure.mu_squared
    assert approximate.slack - pure.slack in (2 * 2**20 - 1, 2 * 2**20)


def test_slack_is_charged_for_what_the_gaussian_cannot_hide() -> None:
    block = Schedule.of({Pure(0.5): 4})
    mu = least_mu(block, slack=1e-9)
    cost = dominating_cost(block, slack=1e-9)
    assert cost.slack == pytest.approx(1e-9 / (1.0 - delta_of(0.0, mu)) * SLACK_UNIT, rel=1e-8)
    assert cost.slack >= 1e-9 / (1.0 - delta_of(0.0, mu)) * SLACK_UNIT
    assert 0 <= cost.mu_squared - mu * mu * MU_UNIT <= 2


def test_a_block_that_hides_nothing_has_no_price() -> None:
    with pytest.raises(ValueError, match="hides too little"):
        dominating_cost(Schedule.of({Pure(4.0): 200}), slack=1e-9)


@pytest.mark.parametrize("slack", [0.0, 1e-15, 1.0, math.nan])
def test_a_slack_below_the_arithmetic_is_refused(slack: float) -> None:
    with pytest.raises(ValueError, match="slack"):
        least_mu(Schedule.of({Pure(0.5): 1}), slack=slack)


def test_a_block_that_certainly_fails_has_no_gaussian() -> None:
    with pytest.raises(ValueError, match="larger slack"):
        least_mu(Schedule.of({Approximate(0.5, 1e-3): 1}), slack=1e-9)


def test_a_sampled_block_is_admitted_whole_or_not_at_all() -> None:
    cap = Cap(3.0, 1e-6)
    cost = dominating_cost(Schedule.of({SubsampledGaussian(0.02, 1.2): 400}), slack=1e-11)
    times, spent = 0, Cost.zero()
    while admits(cap.allowance(), spent, cost):
        spent, times = spent + cost, times + 1
    # The exact loss of one such block is 2.03, of two 2.98.
    assert times in {1, 2}
    exact = RunningLoss(Schedule.of({SubsampledGaussian(0.02, 1.2): 400 * times}), 1e-6).epsilon()
    assert exact <= 3.0
    assert epsilon_of(1e-6, math.sqrt((times + 1) * cost.mu_squared / MU_UNIT)) > 3.0


# --- Why a running total is no filter -------------------------------------------------------------------

EPSILON, DELTA, FIRST = 1.0, 1e-3, 0.5
Law = Mapping[str, tuple[float, float]]


def response(epsilon: float) -> Law:
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    return {"yes": (likely, 1.0 - likely), "no": (1.0 - likely, likely)}


LEAK: Law = {"in": (DELTA, 0.0), "out": (0.0, DELTA), "silent": (1.0 - DELTA, 1.0 - DELTA)}


def loss(pairs: list[tuple[float, float]]) -> float:
    return math.fsum(max(0.0, p - math.exp(EPSILON) * q) for p, q in pairs)


def both(first: Law, second: Mapping[str, Law]) -> list[tuple[float, float]]:
    """All outcomes of `first`, then of the second mechanism that its answer chose."""
    return [(p * a, q * b) for answer, (p, q) in first.items() for a, b in second[answer].values()]


def second_response() -> float:
    """The second response for which the two together are exactly (EPSILON, DELTA)."""
    low, high = EPSILON - FIRST, EPSILON
    for _ in range(60):
        middle = 0.5 * (low + high)
        together = loss(both(response(FIRST), dict.fromkeys(("yes", "no"), response(middle))))
        low, high = (middle, high) if together < DELTA else (low, middle)
    return low


def test_a_running_loss_distribution_is_no_filter_and_ours_refuses_its_counterexample() -> None:
    second = second_response()
    first = response(FIRST)
    # Either course, on its own, is within (EPSILON, DELTA): a running total lets both through.
    assert loss(both(first, dict.fromkeys(("yes", "no"), response(second)))) <= DELTA
    assert loss(both(first, dict.fromkeys(("yes", "no"), LEAK))) <= DELTA * (1.0 + 1e-12)
    running = RunningLoss(Schedule.of({Pure(FIRST): 1, Pure(second): 1}), DELTA)
    assert running.epsilon() <= EPSILON * (1.0 + 1e-3)
    # But an analyst who chooses by the first answer gets more.
    adaptive = loss(both(first, {"yes": response(second), "no": LEAK}))
    assert round(adaptive / DELTA, 3) == 1.378
    # However the cap is cut into lanes, and however the steps are priced, ours refuses a step of it.
    for pure_epsilon in (0.0, 0.25, 0.5, 0.75, 1.0):
        allowance = Cap(EPSILON, DELTA, pure_epsilon).allowance()
        for begun in prices(FIRST):
            if not admits(allowance, Cost.zero(), begun):
                continue
            leaked = Cost(mu_squared=0, pure=0, slack=math.ceil(DELTA * SLACK_UNIT))
            assert not admits(allowance, begun, leaked)
            assert not any(admits(allowance, begun, price) for price in prices(second))


def prices(epsilon: float) -> tuple[Cost, Cost]:
    """A pure answer in the pure lane, or as a Gaussian."""
    in_its_lane = Cost(mu_squared=0, pure=math.ceil(epsilon * 2**40), slack=0)
    return in_its_lane, Cost(mu_squared=math.ceil(pure_mu(epsilon) ** 2 * MU_UNIT), pure=0, slack=0)


def test_the_filter_admits_part_of_the_counterexample_so_its_refusal_is_no_accident() -> None:
    assert admits(Cap(EPSILON, DELTA, 1.0).allowance(), Cost.zero(), prices(FIRST)[0])
