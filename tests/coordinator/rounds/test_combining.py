"""Sums over sites are exact, error bars are those of the noise, and nothing that is no number comes out."""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from coordinator.planning.expected import expected_errors
from coordinator.planning.plans import plans_for
from coordinator.rounds.combining import combine, exact_sums, updates
from tests.coordinator.hospitals import PATIENTS, ask, study
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.plan import Plan, shape_of
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism

SITES = {"a": 1000, "b": 1000, "c": 1000}
EXACT = NoiseSetting(noiseless=True)
SITE = NoiseSetting()
GROUPED = Query(
    "encounters",
    (
        Aggregate(Statistic.COUNT),
        Aggregate(Statistic.SUM, "age"),
        Aggregate(Statistic.MEAN, "sbp"),
        Aggregate(Statistic.MEAN, "smoker"),
    ),
    None,
    (Grouping("diagnosis"), Grouping("smoker")),
)


def planned(query: Query, *, epsilon: float = 1.0, pure: bool = False) -> tuple[Plan, AnswerLayout, Study]:
    agreed = study(delta=0) if pure else study()
    plan = plans_for(ask(epsilon, query=query), agreed, SITES)[0]
    return plan, shape_of(plan, agreed), agreed


def mean_release(form: AnswerLayout, values: list[float]) -> np.ndarray:
    """The two-sided sums of one mean over exact values."""
    quantiser = form.parts[0].quantisers[0]
    levels = [round((Fraction(str(value)) - quantiser.origin) * quantiser.per_unit) for value in values]
    return np.array([sum(levels), len(levels) * quantiser.high - sum(levels)], dtype=np.int64)


def test_estimates_come_aggregate_by_aggregate_and_group_by_group() -> None:
    plan, form, _ = planned(GROUPED)
    estimates = combine(plan, form, [np.zeros(form.dimension, dtype=np.int64)], setting=EXACT)
    assert [(e.statistic, e.column) for e in estimates[::6]] == [
        ("count", None),
        ("sum", "age"),
        ("mean", "sbp"),
        ("mean", "smoker"),
    ]
    assert [e.group for e in estimates[:3]] == [
        (("diagnosis", "E11"), ("smoker", False)),
        (("diagnosis", "E11"), ("smoker", True)),
        (("diagnosis", "I10"), ("smoker", False)),
    ]
    assert len(estimates) == 24


def test_a_noiseless_mean_is_the_exact_mean_over_all_sites() -> None:
    plan, form, _ = planned(Query("encounters", (Aggregate(Statistic.MEAN, "sbp"),)))
    releases = [mean_release(form, [120.1, 130.2]), mean_release(form, []), mean_release(form, [99.9])]
    estimate = combine(plan, form, releases, setting=EXACT)[0]
    assert estimate.value == float((Fraction("120.1") + Fraction("130.2") + Fraction("99.9")) / 3)
    assert estimate.interval == (estimate.value, estimate.value)
    assert estimate.standard_error == 0


def test_a_noiseless_sum_and_count_are_exact() -> None:
    plan, form, _ = planned(Query("encounters", (Aggregate(Statistic.SUM, "sbp"), Aggregate(Statistic.COUNT))))
    per_unit = form.parts[0].quantisers[0].per_unit
    one = int(Fraction("120.1") * per_unit)
    estimates = combine(plan, form, [np.array([one, 64]), np.array([2 * one, 128])], setting=EXACT)
    assert [e.value for e in estimates] == [pytest.approx(360.3, rel=1e-15), 3.0]


def test_an_empty_group_is_the_whole_range_and_not_a_division_by_zero() -> None:
    plan, form, _ = planned(Query("encounters", (Aggregate(Statistic.MEAN, "sbp"),)))
    for setting in (EXACT, SITE):
        for total in ([0, 0], [-5, 2], [10**12, -(10**12)], [-(2**63), -(2**63)]):
            estimate = combine(plan, form, [np.array(total)], setting=setting)[0]
            assert (estimate.value, estimate.standard_error, estimate.interval) == (None, None, (80.0, 200.0))
            assert estimate.reason is NoEstimate.TOO_FEW


def test_totals_beyond_64_bits_are_added_exactly() -> None:
    plan, form, _ = planned(PATIENTS)
    top = np.array([2**63 - 1])
    estimate = combine(plan, form, [top, top, top], setting=EXACT)[0]
    assert estimate.value == 3 * (2**63 - 1) / 64


ends = st.sampled_from([0, 1, 2**61, 2**62, 2**63 - 1, -(2**61), -(2**62), -(2**63)])


@hypothesis.given(
    st.integers(0, 6).flatmap(
        lambda width: st.lists(
            st.lists(ends | st.integers(-(2**63), 2**63 - 1), min_size=width, max_size=width), min_size=1, max_size=5
        )
    )
)
def test_every_sum_is_exact_and_a_total_stays_within_64_bits(sent: list[list[int]]) -> None:
    releases = [Release("p", str(site), "2026-01-01", np.array(row, dtype=np.int64)) for site, row in enumerate(sent)]
    exact = [sum(column) for column in zip(*sent, strict=True)]
    assert exact_sums([release.values for release in releases]) == exact
    (update,) = updates(releases, by_site=False)
    within = [min(max(number, -(2**63)), 2**63 - 1) for number in exact]
    assert np.frombuffer(update.total, dtype="<i8").tolist() == within
    assert [release.values.tolist() for release in releases] == sent, "what was released is left as it is"


@hypothesis.given(
    cells=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=36, max_size=36),
    epsilon=st.sampled_from([0.001, 0.5, 3.0]),
    pure=st.booleans(),
    sites=st.integers(1, 3),
)
def test_whatever_sites_send_every_number_is_finite_and_inside_its_interval(
    cells: list[int], epsilon: float, pure: bool, sites: int
) -> None:
    plan, form, _ = planned(GROUPED, epsilon=epsilon, pure=pure)
    assert form.dimension == 36
    estimates = combine(plan, form, [np.array(cells, dtype=np.int64)] * sites, setting=SITE)
    for e in estimates:
        assert all(math.isfinite(end) for end in e.interval)
        bounds = {"sbp": (80.0, 200.0), "smoker": (0.0, 1.0)}
        low, high = bounds[e.column] if e.statistic == "mean" else (-math.inf, math.inf)
        assert low <= e.interval[0] <= e.interval[1] <= high
        if e.reason is not None:
            assert (e.value, e.standard_error, e.interval) == (None, None, (low, high))
            continue
        assert e.interval[0] <= e.value <= e.interval[1]
        assert 0 <= e.standard_error <= (high - low) / 2


def test_a_stored_release_of_another_length_breaks_an_invariant() -> None:
    plan, form, _ = planned(PATIENTS)
    for releases in ([], [np.zeros(2, dtype=np.int64)]):
        with pytest.raises(InvariantBroken):
            combine(plan, form, releases, setting=SITE)


def test_the_error_of_a_count_grows_with_the_root_of_the_sites_that_answered() -> None:
    plan, form, _ = planned(PATIENTS)
    one, four = (combine(plan, form, [np.zeros(1, dtype=np.int64)] * n, setting=SITE)[0] for n in (1, 4))
    assert four.standard_error == pytest.approx(2 * one.standard_error)
    assert one.standard_error == float(plan.scales[0]) / 64


def test_a_trusted_total_has_the_error_of_one_noise_and_says_so() -> None:
    plan, form, _ = planned(PATIENTS)
    setting = NoiseSetting(trusted_total=True)
    estimate = combine(plan, form, [np.zeros(1, dtype=np.int64)] * 4, setting=setting)[0]
    assert estimate.standard_error == float(plan.scales[0]) / 64
    assert expected_errors(plan, form, SITES, setting)[0].standard_error == pytest.approx(estimate.standard_error)
    assert setting.composition(overlap=1) == "trusted_total"


def seeded(plan: Plan, size: int, generator: np.random.Generator) -> np.ndarray:
    """Noise of the plan's law for one part, from a seed: tests only."""
    scale = float(plan.scales[0])
    if plan.mechanism is Mechanism.DISCRETE_GAUSSIAN:
        return np.rint(generator.normal(0.0, scale, size)).astype(np.int64)
    geometric = -math.expm1(-1.0 / scale)
    return generator.geometric(geometric, size) - generator.geometric(geometric, size)


def covered(estimate: Estimate, truth: float) -> bool:
    return estimate.interval[0] <= truth <= estimate.interval[1]


@pytest.mark.parametrize("pure", [False, True])
def test_intervals_of_a_count_cover_as_often_as_they_say(pure: bool) -> None:
    plan, form, _ = planned(PATIENTS, epsilon=0.5, pure=pure)
    one = form.parts[0].increment
    generator = np.random.default_rng(20260131)
    runs = 2000
    noise = seeded(plan, 3 * runs, generator).reshape(runs, 3)
    estimates = [
        combine(
            plan, form, [np.array([count * one + n]) for count, n in zip((1, 10, 100), row, strict=True)], setting=SITE
        )[0]
        for row in noise
    ]
    hits = sum(covered(estimate, 111.0) for estimate in estimates)
    assert 0.935 * runs <= hits <= 0.975 * runs
    spread = np.std([estimate.value for estimate in estimates])
    assert spread == pytest.approx(estimates[0].standard_error, rel=0.06)


@pytest.mark.parametrize(("patients", "least", "most"), [(3000, 0.935, 0.965), (60, 0.935, 1.0), (3, 0.935, 1.0)])
@pytest.mark.parametrize("pure", [False, True])
def test_intervals_of_a_mean_cover_as_often_as_they_say(patients: int, least: float, most: float, pure: bool) -> None:
    plan, form, _ = planned(Query("encounters", (Aggregate(Statistic.MEAN, "sbp"),)), epsilon=0.5, pure=pure)
    exact = mean_release(form, [131.2] * (patients // 3))
    generator = np.random.default_rng(7)
    runs = 1500
    noise = seeded(plan, runs * 6, generator).reshape(runs, 3, 2)
    estimates = [combine(plan, form, [exact + site for site in row], setting=SITE)[0] for row in noise]
    hits = sum(covered(estimate, 131.2) for estimate in estimates)
    assert least * runs <= hits <= most * runs
    if patients == 3000:
        errors = [estimate.value - 131.2 for estimate in estimates]
        typical = float(np.median([estimate.standard_error for estimate in estimates]))
        assert float(np.std(errors)) == pytest.approx(typical, rel=0.08)
