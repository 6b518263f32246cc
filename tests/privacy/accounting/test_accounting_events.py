"""Facts become events, and events a schedule."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from wardround.privacy.accounting.cost import MU_UNIT, Fact, total
from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.report.schedules import from_facts


def gaussian_fact(scale: int, squared: int, dimension: int = 1) -> Fact:
    return Fact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(scale)), squared, squared, dimension)


def laplace_fact(scale: int, norm: int) -> Fact:
    return Fact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(scale)), norm, norm * norm, 1)


def test_the_order_of_a_schedule_does_not_matter() -> None:
    first = Schedule.of({Gaussian(2.0): 3, Pure(0.1): 1, Laplace(0.2): 2})
    assert first == Schedule.of({Laplace(0.2): 2, Gaussian(2.0): 3, Pure(0.1): 1})
    assert first.events == 6


def test_schedules_add_up_and_repeat() -> None:
    one = Schedule.of({Gaussian(2.0): 3, Pure(0.1): 1})
    assert one + one == one.seen(2) == Schedule.of({Gaussian(2.0): 6, Pure(0.1): 2})
    assert Schedule.of({Pure(0.1): 0}) == Schedule(())


def test_a_ledgers_gaussian_facts_keep_their_price() -> None:
    facts = [gaussian_fact(64, 4096), gaussian_fact(64, 4096), gaussian_fact(100, 7)]
    found = from_facts(iter(facts))
    assert found.mu_squared >= (total(facts).mu_squared - len(facts)) / MU_UNIT
    assert found.mu_squared == pytest.approx(total(facts).mu_squared / MU_UNIT, rel=1e-9)


def test_a_ledgers_slack_is_accounted_for() -> None:
    found = from_facts([gaussian_fact(64, 4096, dimension=2**20 + 1)])
    assert dict(found.counts)[Approximate(0.0, 2.0**-60)] == 2
    assert found.certain_delta == 2.0**-59


def test_laplace_facts_are_their_pure_epsilon_rounded_up() -> None:
    found = from_facts([laplace_fact(3, 1), laplace_fact(3, 1), laplace_fact(3, 2)])
    counts = dict(found.counts)
    (one,) = (event for event in counts if isinstance(event, DiscreteLaplace))
    (two,) = (event for event in counts if isinstance(event, Pure))
    assert (counts[one], counts[two]) == (2, 1)
    assert Fraction(one.epsilon) >= Fraction(1, 3) > Fraction(math.nextafter(one.epsilon, 0.0))
    assert Fraction(two.epsilon) >= Fraction(2, 3)


def test_a_release_nobody_can_move_is_no_event() -> None:
    assert from_facts([laplace_fact(3, 0)]) == Schedule(())
    assert from_facts([gaussian_fact(64, 0)]).mu_squared == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(math.nan),
        lambda: DiscreteGaussian(0.0),
        lambda: DiscreteGaussian(4.0, 0),
        lambda: Laplace(-1.0),
        lambda: DiscreteLaplace(math.inf),
        lambda: DiscreteLaplace(1.0, 0),
        lambda: Pure(0.0),
        lambda: Approximate(-0.1, 0.1),
        lambda: Approximate(0.1, 1.5),
        lambda: SubsampledGaussian(0.0, 1.0),
        lambda: SubsampledGaussian(1.5, 1.0),
        lambda: SubsampledGaussian(0.5, 0.0),
        lambda: Schedule(((Pure(0.1), 0),)),
        lambda: Schedule.of({Pure(0.1): -1}),
        lambda: Schedule.of({Pure(0.1): 1}).seen(0),
    ],
)
def test_impossible_events_are_refused(wrong: type[Event]) -> None:
    with pytest.raises(ValueError, match="must be"):
        wrong()  # type: ignore[call-arg]
