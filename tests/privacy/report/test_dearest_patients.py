"""Which patients a report is about, and that their figures grow with the ledger."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.accounts.ledgers import gaussian, laplace
from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.cost import Fact
from wardround.privacy.accounting.events import Approximate, DiscreteLaplace, Event, Gaussian, Laplace, Pure, Schedule
from wardround.privacy.budget.parallel import Group, groups_among
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.report.dearest_patient import contains, dearest_patients, of_many_events, undominated
from wardround.privacy.report.running_accountants import RunningAccountants, coarse
from wardround.privacy.report.schedules import from_facts, schedule_of

A, B, C = Gaussian(10.0), Gaussian(20.0), DiscreteLaplace(0.1)

events = st.sampled_from([A, B, C, Pure(0.2)])
schedules = st.dictionaries(events, st.integers(1, 5), max_size=4).map(Schedule.of)
federations = st.dictionaries(st.sampled_from("abcde"), schedules, min_size=1, max_size=5)


def everyone(sites: dict[str, Schedule]) -> Group:
    return Group(tuple(sorted(sites)), 1)


def test_disjoint_sites_leave_the_dearest_site() -> None:
    sites = {"a": Schedule.of({A: 3}), "b": Schedule.of({A: 2}), "c": Schedule.of({A: 3})}
    assert dearest_patients(sites, [everyone(sites)]) == (Schedule.of({A: 3}),)


def test_sites_that_cannot_be_compared_both_stay() -> None:
    sites = {"a": Schedule.of({A: 3}), "b": Schedule.of({B: 4})}
    assert set(dearest_patients(sites, [everyone(sites)])) == set(sites.values())


def test_a_group_of_sites_that_share_patients_is_met_together() -> None:
    sites = {"a": Schedule.of({A: 1}), "b": Schedule.of({A: 1}), "c": Schedule.of({A: 1})}
    groups = groups_among(sites, declared=(Group(("a", "b"), 2),), overlap=1)
    assert dearest_patients(sites, groups) == (Schedule.of({A: 2}),)


def test_a_site_outside_every_group_would_be_free() -> None:
    with pytest.raises(ValueError, match="outside: b"):
        dearest_patients({"a": Schedule.of({A: 1}), "b": Schedule.of({A: 1})}, [Group(("a",), 1)])


def test_nothing_released_is_nothing_met() -> None:
    assert dearest_patients({}, []) == (Schedule(()),)


def test_of_too_many_patients_one_is_made_up_who_meets_the_most_of_each_event() -> None:
    different = {str(number): Schedule.of({Gaussian(float(number)): number}) for number in range(1, 7)}
    assert dearest_patients(different, [everyone(different)]) == (sum(different.values(), start=Schedule(())),)
    many = {str(number): Schedule.of({A: number}) for number in range(1, 60)}
    shared = Group(tuple(many), 3)
    assert dearest_patients(many, [shared]) == (Schedule.of({A: 59 + 58 + 57}),)


@given(federations, st.integers(1, 5))
def test_no_patient_costs_more_than_the_dearest(sites: dict[str, Schedule], overlap: int) -> None:
    found = dearest_patients(sites, groups_among(sites, declared=(), overlap=overlap))
    for chosen in combinations(sites.values(), min(overlap, len(sites))):
        patient = sum(chosen, start=Schedule(()))
        assert any(contains(one, patient) for one in found)


@given(federations, st.integers(1, 4))
def test_a_wider_overlap_never_costs_less(sites: dict[str, Schedule], overlap: int) -> None:
    narrow, wide = (
        dict(RunningAccountants(1e-6).epsilons(dearest_patients(sites, groups_among(sites, declared=(), overlap=k))))
        for k in (overlap, overlap + 1)
    )
    for name, epsilon in narrow.items():
        assert epsilon <= wide[name] * (1 + 1e-3) + 1e-9, name


@given(st.lists(schedules, max_size=6))
def test_what_is_left_out_is_contained_in_what_is_kept(found: list[Schedule]) -> None:
    kept = undominated(found)
    assert all(any(contains(one, schedule) for one in kept) for schedule in found)
    assert not any(contains(one, other) for one in kept for other in kept if one is not other)


def test_facts_of_a_charge_are_its_events() -> None:
    facts = (gaussian(50), gaussian(50), laplace(0.5))
    assert schedule_of(facts) == from_facts(facts)


def test_a_loss_too_fine_for_an_accountant_counts_as_its_finest() -> None:
    fine = Fact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(10**10)), 1, 1, 1)
    assert schedule_of((fine,)) == Schedule.of({Pure(1e-9): 1})
    faint = Fact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(10**12)), 1, 1, 1)
    assert dict(schedule_of((faint,)).counts)[Gaussian(5e8)] == 1
    still = Fact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(1)), 0, 0, 1)
    assert schedule_of((still,)) == Schedule(())


@pytest.mark.parametrize(
    "fact",
    [
        Fact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(1)), 2000, 2000, 1),
        Fact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(4)), 10**6, 10**12, 1),
    ],
)
def test_a_loss_too_large_for_an_accountant_has_no_figure(fact: Fact) -> None:
    figures = dict(RunningAccountants(1e-6).epsilons((schedule_of((fact,)),)))
    assert set(figures.values()) == {math.inf}


def test_figures_are_those_of_the_accountants() -> None:
    patient = Schedule.of({A: 30, C: 20, Approximate(0.0, 2.0**-60): 30})
    figures = RunningAccountants(1e-6).epsilons((Schedule.of({A: 1}), patient))
    assert [name for name, _ in figures] == ["basic", "advanced", "zcdp", "zcdp_tight", "rdp", "gdp", "pld"]
    assert dict(figures)["pld"] == accountants.pld(patient, 1e-6)
    assert dict(figures)["advanced"] == accountants.advanced(patient, 1e-6)


def test_a_grown_loss_is_what_a_fresh_one_is() -> None:
    losses = RunningAccountants(1e-6)
    counts: Counter[Event] = Counter({Gaussian(40.0): 60, DiscreteLaplace(0.02): 60, Approximate(0.0, 2.0**-60): 60})
    kept = losses
    for step in range(4):
        counts += Counter({Gaussian(40.0): 5, DiscreteLaplace(0.02 + 0.001 * step): 5})
        patient = Schedule.of(counts)
        assert dict(kept.epsilons((patient,)))["pld"] == pytest.approx(accountants.pld(patient, 1e-6), rel=1e-3)
    (grown, _), *_ = losses._running
    losses.epsilons((patient + Schedule.of({C: 1}),))
    assert losses._running[0][0] is grown, "one more event starts nothing anew"
    losses.epsilons((patient + patient + patient,))
    assert losses._running[0][0] is not grown, "a grid for so many fewer events is too coarse"
    losses.epsilons((Schedule.of({Gaussian(40.0): 70, C: 70}),))
    assert losses._running[0][0].schedule.events == 140, "nor does one loss become another's"


def test_where_no_window_is_wide_enough_the_divergences_answer() -> None:
    patient = Schedule.of({Pure(30.0): 2000, Gaussian(1.0): 1})
    found = dict(RunningAccountants(1e-6).epsilons((patient,)))["pld"]
    assert math.isfinite(found)


def test_a_loss_that_nobody_would_grant_still_has_a_figure() -> None:
    patient = Schedule.of({Gaussian(0.05): 100, C: 1})
    assert dict(RunningAccountants(1e-6).epsilons((patient,)))["pld"] == accountants.pld(patient, 1e-6)


def test_without_delta_only_sums_have_a_figure() -> None:
    figures = dict(RunningAccountants(0.0).epsilons((Schedule.of({Pure(0.2): 100}),)))
    assert figures["basic"] == figures["advanced"] == figures["pld"] == pytest.approx(20.0)
    assert figures["rdp"] == math.inf


def test_many_kinds_of_events_are_counted_a_little_coarser_and_never_cheaper() -> None:
    few = Schedule.of({A: 1, C: 2})
    assert coarse(few) is few
    many = Schedule.of(
        {
            Laplace(0.5): 1,
            **{Gaussian(10.0 + 0.01 * number): 1 for number in range(100)},
            **{DiscreteLaplace(0.1 + 1e-5 * number): 1 for number in range(100)},
        }
    )
    merged = coarse(many)
    assert merged.events == many.events
    assert len(merged.counts) < 30
    exact, bound = (accountants.advanced(schedule, 1e-6) for schedule in (many, merged))
    assert exact <= bound <= 1.02 * exact


@given(st.floats(1e-3, 1e9), st.floats(1e-9, 1e3))
def test_coarser_events_are_never_weaker(z: float, epsilon: float) -> None:
    filling: dict[Event, int] = {Approximate(0.0, 1e-9 * number): 1 for number in range(1, 70)}
    kinds = [event for event, _ in coarse(Schedule.of({**filling, Gaussian(z): 1, Pure(epsilon): 1})).counts]
    assert all(event.z <= z for event in kinds if isinstance(event, Gaussian))
    assert all(event.epsilon >= epsilon for event in kinds if isinstance(event, Pure))


@pytest.mark.parametrize(
    ("epsilon", "delta", "patients"),
    [(0.5, 0.0, (2.0, 0.0)), (0.0, 1e-6, (0.0, 4e-6)), (0.0, 0.0, (0.0, 0.0)), (300.0, 1e-6, (1200.0, 1.0))],
)
def test_a_patient_with_four_events(epsilon: float, delta: float, patients: tuple[float, float]) -> None:
    assert of_many_events(epsilon, delta, events=4) == pytest.approx(patients)


@given(st.floats(1e-6, 20.0), st.integers(1, 30))
def test_a_patients_delta_is_the_formula_of_group_privacy(epsilon: float, events: int) -> None:
    whole, delta = of_many_events(epsilon, 1e-9, events=events)
    exact = 1e-9 * sum(math.exp(step * epsilon) for step in range(events))
    assert whole == events * epsilon
    assert delta == pytest.approx(min(1.0, exact), rel=1e-6)


def test_a_patient_has_an_event() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        of_many_events(1.0, 0.0, events=0)
