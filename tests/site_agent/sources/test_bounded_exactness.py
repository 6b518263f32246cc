"""Totals against an independent computation in plain Python, row by row."""

from __future__ import annotations

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset
from tests.site_agent.sources.tables import (
    Row,
    dataset,
    form,
    natural,
    random_rows,
    study,
    totals,
    write_csv,
    write_parquet,
)
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

Open = Callable[[Sequence[Row]], Dataset]

EVENTS = Aggregate(Statistic.COUNT)
PATIENTS = Aggregate(Statistic.COUNT, "patient_id")
SUM = Aggregate(Statistic.SUM, "sbp")
MEAN = Aggregate(Statistic.MEAN, "sbp")
EVERY = (EVENTS, PATIENTS, SUM, MEAN)
DX = ("E11", "I10", "it's", "ü")


def clipped(row: Row) -> Fraction | None:
    value = row["sbp"]
    if not isinstance(value, float):
        return None
    return min(max(Fraction(str(value)), Fraction(80)), Fraction(200))


def test_where_nothing_is_cut_totals_are_the_plain_statistics(written: Open) -> None:
    rows = [row for row in random_rows(patients=40, rows=300, seed=1) if row["sbp"]]
    asked = form(Query("visits", EVERY, None, (Grouping("dx"),)), study(rows=10_000, groups=10_000))
    events, patients, total, mean = natural(written(rows), asked)
    for place, dx in enumerate(DX):
        mine = [row for row in rows if row["dx"] == dx]
        values = [clipped(row) for row in mine]
        means = defaultdict(list)
        for row, value in zip(mine, values, strict=True):
            means[row["patient_id"]].append(value)
        averages = [sum(kept) / len(kept) for kept in means.values()]
        assert events[place] == len(mine)
        assert patients[place] == len(means)
        assert total[place] == pytest.approx(float(sum(values)), abs=1e-9)
        assert mean[2 * place] == pytest.approx(float(sum(averages) - 80 * len(means)), abs=1e-4)
        assert mean[2 * place] + mean[2 * place + 1] == pytest.approx(120 * len(means), abs=1e-9)


def test_on_step_sums_and_means_are_exact_in_integers(written: Open) -> None:
    rows = [
        {"patient_id": f"p{place % 7}", "sbp": 80 + place / 10, "dx": "E11"}
        for place in (1, 2, 3, 4, 6, 8, 10, 33, 44, 1199, 1200)
    ]
    asked = form(Query("visits", (SUM, MEAN)), study(rows=6))
    source = written(rows)
    (total,), (above, below) = totals(source, asked)
    assert total * asked.parts[0].grid == sum(Fraction(str(row["sbp"])) for row in rows)
    by_patient = defaultdict(list)
    for row in rows:
        by_patient[row["patient_id"]].append(Fraction(str(row["sbp"])))
    exact = sum(sum(values) / len(values) - 80 for values in by_patient.values())
    assert above * asked.parts[1].grid == exact
    assert (above + below) * asked.parts[1].grid == 120 * len(by_patient)


def test_a_patient_counts_at_most_m_times_over_all_groups(written: Open) -> None:
    rows = random_rows(patients=10, rows=400, seed=2)
    asked = form(Query("visits", EVERY, None, (Grouping("dx"),)), study(rows=3, groups=2), Mechanism.DISCRETE_LAPLACE)
    whole = form(Query("visits", EVERY), study(rows=3, groups=2), Mechanism.DISCRETE_LAPLACE)
    source = written(rows)
    known = [row for row in rows if row["dx"] in DX]
    events, patients, total, mean = natural(source, asked)
    cells = {(row["patient_id"], row["dx"]) for row in known}
    assert sum(events) == sum(min(n, 3) for n in Counter(row["patient_id"] for row in known).values())
    assert sum(patients) == sum(min(n, 2) for n in Counter(patient for patient, _ in cells).values())
    assert sum(total) <= 3 * 10 * 200
    assert sum(mean) == pytest.approx(2 * 10 * 120)
    assert natural(source, whole)[0] == [30.0]
    assert natural(source, whole)[1] == [10.0]


def test_the_choice_follows_the_key_and_not_the_order_of_the_file(tmp_path: Path) -> None:
    rows = random_rows(patients=20, rows=600, seed=3)
    asked = form(Query("visits", EVERY, None, (Grouping("dx"),)), study())
    first = totals(dataset(write_csv(tmp_path / "a.csv", rows)), asked)
    again = totals(dataset(write_csv(tmp_path / "b.csv", rows[::-1])), asked)
    other = totals(dataset(write_csv(tmp_path / "a.csv", rows), key=bytes(32)), asked)
    assert first == again
    assert first != other


def test_the_choice_is_even_among_a_patients_rows(tmp_path: Path) -> None:
    rows = [
        {"patient_id": f"p{patient}", "dx": "I10" if place else "E11"} for patient in range(4000) for place in range(10)
    ]
    asked = form(Query("visits", (EVENTS,), None, (Grouping("dx"),)), study(rows=4), Mechanism.DISCRETE_LAPLACE)
    ((rare, usual, *_),) = totals(dataset(write_parquet(tmp_path / "a.parquet", rows)), asked)
    assert rare + usual == 16_000
    # Binomial(4000, 0.4): six standard deviations are 186.
    assert abs(rare - 1600) < 186


def test_both_formats_give_the_same_totals(tmp_path: Path) -> None:
    rows = random_rows(patients=30, rows=500, seed=4)
    asked = form(Query("visits", EVERY, None, (Grouping("dx"), Grouping("sex"), Grouping("ward"))), study())
    one = totals(dataset(write_csv(tmp_path / "a.csv", rows)), asked)
    two = totals(dataset(write_parquet(tmp_path / "a.parquet", rows)), asked)
    assert one == two
    assert any(any(part) for part in one)


def test_several_group_columns_are_laid_out_as_the_shape_says(written: Open) -> None:
    rows = random_rows(patients=30, rows=500, seed=5)
    asked = form(
        Query("visits", (EVENTS,), None, (Grouping("ward"), Grouping("dx"), Grouping("sex"))),
        study(rows=10_000),
        Mechanism.DISCRETE_LAPLACE,
    )
    counted = Counter((row["ward"], row["dx"], row["sex"]) for row in rows)
    assert totals(written(rows), asked)[0] == [counted[key] for key in asked.group_keys]


def test_events_as_units_are_not_capped(written: Open) -> None:
    rows = random_rows(patients=5, rows=400, seed=6)
    asked = form(
        Query("visits", EVERY, None, (Grouping("dx"),)),
        study(unit="event", rows=1, groups=1),
        Mechanism.DISCRETE_LAPLACE,
    )
    events, patients, total, mean = natural(written(rows), asked)
    for place, dx in enumerate(DX):
        mine = [row for row in rows if row["dx"] == dx]
        values = [clipped(row) for row in mine]
        assert events[place] == len(mine)
        assert patients[place] == len({row["patient_id"] for row in mine})
        assert total[place] == pytest.approx(float(sum(values)), abs=1e-9)
        assert mean[2 * place] == pytest.approx(float(sum(values) - 80 * len(values)), abs=1e-4)


def test_a_bound_below_zero_clips_on_both_sides(written: Open) -> None:
    values = (-1e308, -50.0, -3.25, -0.0, 0.0, 20.0, 20.5, 1e308)
    rows = [{"patient_id": f"p{place}", "gain": value} for place, value in enumerate(values)]
    asked = form(Query("visits", (Aggregate(Statistic.SUM, "gain"),)), study())
    assert natural(written(rows), asked) == [[-50 - 50 - 3.25 + 20 + 20 + 20]]


def test_booleans_can_be_added_and_averaged(written: Open) -> None:
    rows = [{"patient_id": f"p{place}", "sex": value} for place, value in enumerate([True, True, False, None])]
    asked = form(Query("visits", (Aggregate(Statistic.SUM, "sex"), Aggregate(Statistic.MEAN, "sex"))), study())
    assert natural(written(rows), asked) == [[2.0], [2.0, 1.0]]


# --- The cohort -------------------------------------------------------------------------------------------

AGE, SBP = "age", "sbp"
DAY = datetime.date(2024, 7, 1)


def three_valued(term: Expression, row: Row) -> bool | None:
    """SQL's logic, written down again."""
    match term:
        case Comparison(name, operator, value):
            held = held_value(row, name)
            if held is None:
                return None
            return {
                Operator.EQUAL: held == value,
                Operator.UNEQUAL: held != value,
                Operator.LESS: isinstance(held, str) or held < value,
                Operator.LESS_OR_EQUAL: isinstance(held, str) or held <= value,
                Operator.GREATER: isinstance(held, str) or held > value,
                Operator.GREATER_OR_EQUAL: isinstance(held, str) or held >= value,
            }[operator]
        case Within(name, values):
            held = held_value(row, name)
            return None if held is None else held in values
        case Between(name, lower, upper):
            held = held_value(row, name)
            return None if held is None else lower <= held <= upper
        case IsNull(name):
            return held_value(row, name) is None
        case Not(inner):
            decided = three_valued(inner, row)
            return None if decided is None else not decided
        case And(terms):
            outcomes = [three_valued(inner, row) for inner in terms]
            return False if False in outcomes else None if None in outcomes else True
        case Or(terms):
            outcomes = [three_valued(inner, row) for inner in terms]
            return True if True in outcomes else None if None in outcomes else False


def held_value(row: Row, name: str) -> object:
    value = row.get(name)
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    return 7.0 if value is None and name == "cost" else value


COHORTS: list[Expression] = [
    Comparison(AGE, Operator.GREATER_OR_EQUAL, 40),
    Comparison(AGE, Operator.LESS, 40.5),
    Comparison(AGE, Operator.EQUAL, 2**53 + 1),
    Comparison(SBP, Operator.GREATER_OR_EQUAL, 40),
    Comparison(SBP, Operator.LESS_OR_EQUAL, 120.1),
    Comparison("dx", Operator.EQUAL, "it's"),
    Comparison("dx", Operator.UNEQUAL, "E11"),
    Comparison("sex", Operator.EQUAL, True),
    Comparison("sex", Operator.UNEQUAL, True),
    Comparison("seen", Operator.GREATER, DAY),
    Comparison("seen", Operator.LESS_OR_EQUAL, datetime.date(9999, 12, 31)),
    Comparison("cost", Operator.EQUAL, 7),
    IsNull("cost"),
    IsNull("sbp"),
    IsNull("dx"),
    Not(IsNull("sex")),
    Not(Comparison("sex", Operator.EQUAL, True)),
    Within(AGE, (1, 2, 3, 50, 2.5)),
    Within("dx", ("E11", "ü")),
    Within("seen", (DAY,)),
    Between(SBP, 100, 140),
    Between("seen", DAY, datetime.date(2025, 1, 1)),
    Not(Between(AGE, 30, 60)),
    Not(And((Comparison("sex", Operator.EQUAL, True), Comparison(AGE, Operator.GREATER, 50)))),
    Or((And((Comparison("sex", Operator.EQUAL, True), IsNull("dx"))), Not(Comparison(SBP, Operator.LESS, 90)))),
    And((Or((IsNull("dx"), Comparison(AGE, Operator.LESS, 30))), Not(Or((IsNull("sex"), IsNull(SBP)))))),
]


@pytest.mark.parametrize("place", range(len(COHORTS)))
def test_a_cohort_follows_three_valued_logic(written: Open, place: int) -> None:
    rows = random_rows(patients=50, rows=150, seed=7)
    nasty = (math.nan, math.inf, -math.inf, None)
    rows += [{"patient_id": "n", "sbp": value, "age": 2**53 + 1} for value in nasty]
    asked = form(Query("visits", (EVENTS,), COHORTS[place]), study(unit="event"), Mechanism.DISCRETE_LAPLACE)
    cohort = asked.query.cohort
    assert cohort is not None
    assert totals(written(rows), asked) == [[sum(three_valued(cohort, row) is True for row in rows)]]
