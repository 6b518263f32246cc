"""SQL that is read, and the words it becomes."""

from __future__ import annotations

import datetime

import pytest

from wardround.analyst.sql.read import condition, parse
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic

EVENTS = Aggregate(Statistic.COUNT)
OLD = Comparison("age", Operator.GREATER_OR_EQUAL, 40)
DAY = datetime.date(2026, 1, 31)


def test_the_question_of_the_readme_becomes_words() -> None:
    text = "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters WHERE age >= 40 GROUP BY diagnosis"
    assert parse(text) == Query("encounters", (EVENTS, Aggregate(Statistic.MEAN, "sbp")), OLD, (Grouping("diagnosis"),))


@pytest.mark.parametrize(
    ("listed", "aggregates"),
    [
        ("COUNT(*)", (EVENTS,)),
        ("count( * )", (EVENTS,)),
        ("COUNT(DISTINCT patient_id)", (Aggregate(Statistic.COUNT, "patient_id"),)),
        ("COUNT(DISTINCT(patient_id))", (Aggregate(Statistic.COUNT, "patient_id"),)),
        ("SUM(cost)", (Aggregate(Statistic.SUM, "cost"),)),
        ("AVG(sbp)", (Aggregate(Statistic.MEAN, "sbp"),)),
        ("avg(sbp) AS pressure", (Aggregate(Statistic.MEAN, "sbp"),)),
        ("avg(sbp) pressure", (Aggregate(Statistic.MEAN, "sbp"),)),
        ("(AVG(sbp))", (Aggregate(Statistic.MEAN, "sbp"),)),
        ('AVG("sbp")', (Aggregate(Statistic.MEAN, "sbp"),)),
        ("AVG(encounters.sbp)", (Aggregate(Statistic.MEAN, "sbp"),)),
        ("SUM(cost), COUNT(*)", (Aggregate(Statistic.SUM, "cost"), EVENTS)),
        ("ALL COUNT(*)", (EVENTS,)),
    ],
)
def test_an_aggregate_is_read(listed: str, aggregates: tuple[Aggregate, ...]) -> None:
    assert parse(f"SELECT {listed} FROM encounters") == Query("encounters", aggregates)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age = 40", Comparison("age", Operator.EQUAL, 40)),
        ("age == 40", Comparison("age", Operator.EQUAL, 40)),
        ("age <> 40", Comparison("age", Operator.UNEQUAL, 40)),
        ("age != 40", Comparison("age", Operator.UNEQUAL, 40)),
        ("age < 40", Comparison("age", Operator.LESS, 40)),
        ("age <= 40", Comparison("age", Operator.LESS_OR_EQUAL, 40)),
        ("age > 40", Comparison("age", Operator.GREATER, 40)),
        ("age >= 40", OLD),
        ("40 = age", Comparison("age", Operator.EQUAL, 40)),
        ("40 <> age", Comparison("age", Operator.UNEQUAL, 40)),
        ("40 > age", Comparison("age", Operator.LESS, 40)),
        ("40 >= age", Comparison("age", Operator.LESS_OR_EQUAL, 40)),
        ("40 < age", Comparison("age", Operator.GREATER, 40)),
        ("40 <= age", OLD),
        ("((age)) >= (40)", OLD),
        ("age >= +40", OLD),
        ("base_excess < -2", Comparison("base_excess", Operator.LESS, -2)),
        ("base_excess < - 2.5", Comparison("base_excess", Operator.LESS, -2.5)),
        ("base_excess < -(-2)", Comparison("base_excess", Operator.LESS, 2)),
        ("sbp > 1.5e2", Comparison("sbp", Operator.GREATER, 150.0)),
        ("sbp > .5", Comparison("sbp", Operator.GREATER, 0.5)),
        ("sbp > 9223372036854775807", Comparison("sbp", Operator.GREATER, 2**63 - 1)),
        ("diagnosis = 'I10'", Comparison("diagnosis", Operator.EQUAL, "I10")),
        ("diagnosis = 'it''s'", Comparison("diagnosis", Operator.EQUAL, "it's")),
        ("diagnosis = ''", Comparison("diagnosis", Operator.EQUAL, "")),
        ("diagnosis = 'a -- b'", Comparison("diagnosis", Operator.EQUAL, "a -- b")),
        ("diagnosis = 'Ärger'", Comparison("diagnosis", Operator.EQUAL, "Ärger")),
        ("smoker = TRUE", Comparison("smoker", Operator.EQUAL, True)),
        ("smoker = false", Comparison("smoker", Operator.EQUAL, False)),
        ("smoker", Comparison("smoker", Operator.EQUAL, True)),
        ("NOT smoker", Not(Comparison("smoker", Operator.EQUAL, True))),
        ("admitted >= DATE '2026-01-31'", Comparison("admitted", Operator.GREATER_OR_EQUAL, DAY)),
        ("DATE '2026-01-31' <= admitted", Comparison("admitted", Operator.GREATER_OR_EQUAL, DAY)),
        ("admitted >= CAST('2026-01-31' AS DATE)", Comparison("admitted", Operator.GREATER_OR_EQUAL, DAY)),
        ("admitted = '2026-01-31'", Comparison("admitted", Operator.EQUAL, "2026-01-31")),
        ("age IN (40)", Within("age", (40,))),
        ("diagnosis IN ('E11', 'I10')", Within("diagnosis", ("E11", "I10"))),
        ("diagnosis NOT IN ('E11')", Not(Within("diagnosis", ("E11",)))),
        ("NOT diagnosis IN ('E11')", Not(Within("diagnosis", ("E11",)))),
        ("age BETWEEN 40 AND 50", Between("age", 40, 50)),
        ("age NOT BETWEEN -1 AND 50", Not(Between("age", -1, 50))),
        ("admitted BETWEEN DATE '2026-01-31' AND '2026-02-01'", Between("admitted", DAY, "2026-02-01")),
        ("sbp IS NULL", IsNull("sbp")),
        ("sbp IS NOT NULL", Not(IsNull("sbp"))),
        ("NOT sbp IS NULL", Not(IsNull("sbp"))),
        ("age >= 40 AND smoker", And((OLD, Comparison("smoker", Operator.EQUAL, True)))),
        ("age >= 40 OR sbp IS NULL", Or((OLD, IsNull("sbp")))),
        ("NOT age = 1 AND age >= 40", And((Not(Comparison("age", Operator.EQUAL, 1)), OLD))),
        ("age BETWEEN 1 AND 2 AND age >= 40", And((Between("age", 1, 2), OLD))),
        (
            "age >= 40 OR smoker AND sbp IS NULL",
            Or((OLD, And((Comparison("smoker", Operator.EQUAL, True), IsNull("sbp"))))),
        ),
        (
            "(age >= 40 OR smoker) AND sbp IS NULL",
            And((Or((OLD, Comparison("smoker", Operator.EQUAL, True))), IsNull("sbp"))),
        ),
        ("NOT (age >= 40 OR sbp IS NULL)", Not(Or((OLD, IsNull("sbp"))))),
        ("NOT NOT age >= 40", Not(Not(OLD))),
    ],
)
def test_a_condition_is_read(text: str, expected: Expression) -> None:
    asked = parse(f"SELECT COUNT(*) FROM encounters WHERE {text}")
    assert asked == Query("encounters", (EVENTS,), expected)
    assert condition(text) == expected
    # 1 == True == 1.0 in Python; the types matter to the study.
    assert repr(asked.cohort) == repr(expected)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM encounters;",
        ";; SELECT COUNT(*) FROM encounters ;;",
        "select count(*) from encounters",
        "SELECT COUNT(*) -- how many\nFROM encounters",
        "/* the whole */ SELECT COUNT(*) FROM /* table */ encounters",
        "SELECT COUNT(*) FROM encounters; -- done",
        'SELECT COUNT(*) FROM "encounters"',
        "SELECT COUNT(*) FROM encounters AS e",
        "SELECT COUNT(*) AS n FROM encounters e",
        "\n\tSELECT\n\tCOUNT(*)\nFROM\nencounters\n",
    ],
)
def test_writing_does_not_change_a_question(text: str) -> None:
    assert parse(text) == Query("encounters", (EVENTS,))


def test_chains_are_one_term_however_they_are_grouped() -> None:
    a, b, c = IsNull("a"), IsNull("b"), IsNull("c")
    for text in ("a IS NULL AND b IS NULL AND c IS NULL", "a IS NULL AND (b IS NULL AND (c IS NULL))"):
        assert condition(text) == And((a, b, c))
    for text in ("a IS NULL OR b IS NULL OR c IS NULL", "(a IS NULL OR (b IS NULL)) OR c IS NULL"):
        assert condition(text) == Or((a, b, c))


def test_names_keep_their_capitals() -> None:
    text = 'SELECT Diagnosis, AVG("SBP") FROM Encounters WHERE Age > 1 GROUP BY Diagnosis'
    asked = parse(text)
    assert (asked.table, asked.group_by) == ("Encounters", (Grouping("Diagnosis"),))
    assert asked.aggregates == (Aggregate(Statistic.MEAN, "SBP"),)
    assert asked.cohort == Comparison("Age", Operator.GREATER, 1)


def test_prefixes_of_the_one_table_are_dropped() -> None:
    with_prefix = "SELECT e.diagnosis, AVG(e.sbp) FROM encounters e WHERE e.age >= 40 GROUP BY e.diagnosis"
    without = "SELECT diagnosis, AVG(sbp) FROM encounters WHERE age >= 40 GROUP BY diagnosis"
    assert parse(with_prefix) == parse(without)


def test_group_columns_come_in_the_order_of_group_by() -> None:
    asked = parse("SELECT COUNT(*), sex, diagnosis AS d FROM encounters GROUP BY diagnosis, sex")
    assert asked.group_by == (Grouping("diagnosis"), Grouping("sex"))


def test_columns_may_have_the_names_of_types_and_soft_keywords() -> None:
    text = (
        "SELECT month, AVG(value) FROM visits WHERE date >= '2026-01-01' AND year > 2020 AND type = 'a' GROUP BY month"
    )
    asked = parse(text)
    assert asked.group_by == (Grouping("month"),)
    assert asked.aggregates == (Aggregate(Statistic.MEAN, "value"),)


def test_a_long_chain_of_conditions_is_read_without_recursion() -> None:
    asked = condition(" AND ".join(f"age <> {number}" for number in range(256)))
    assert isinstance(asked, And)
    assert len(asked.terms) == 256
