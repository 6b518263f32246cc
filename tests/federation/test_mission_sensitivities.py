"""The rows of sensitivity: what one patient, or one event, can change in each kind of question."""

import dataclasses
from fractions import Fraction

import pytest

from wardround.federation.forms.parts import Part
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study, Unit
from wardround.federation.study.study_file import parse_study
from wardround.privacy.budget.calibration import laplace_scale
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

VISITS = 5
STUDY = parse_study(f"""
name = "hospital"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.stays]
unit_key = "patient_id"
max_rows_per_unit = {VISITS}
[tables.stays.columns]
days     = {{ type = "integer", lower = 0, upper = 30 }}
sbp      = {{ type = "number", lower = 80, upper = 200, step = 0.1 }}
positive = {{ type = "boolean" }}
day      = {{ type = "category", values = ["mon", "tue", "wed"] }}
[tables.validation]
unit_key = "patient_id"
max_rows_per_unit = 1
[tables.validation.columns]
correct = {{ type = "boolean" }}
""")
EVENTS = dataclasses.replace(STUDY, unit=Unit.EVENT)


def part(statistic: Statistic, column: str | None, *, study: Study = STUDY, by: tuple[str, ...] = ()) -> Part:
    query = Query("stays", (Aggregate(statistic, column),), None, tuple(map(Grouping, by)))
    return shape(query, study, Mechanism.DISCRETE_LAPLACE).parts[0]


def natural(found: Part) -> Fraction:
    return found.l1_sensitivity * found.grid


def test_a_count_of_patients_moves_by_one_and_a_count_of_events_by_the_visits_that_count() -> None:
    assert natural(part(Statistic.COUNT, "patient_id")) == 1
    assert natural(part(Statistic.COUNT, None)) == VISITS
    assert natural(part(Statistic.COUNT, None, by=("day",))) == VISITS


def test_visits_and_days_in_hospital_for_an_event_and_for_a_patient() -> None:
    visits, days = (Statistic.COUNT, None), (Statistic.SUM, "days")
    assert [natural(part(*question, study=EVENTS)) for question in (visits, days)] == [1, 30]
    assert [natural(part(*question)) for question in (visits, days)] == [VISITS, 30 * VISITS]


def test_a_clipped_mean_is_two_sums_of_one_charge_and_no_number_of_patients_is_divided_by() -> None:
    mean = part(Statistic.MEAN, "sbp")
    # One record (A, K − A): the two sums together move by K, which is one in units of a record.
    assert mean.l1_sensitivity == mean.quantisers[0].high
    assert mean.l2_sensitivity_squared <= mean.quantisers[0].high ** 2
    assert mean.coordinates == 2


def test_a_sum_moves_by_its_bound_only_because_values_are_clamped_in_the_same_step() -> None:
    total = part(Statistic.SUM, "days", study=EVENTS)
    assert max(abs(total.quantisers[0].low), abs(total.quantisers[0].high)) == total.l1_sensitivity


def test_the_accuracy_of_a_released_model_is_a_mean_over_patients_that_moves_by_one_record() -> None:
    query = Query("validation", (Aggregate(Statistic.MEAN, "correct"),))
    accuracy = shape(query, STUDY, Mechanism.DISCRETE_LAPLACE).parts[0]
    assert accuracy.l1_sensitivity == accuracy.quantisers[0].high


def test_distinct_patients_by_a_category_move_in_as_many_groups_as_count() -> None:
    grouped = part(Statistic.COUNT, "patient_id", by=("day",))
    assert (grouped.l1_sensitivity, grouped.l2_sensitivity_squared) == (3, 3)


def test_noise_of_deviation_tau_on_a_sum_adds_tau_squared_over_n_squared_to_a_mean() -> None:
    n, epsilon = 500, 0.5
    mean = part(Statistic.MEAN, "sbp")
    scale = laplace_scale(epsilon=epsilon, l1_sensitivity=mean.l1_sensitivity, shares=Fraction(1), overlap=1)
    tau = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, scale).variance ** 0.5 / mean.quantisers[0].high
    assert tau == pytest.approx(2**0.5 / epsilon, rel=1e-6)
    assert (tau / n) ** 2 == pytest.approx(8 / n**2, rel=1e-6)
