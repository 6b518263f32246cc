"""Shapes, prices and plan ids: what both sides derive and nobody sends."""

import dataclasses
import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.federation.errors import PlanRefused, QueryMistaken
from wardround.federation.forms.parts import Part, Records, Sums
from wardround.federation.plan.layout import shape
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.sql_text import query_text
from wardround.federation.plan.typed import typed
from wardround.federation.question.cohort import And, Between, Comparison, IsNull, Not, Operator, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

STUDY = parse_study("""
name = "cardio"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.encounters.columns]
age       = { type = "integer", lower = 0, upper = 110 }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
score     = { type = "number", lower = -5, upper = 3 }
free      = { type = "number" }
seen      = { type = "date" }
ill       = { type = "boolean" }
diagnosis = { type = "category", values = ["E11", "I10", "C50", "I25"] }
""")
COUNT = Aggregate(Statistic.COUNT)
PATIENTS = Aggregate(Statistic.COUNT, "patient_id")
GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE


def only_part(
    aggregate: Aggregate, *, group_by: tuple[Grouping, ...] = (), mechanism: Mechanism = LAPLACE, study: Study = STUDY
) -> Part:
    form = shape(Query("encounters", (aggregate,), None, group_by), study, mechanism)
    return form.parts[0]


def test_sensitivities_in_the_patient_unit() -> None:
    assert (only_part(COUNT).l1_sensitivity, only_part(COUNT).l2_sensitivity_squared) == (4, 16)
    assert only_part(PATIENTS).l1_sensitivity == 1
    grouped = only_part(PATIENTS, group_by=(Grouping("diagnosis"),))
    assert (grouped.l1_sensitivity, grouped.l2_sensitivity_squared, grouped.dimension) == (4, 4, 4)
    total = only_part(Aggregate(Statistic.SUM, "sbp"))
    assert total.l1_sensitivity * total.grid == 4 * 200
    mean = only_part(Aggregate(Statistic.MEAN, "sbp"), group_by=(Grouping("ill"),))
    assert mean.l1_sensitivity == 2 * mean.quantisers[0].high
    assert mean.l2_sensitivity_squared == 2 * mean.quantisers[0].high ** 2
    assert (mean.records, mean.sums, mean.dimension) == (Records.MEANS, Sums.COUNTED_LEVELS, 4)


def test_sensitivities_in_the_event_unit_know_no_patient_cap() -> None:
    study = dataclasses.replace(STUDY, unit=type(STUDY.unit).EVENT)
    assert only_part(COUNT, study=study).l1_sensitivity == 1
    assert only_part(PATIENTS, group_by=(Grouping("diagnosis"),), study=study).l2_sensitivity_squared == 1
    total = only_part(Aggregate(Statistic.SUM, "sbp"), study=study)
    assert total.l1_sensitivity * total.grid == 200


def test_a_gaussian_count_is_on_a_finer_grid_and_costs_the_same() -> None:
    fine = only_part(COUNT, mechanism=GAUSSIAN)
    assert fine.grid == Fraction(1, 64)
    assert fine.l1_sensitivity * fine.grid == only_part(COUNT).l1_sensitivity


@given(rows=st.integers(1, 12), step=st.sampled_from(["0.1", "0.5", "1", "0.01", "0.3"]), data=st.data())
def test_a_mean_of_a_few_on_step_values_is_itself_on_the_grid(rows: int, step: str, data: st.DataObject) -> None:
    text = f"""
name = "x"
[budget]
epsilon = 1
delta = 1e-6
[tables.t]
unit_key = "p"
max_rows_per_unit = {rows}
[tables.t.columns]
v = {{ type = "number", lower = 0, upper = 30, step = {step} }}
"""
    study = parse_study(text)
    part = shape(Query("t", (Aggregate(Statistic.MEAN, "v"),)), study, GAUSSIAN).parts[0]
    values = data.draw(st.lists(st.integers(0, int(30 / Fraction(step))), min_size=1, max_size=rows))
    mean = sum(Fraction(step) * v for v in values) / len(values)
    level = mean * part.quantisers[0].per_unit
    assert level.denominator == 1
    assert part.quantisers[0].high <= 2**32


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query("encounter", (COUNT,)), "unknown table 'encounter'; did you mean 'encounters'?"),
        (
            Query("encounters", (Aggregate(Statistic.MEAN, "spb"),)),
            "unknown column 'spb' in table 'encounters'; did you",
        ),
        (Query("encounters", (Aggregate(Statistic.SUM, "free"),)), "declares no bounds for 'free'"),
        (Query("encounters", (Aggregate(Statistic.SUM, "diagnosis"),)), "needs numbers"),
        (Query("encounters", (Aggregate(Statistic.COUNT, "age"),)), "ask COUNT(*) with GROUP BY age"),
        (Query("encounters", ()), "1 to 32 aggregates"),
        (Query("encounters", (COUNT, COUNT)), "each aggregate once"),
        (Query("encounters", (COUNT,), None, (Grouping("sbp"),)), "no public list of values"),
        (Query("encounters", (COUNT,), None, (Grouping("ill"), Grouping("ill"))), "different columns"),
        (Query("encounters", (COUNT,), Comparison("patient_id", Operator.EQUAL, "7")), "is the unit key"),
        (Query("encounters", (COUNT,), Comparison("diagnosis", Operator.EQUAL, "E12")), "has no value 'E12'"),
        (Query("encounters", (COUNT,), Comparison("diagnosis", Operator.LESS, "E11")), "has no order"),
        (
            Query("encounters", (COUNT,), Comparison("age", Operator.EQUAL, "old")),
            "its type is integer; give a whole number",
        ),
        (Query("encounters", (COUNT,), Comparison("age", Operator.EQUAL, float("nan"))), "not finite"),
        (Query("encounters", (COUNT,), Comparison("age", Operator.EQUAL, True)), "give a whole number"),
        (Query("encounters", (COUNT,), Comparison("seen", Operator.LESS, "yesterday")), "a date such as"),
        (Query("encounters", (COUNT,), Within("age", ())), "selects nothing"),
        (Query("encounters", (COUNT,), Within("age", tuple(range(2000)))), "at most 1024 values"),
        (Query("encounters", (COUNT,), And(())), "at least one term"),
    ],
)
def test_a_question_the_study_does_not_allow_is_one_sentence(query: Query, said: str) -> None:
    with pytest.raises(QueryMistaken) as caught:
        typed(query, STUDY)
    assert said in caught.value.message


def test_a_cohort_nested_beyond_reason_is_refused_without_recursion() -> None:
    term = IsNull("age")
    for _ in range(100_000):
        term = Not(term)
    with pytest.raises(QueryMistaken, match="nested at most"):
        typed(Query("encounters", (COUNT,), term), STUDY)


def test_equal_questions_are_one_plan() -> None:
    ways = [
        Query("encounters", (COUNT,), Within("age", (40, 50.0))),
        Query("encounters", (COUNT,), Within("age", (50, 40, 40))),
    ]
    assert len({typed(way, STUDY) for way in ways}) == 1
    dates = [Comparison("seen", Operator.LESS, "2026-01-31"), Comparison("seen", Operator.LESS, "20260131")]
    assert len({typed(Query("encounters", (COUNT,), term), STUDY) for term in dates}) == 1


def a_plan() -> Plan:
    query = Query(
        "encounters", (COUNT, Aggregate(Statistic.MEAN, "sbp")), Between("age", 40, 60), (Grouping("diagnosis"),)
    )
    return Plan(STUDY.study_hash, typed(query, STUDY), GAUSSIAN, (Fraction(1000), Fraction(2**36)), ("a", "b"))


def test_near_identical_plans_are_different_plans_and_each_has_a_price() -> None:
    plan = a_plan()
    query = plan.query
    others = [
        dataclasses.replace(plan, scales=(Fraction(1001), Fraction(2**36))),
        dataclasses.replace(plan, scales=(Fraction(1000) + Fraction(1, 1024), Fraction(2**36))),
        dataclasses.replace(plan, participants=("a",)),
        dataclasses.replace(plan, nonce="00"),
        dataclasses.replace(plan, query=dataclasses.replace(query, cohort=Between("age", 40, 61))),
        dataclasses.replace(plan, query=dataclasses.replace(query, cohort=Not(Not(Between("age", 40, 60))))),
        dataclasses.replace(plan, query=dataclasses.replace(query, aggregates=query.aggregates[::-1])),
        dataclasses.replace(plan, query=dataclasses.replace(query, group_by=())),
    ]
    assert len({p.plan_id for p in [plan, *others]}) == len(others) + 1
    assert all(price(p, STUDY).cost.mu_squared > 0 for p in others)


def test_a_plan_about_another_study_or_out_of_form_is_refused() -> None:
    plan = a_plan()
    widened = dataclasses.replace(STUDY, overlap=2)
    untyped = dataclasses.replace(plan.query, cohort=Between("age", 40.0, 60))
    for bad, study in [
        (plan, widened),
        (dataclasses.replace(plan, query=untyped), STUDY),
        (dataclasses.replace(plan, scales=plan.scales[:1]), STUDY),
        (dataclasses.replace(plan, scales=(Fraction(1), Fraction(1))), STUDY),
    ]:
        with pytest.raises(PlanRefused):
            price(bad, study)


def test_the_price_is_what_the_mathematics_says() -> None:
    query = Query("encounters", (PATIENTS,))
    plan = Plan(STUDY.study_hash, query, GAUSSIAN, (Fraction(64 * 50),), ("a",))
    mu_squared = price(plan, STUDY).cost.mu_squared / 2**40
    assert mu_squared == pytest.approx(1 / 2500, rel=1e-6)
    assert mu_squared >= 1 / 2500


def test_group_keys_are_the_public_product_in_order() -> None:
    form = shape(Query("encounters", (COUNT,), None, (Grouping("ill"), Grouping("diagnosis"))), STUDY, GAUSSIAN)
    assert form.group_keys == tuple(itertools.product((False, True), ("E11", "I10", "C50", "I25")))
    assert form.dimension == 8


def test_a_query_reads_as_the_sql_it_was() -> None:
    assert query_text(a_plan().query) == (
        "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters WHERE age BETWEEN 40 AND 60 GROUP BY diagnosis"
    )
