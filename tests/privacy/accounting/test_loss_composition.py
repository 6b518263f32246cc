"""Composition by transform: exact where that is known, never below, and cheap to extend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle

from wardround.privacy.accounting.composition import Curve, RunningLoss
from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.accounting.gaussian_dp import delta_of, epsilon_of


def epsilon(counts: dict[Event, int], delta: float) -> float:
    return RunningLoss(Schedule.of(counts), delta).epsilon()


def binomial_delta(most: float, count: int, at: float) -> float:
    """Randomised response `count` times, summed exactly."""
    likely = 1.0 / (1.0 + math.exp(-most))
    terms = []
    for heads in range(count + 1):
        loss = (2 * heads - count) * most
        if loss > at:
            log_p = heads * math.log(likely) + (count - heads) * math.log1p(-likely)
            terms.append(math.comb(count, heads) * math.exp(log_p) * -math.expm1(at - loss))
    return math.fsum(terms)


@pytest.mark.parametrize(("most", "count", "delta"), [(0.5, 1, 1e-6), (0.5, 2, 1e-6), (0.1, 300, 1e-9), (2.0, 7, 1e-4)])
def test_pure_events_are_the_binomial_sum_and_hardly_more(most: float, count: int, delta: float) -> None:
    found = epsilon({Pure(most): count}, delta)
    assert binomial_delta(most, count, found) <= delta
    assert binomial_delta(most, count, found * (1.0 - 1e-4)) > delta


@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-12])
@pytest.mark.parametrize("z", [0.05, 1.0, 30.0])
def test_gaussians_in_the_transform_are_the_closed_form_and_hardly_more(z: float, delta: float) -> None:
    exact = epsilon_of(delta, 1.0 / z)
    assert exact * (1.0 - 1e-12) <= epsilon({Gaussian(z): 1}, delta) <= exact * (1.0 + 2e-3) + 1e-9


@pytest.mark.parametrize("delta", [1e-4, 1e-8, 1e-11])
def test_many_small_gaussians_are_one_large_one_event_by_event(delta: float) -> None:
    # Sampling everyone is a Gaussian that is not merged beforehand: the transform has to find it.
    exact = epsilon_of(delta, math.sqrt(500) / 20.0)
    found = epsilon({SubsampledGaussian(1.0, 20.0): 500}, delta)
    assert exact <= found <= exact * (1.0 + 2e-4)


@pytest.mark.parametrize(
    ("counts", "delta", "known"),
    [
        ({Laplace(0.1): 50}, 1e-6, 3.1207),
        ({SubsampledGaussian(0.02, 1.2): 400}, 1e-6, 2.0302),
        ({SubsampledGaussian(0.01, 0.8): 1000}, 1e-6, 3.7062),
        ({DiscreteGaussian(25.0): 800}, 1e-7, 6.1488),
    ],
)
def test_known_schedules_keep_their_digits(counts: dict[Event, int], delta: float, known: float) -> None:
    assert epsilon(counts, delta) == pytest.approx(known, abs=2e-4)


def test_dp_accounting_composes_a_mixture_to_the_same() -> None:
    fine = 1e-3
    law = oracle.from_gaussian_mechanism(30.0 / math.sqrt(130), value_discretization_interval=fine)
    law = law.compose(
        oracle.from_gaussian_mechanism(1.2, sampling_prob=0.02, value_discretization_interval=fine).self_compose(50)
    )
    law = law.compose(oracle.from_laplace_mechanism(20.0, value_discretization_interval=fine).self_compose(30))
    mixture: dict[Event, int] = {Gaussian(30.0): 130, SubsampledGaussian(0.02, 1.2): 50, Laplace(0.05): 30}
    assert epsilon(mixture, 1e-6) == pytest.approx(law.get_epsilon_for_delta(1e-6), rel=1e-3)


def test_approximate_events_pay_their_delta() -> None:
    assert epsilon({Approximate(0.5, 1e-7): 3}, 1e-6) == pytest.approx(1.5, abs=1e-4)
    assert math.isinf(epsilon({Approximate(0.5, 1e-6): 3}, 1e-6))
    assert math.isinf(epsilon({Approximate(0.5, 0.9): 1}, 1e-6))


def test_one_event_more_is_the_same_as_beginning_with_it() -> None:
    running = RunningLoss(Schedule.of({Gaussian(30.0): 100, Pure(0.05): 10}), 1e-6)
    before = running.epsilon()
    for event in (Pure(0.05), Laplace(0.04), Gaussian(30.0), SubsampledGaussian(0.02, 1.2), Pure(0.3), Gaussian(0.5)):
        running.add(event)
        after = running.epsilon()
        assert after > before
        assert after == pytest.approx(RunningLoss(running.schedule, 1e-6).epsilon(), rel=1e-3)
        before = after
    assert running.schedule.events == 116


def test_an_event_beyond_the_grid_places_it_anew() -> None:
    running = RunningLoss(Schedule.of({Pure(1e-6): 1}), 1e-6)
    running.add(Pure(100.0))
    assert running.epsilon() == pytest.approx(100.0, rel=1e-3)


def test_a_window_too_wide_for_memory_still_bounds() -> None:
    found = epsilon({Pure(900.0): 2, Laplace(0.001): 1}, 1e-6)
    assert 1799.9 <= found <= 1802.0


def test_a_huge_gaussian_beside_a_pure_event_has_an_answer() -> None:
    exact = epsilon_of(1e-6, 1000.0)
    assert exact <= epsilon({Gaussian(1e-3): 1, Pure(0.3): 1}, 1e-6) <= 1.005 * exact


def test_the_whole_profile_is_never_below_the_truth() -> None:
    (curve,) = RunningLoss(Schedule.of({Gaussian(2.0): 1}), 1e-9, even=True).curves()
    for index in range(0, curve.delta.size // 2, 97):
        exact = delta_of((curve.first + index) * curve.step, 0.5)
        assert exact * (1.0 - 1e-9) <= float(curve.delta[index]) <= exact * 1.01 + 1e-11


def test_a_curve_is_read_between_its_points() -> None:
    curve = Curve(0.5, 2, np.array([0.4, 0.2, 0.1]))
    assert curve.epsilon_at(0.5) == 1.0
    assert curve.epsilon_at(0.2) == 1.5
    between = curve.epsilon_at(0.3)
    assert math.exp(between) == pytest.approx((math.exp(1.0) + math.exp(1.5)) / 2.0)
    assert math.isinf(curve.epsilon_at(0.05))


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_running_loss_needs_a_delta(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        RunningLoss(Schedule(()), delta)
