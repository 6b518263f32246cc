"""What is true of every schedule."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.composition import RunningLoss
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT
from wardround.privacy.accounting.domination import dominating_cost
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
from wardround.privacy.accounting.gaussian_dp import epsilon_of
from wardround.privacy.report.compare import compare

# Two grids of the same schedule differ by less than this, relative to the answer.
GRID = 2e-3

losses = st.sampled_from([0.01, 0.05, 0.3, 1.0])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Gaussian, st.sampled_from([2.0, 10.0, 50.0])),
    st.builds(Laplace, losses),
    st.builds(DiscreteLaplace, losses, st.sampled_from([1, 3])),
    st.builds(Pure, losses),
    st.builds(Approximate, losses, st.just(1e-11)),
    st.builds(DiscreteGaussian, st.sampled_from([4.0, 20.0]), st.just(1)),
    st.builds(SubsampledGaussian, st.sampled_from([0.01, 0.1]), st.sampled_from([0.8, 2.0])),
)
schedules = st.dictionaries(events, st.integers(1, 60), min_size=1, max_size=4).map(Schedule.of)
deltas = st.sampled_from([1e-3, 1e-6, 1e-8])


@settings(max_examples=40)
@given(schedule=schedules, delta=deltas)
def test_no_accountant_is_below_the_loss_distribution(schedule: Schedule, delta: float) -> None:
    found = {line.accountant: line.epsilon for line in compare(schedule, delta=delta)}
    for epsilon in found.values():
        assert found["pld"] <= epsilon * (1.0 + GRID) + 1e-6
    assert found["advanced"] <= found["basic"] * (1.0 + 1e-9)
    assert found["zcdp_tight"] <= found["zcdp"] * (1.0 + 1e-9)
    assert found["rdp"] <= found["zcdp_tight"] * (1.0 + 1e-9)


@settings(max_examples=20)
@given(schedule=schedules, delta=deltas, more=events)
def test_one_event_more_never_costs_less(schedule: Schedule, delta: float, more: Event) -> None:
    longer = schedule + Schedule.of({more: 1})
    before, after = (compare(each, delta=delta) for each in (schedule, longer))
    for first, second in zip(before, after, strict=True):
        slack = GRID if first.accountant in ("pld", "gdp") else 1e-9
        assert second.epsilon >= first.epsilon * (1.0 - slack) - 1e-6


@settings(max_examples=12)
@given(schedule=schedules, delta=deltas)
def test_a_wider_overlap_never_costs_less_in_any_accountant(schedule: Schedule, delta: float) -> None:
    tables = [compare(schedule, delta=delta, overlap=overlap) for overlap in (1, 2, 3)]
    for narrow, wide in pairwise(tables):
        for first, second in zip(narrow, wide, strict=True):
            assert second.epsilon >= first.epsilon * (1.0 - GRID) - 1e-6


@settings(max_examples=12)
@given(order=st.permutations([Gaussian(10.0), Pure(0.05), Laplace(0.3), SubsampledGaussian(0.1, 2.0), Pure(0.01)]))
def test_the_order_of_events_never_matters(order: list[Event]) -> None:
    running = RunningLoss(Schedule.of({order[0]: 1}), 1e-6)
    for event in order[1:]:
        running.add(event)
    whole = Schedule.of(dict.fromkeys(order, 1))
    assert running.schedule == whole
    assert abs(running.epsilon() - RunningLoss(whole, 1e-6).epsilon()) <= GRID * running.epsilon()


@settings(max_examples=20)
@given(schedule=schedules)
def test_a_dominated_block_never_costs_the_filter_less_than_it_loses(schedule: Schedule) -> None:
    slack, delta = 1e-10, 1e-6
    try:
        cost = dominating_cost(schedule, slack=slack)
    except ValueError:
        # Refused: then it must be far beyond anything a filter admits.
        assert accountants.pld(schedule, delta) > 10.0
        return
    by_filter = epsilon_of(delta - cost.slack / SLACK_UNIT, math.sqrt(cost.mu_squared / MU_UNIT))
    assert by_filter >= accountants.pld(schedule, delta) * (1.0 - GRID) - 1e-6
