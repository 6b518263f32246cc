"""Selections and choices as every accountant sees them: never less than they cost, and with a figure."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from wardround.privacy.accounting.accountants import pld
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT
from wardround.privacy.accounting.events import LARGEST_DELTA, Approximate, Gaussian, Pure, Schedule
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.budget.filter import epsilon_charged
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.report.compare import compare
from wardround.privacy.report.schedules import from_facts, schedule_of

DELTA = 1e-6
FREQUENT = SelectionFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(640)), 4500, max_keys=2, steps=64)
CUT_OFF = SelectionFact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(4)), 100, max_keys=2)
VOTE = ChoiceFact(Choosing.PERMUTE_AND_FLIP, Fraction(1, 2), 12)


def test_a_selection_is_its_noise_and_the_chance_of_showing_a_lone_unit() -> None:
    events = dict(from_facts([FREQUENT]).counts)
    (gaussian,) = (event for event in events if isinstance(event, Gaussian))
    assert gaussian.z**-2 * MU_UNIT >= FREQUENT.cost().mu_squared - 1
    assert events[Approximate(0.0, FREQUENT.cost().slack / SLACK_UNIT)] == 1
    events = dict(from_facts([CUT_OFF]).counts)
    assert events == {Pure(0.5): 1, Approximate(0.0, CUT_OFF.cost().slack / SLACK_UNIT): 1}


def test_a_choice_is_its_pure_epsilon() -> None:
    assert from_facts([VOTE, VOTE]) == Schedule(((Pure(0.5), 2),))


@pytest.mark.parametrize("fact", [FREQUENT, CUT_OFF, VOTE])
def test_every_accountant_has_a_figure_and_none_is_below_the_exact_one(fact: AnyFact) -> None:
    schedule = schedule_of((fact,))
    found = {line.accountant: line.epsilon for line in compare(schedule, delta=DELTA)}
    assert all(math.isfinite(epsilon) for epsilon in found.values())
    assert all(epsilon >= found["pld"] * (1 - 1e-6) for epsilon in found.values())
    # The exact figure is not below that of the noise alone, nor above what the filter says.
    noise = Schedule(tuple((event, count) for event, count in schedule.counts if not isinstance(event, Approximate)))
    assert found["pld"] >= pld(noise, DELTA) * (1 - 1e-6)
    assert found["pld"] <= epsilon_charged(fact.cost(), delta=DELTA) * (1 + 1e-3)


def test_more_delta_for_lone_units_costs_more() -> None:
    low, high = (SelectionFact(FREQUENT.law, threshold, 2, 64) for threshold in (3120, 9000))
    assert low.cost().slack > 100 * high.cost().slack
    assert pld(schedule_of((low,)), DELTA) > pld(schedule_of((high,)), DELTA)


@pytest.mark.parametrize(
    "fact",
    [
        SelectionFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(2**50)), 2**58, 1, 64),
        SelectionFact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(2**50)), 2**58, 1),
        ChoiceFact(Choosing.PERMUTE_AND_FLIP, Fraction(1, 2**40)),
    ],
)
def test_a_loss_finer_than_accountants_know_counts_as_the_finest_they_do(fact: AnyFact) -> None:
    losses = [event for event, _ in schedule_of((fact,)).counts if not isinstance(event, Approximate)]
    assert len(losses) == 1
    assert pld(schedule_of((fact,)), DELTA) < 1e-3


@pytest.mark.parametrize(
    "fact",
    [
        SelectionFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(4)), 2**40, 10**4, 10**6),
        SelectionFact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(1, 1024)), 2**40, 10**4),
        # Every lone unit is shown.
        SelectionFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(10**6)), 64, 10**4, 64),
        ChoiceFact(Choosing.PERMUTE_AND_FLIP, Fraction(10**6)),
    ],
)
def test_a_loss_beyond_all_accountants_has_no_figure(fact: AnyFact) -> None:
    schedule = schedule_of((fact,))
    assert schedule == Schedule(((Approximate(0.0, LARGEST_DELTA), 1),))
    assert pld(schedule, DELTA) == math.inf
