"""Each event's profile and its loss distribution, against enumeration and against dp-accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from dp_accounting.pld.common import DifferentialPrivacyParameters
from hypothesis import given
from hypothesis import strategies as st

from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Pure,
    SubsampledGaussian,
)
from wardround.privacy.accounting.loss_distribution import LossDistribution, loss_distributions
from wardround.privacy.accounting.profiles import FloatVector, profiles, spread

STEP = 1e-3
TAIL = 1e-14
EVENTS: tuple[Event, ...] = (
    Gaussian(1.5),
    DiscreteGaussian(5.0, 3),
    Laplace(0.7),
    DiscreteLaplace(0.7),
    DiscreteLaplace(0.9, 4),
    Pure(0.7),
    Approximate(0.7, 1e-3),
    Approximate(0.0, 1e-3),
    SubsampledGaussian(0.1, 0.8),
    SubsampledGaussian(1.0, 1.5),
)
GRID = np.linspace(0.0, 3.0, 61)


def divergence(p: FloatVector, q: FloatVector, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def delta_of_law(law: LossDistribution, epsilon: float) -> float:
    losses = STEP * np.arange(law.lowest, law.lowest + law.mass.size)
    return law.infinite + float((law.mass * np.maximum(-np.expm1(epsilon - losses), 0.0)).sum())


@pytest.mark.parametrize(("sigma", "shift"), [(5.0, 3), (0.6, 1), (20.0, 7)])
def test_the_discrete_gaussian_profile_is_its_enumeration(sigma: float, shift: int) -> None:
    n = np.arange(-900, 901)
    p = np.exp(-0.5 * (n / sigma) ** 2)
    p /= p.sum()
    found = profiles(DiscreteGaussian(sigma, shift), tail=TAIL)[0].delta(GRID)
    for epsilon, delta in zip(GRID, found, strict=True):
        assert delta == pytest.approx(divergence(p, np.roll(p, shift), epsilon), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("most", "shift"), [(0.7, 1), (0.9, 4), (2.5, 5)])
def test_the_discrete_laplace_profile_is_its_enumeration(most: float, shift: int) -> None:
    n = np.arange(-3000, 3001)
    p = np.exp(-np.abs(n) * most / shift)
    p /= p.sum()
    found = profiles(DiscreteLaplace(most, shift), tail=TAIL)[0].delta(GRID)
    for epsilon, delta in zip(GRID, found, strict=True):
        assert delta == pytest.approx(divergence(p, np.roll(p, shift), epsilon), rel=1e-9, abs=1e-15)


def test_a_count_under_discrete_laplace_noise_is_randomised_response() -> None:
    laplace, pure = profiles(DiscreteLaplace(0.7), tail=TAIL)[0], profiles(Pure(0.7), tail=TAIL)[0]
    assert laplace.delta(GRID) == pytest.approx(pure.delta(GRID), abs=1e-15)


@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
def test_the_sampled_gaussian_profiles_are_their_integrals(rate: float) -> None:
    x = np.linspace(-14.0, 16.0, 300_001)
    alone = np.exp(-0.5 * x * x) * (x[1] - x[0]) / math.sqrt(2.0 * math.pi)
    moved = np.exp(-0.5 * (x - 1.25) ** 2) * (x[1] - x[0]) / math.sqrt(2.0 * math.pi)
    mixed = (1.0 - rate) * alone + rate * moved
    removed, added = profiles(SubsampledGaussian(rate, 0.8), tail=TAIL)
    for epsilon in (0.0, 0.01, 0.3, 0.9999, 1.0001, 2.5):
        at = np.array([epsilon])
        assert float(removed.delta(at)[0]) == pytest.approx(divergence(mixed, alone, epsilon), rel=1e-6, abs=1e-12)
        assert float(added.delta(at)[0]) == pytest.approx(divergence(alone, mixed, epsilon), rel=1e-6, abs=1e-12)


@given(q=st.floats(1e-4, 1.0), z=st.floats(0.3, 20.0), epsilon=st.floats(0.0, 5.0))
def test_removing_a_sampled_unit_is_never_better_than_adding_one(q: float, z: float, epsilon: float) -> None:
    removed, added = profiles(SubsampledGaussian(q, z), tail=TAIL)
    at = np.array([epsilon])
    assert float(added.delta(at)[0]) <= float(removed.delta(at)[0]) * (1.0 + 1e-9) + 1e-13


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_a_profile_is_within_its_tail_beyond_its_reach(event: Event) -> None:
    certain = event.delta if isinstance(event, Approximate) else 0.0
    for profile in profiles(event, tail=1e-9):
        assert float(profile.delta(np.array([profile.reach + 1e-9]))[0]) <= certain + 1.001e-9


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_a_loss_distribution_is_one_and_never_below_its_profile(event: Event) -> None:
    for law, profile in zip(loss_distributions(event, step=STEP, tail=TAIL), profiles(event, tail=TAIL), strict=True):
        assert law.mass.sum() + law.infinite == pytest.approx(1.0, abs=1e-9)
        for epsilon in (0.0, 0.0005, 0.01, 0.3333, 0.7, 1.1):
            exact = float(profile.delta(np.array([epsilon]))[0])
            assert exact * (1.0 - 1e-9) - 1e-15 <= delta_of_law(law, epsilon) <= exact + 2e-4


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_both_directions_tell_of_the_same_two_worlds(event: Event) -> None:
    # P-mass at a loss of l is e^l times Q-mass there: removing seen backwards is adding.
    removed, added = loss_distributions(event, step=STEP, tail=TAIL)
    losses = STEP * np.arange(removed.lowest, removed.lowest + removed.mass.size)
    mirrored = np.zeros(removed.mass.size)
    places = -np.arange(added.lowest, added.lowest + added.mass.size) - removed.lowest
    mirrored[places] = added.mass
    assert removed.mass * np.exp(-losses) == pytest.approx(mirrored, abs=1e-9)


@pytest.mark.parametrize(
    ("event", "law"),
    [
        (Gaussian(1.5), oracle.from_gaussian_mechanism(1.5, value_discretization_interval=STEP)),
        (Laplace(0.7), oracle.from_laplace_mechanism(1 / 0.7, value_discretization_interval=STEP)),
        (DiscreteLaplace(0.7), oracle.from_discrete_laplace_mechanism(0.7, value_discretization_interval=STEP)),
        (
            DiscreteLaplace(0.8, 4),
            oracle.from_discrete_laplace_mechanism(0.2, sensitivity=4, value_discretization_interval=STEP),
        ),
        (
            DiscreteGaussian(5.0, 3),
            oracle.from_discrete_gaussian_mechanism(5.0, sensitivity=3, value_discretization_interval=STEP),
        ),
        (
            SubsampledGaussian(0.1, 0.8),
            oracle.from_gaussian_mechanism(0.8, sampling_prob=0.1, value_discretization_interval=STEP),
        ),
        (
            Approximate(0.7, 1e-3),
            oracle.from_privacy_parameters(
                DifferentialPrivacyParameters(0.7, 1e-3), value_discretization_interval=STEP
            ),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Gaussian) else None,
)
def test_dp_accounting_finds_the_same_deltas(event: Event, law: oracle.PrivacyLossDistribution) -> None:
    ours = loss_distributions(event, step=STEP, tail=TAIL)
    for epsilon in (0.0, 0.1, 0.35, 0.65):
        found = max(delta_of_law(one, epsilon) for one in ours)
        assert found == pytest.approx(float(law.get_delta_for_epsilon(epsilon)), rel=2e-3, abs=1e-9)


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_the_spread_is_about_the_variance(event: Event) -> None:
    law = loss_distributions(event, step=STEP, tail=TAIL)[0]
    losses = STEP * np.arange(law.lowest, law.lowest + law.mass.size)
    mean = float((law.mass * losses).sum())
    variance = float((law.mass * (losses - mean) ** 2).sum())
    assert variance / 4.0 <= spread(event) + 1e-12
