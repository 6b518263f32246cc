"""A question brought together with the study: labels of CASE on the column's own values."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.analyst.asking.binding import settled
from wardround.analyst.sql.read import read
from wardround.federation.errors import QueryMistaken
from wardround.federation.study.study_file import parse_study

STUDY = parse_study(
    """
    name = "cardio"
    overlap = 1
    [budget]
    epsilon = 3.0
    delta = 1e-6
    [tables.t]
    unit_key = "id"
    max_rows_per_unit = 4
    [tables.t.columns]
    age  = { type = "integer", lower = 0, upper = 110 }
    sbp  = { type = "number", lower = 80, upper = 200, step = 0.1 }
    free = { type = "number" }
    code = { type = "category" }
    """
)


def case(text: str) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The edges and labels of a CASE, settled."""
    asked = settled(read(f"SELECT CASE {text} END AS g, COUNT(*) FROM t GROUP BY g"), STUDY)
    (grouping,) = asked.query.group_by
    return grouping.edges, dict(asked.view.labels).get(grouping.column, ())


@pytest.mark.parametrize(
    "text",
    [
        "WHEN age < 40 THEN 'y' WHEN age < 65 THEN 'm' ELSE 'o'",
        "WHEN age <= 39 THEN 'y' WHEN age <= 64 THEN 'm' ELSE 'o'",
        "WHEN age <= 39.5 THEN 'y' WHEN age < 64.1 THEN 'm' ELSE 'o'",
        "WHEN age BETWEEN 0 AND 39 THEN 'y' WHEN age BETWEEN 40 AND 64 THEN 'm' ELSE 'o'",
        "WHEN age BETWEEN 40 AND 64 THEN 'm' WHEN age > 64 THEN 'o' ELSE 'y'",
        "WHEN age > 64 THEN 'o' WHEN age > 39 THEN 'm' ELSE 'y'",
        "WHEN age BETWEEN 0 AND 39 THEN 'y' WHEN age BETWEEN 40 AND 64 THEN 'm' WHEN age <= 110 THEN 'o' ELSE 'no'",
    ],
)
def test_intervals_of_whole_numbers_are_one_question_however_they_are_written(text: str) -> None:
    assert case(text) == ((40.0, 65.0), ("y", "m", "o"))


def test_numbers_keep_the_edges_they_have() -> None:
    edges, labels = case("WHEN sbp < 120 THEN 'low' WHEN sbp < 140 THEN 'high' ELSE 'very high'")
    assert (edges, labels) == ((120.0, 140.0), ("low", "high", "very high"))
    # 139.95 is neither in the first nor in the second, so ELSE has three pieces.
    with pytest.raises(QueryMistaken, match=re.escape("calls two intervals of 'sbp' 'else' that do not touch")):
        case("WHEN sbp BETWEEN 90 AND 119.9 THEN 'low' WHEN sbp BETWEEN 120 AND 140 THEN 'high' ELSE 'else'")


def test_what_is_outside_the_bounds_is_empty() -> None:
    assert case("WHEN sbp BETWEEN 80 AND 120 THEN 'low' ELSE 'high'")[1] == ("low", "high")
    assert case("WHEN sbp >= 120 AND sbp < 250 THEN 'high' ELSE 'low'") == ((120.0,), ("low", "high"))
    with pytest.raises(QueryMistaken, match="do not touch"):
        case("WHEN free BETWEEN 80 AND 120 THEN 'low' ELSE 'high'")
    with pytest.raises(QueryMistaken, match="gives every value of 'age' the same label"):
        case("WHEN age > 110.5 AND age < 110.9 THEN 'x' ELSE 'y'")


def test_intervals_without_labels_of_their_own_stay_as_they_are() -> None:
    asked = read("SELECT WIDTH_BUCKET(age, 0, 200, 4) AS g, COUNT(*) FROM t GROUP BY g")
    assert settled(asked, STUDY) == asked


def test_an_unknown_table_or_column_is_named() -> None:
    for text in ("SELECT c, COUNT(*) FROM u GROUP BY c", "SELECT cod, COUNT(*) FROM t GROUP BY cod"):
        with pytest.raises(QueryMistaken, match="unknown"):
            settled(read(text), STUDY)


# --- Whatever a CASE says, a value is in the interval that has its label -------------------------------------------

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Test = tuple[str, Callable[[float], bool]]


def compared(sign: str, number: float) -> Test:
    return f"{sign} {number}", lambda value: OPERATORS[sign](value, number)


def conditions(column: str) -> st.SearchStrategy[Test]:
    """A condition on the column as text, and what it means."""
    numbers = st.integers(-4, 44).map(lambda half: half / 2)
    one = st.builds(compared, st.sampled_from(sorted(OPERATORS)), numbers).map(
        lambda test: (f"{column} {test[0]}", test[1])
    )
    both = st.tuples(one, one).map(
        lambda two: (f"{two[0][0]} AND {two[1][0]}", lambda x: two[0][1](x) and two[1][1](x))
    )
    between = st.tuples(numbers, numbers).map(
        lambda ends: (f"{column} BETWEEN {ends[0]} AND {ends[1]}", lambda x: ends[0] <= x <= ends[1])
    )
    return st.one_of(one, both, between)


SMALL = parse_study(
    """
    name = "small"
    overlap = 1
    [budget]
    epsilon = 3.0
    delta = 1e-6
    [tables.t]
    unit_key = "id"
    max_rows_per_unit = 1
    [tables.t.columns]
    whole = { type = "integer", lower = 0, upper = 20 }
    half  = { type = "number", lower = 0, upper = 20, step = 0.5 }
    """
)


@pytest.mark.parametrize(("column", "values"), [("whole", range(21)), ("half", [half / 2 for half in range(41)])])
@given(drawn=st.data())
def test_a_value_is_in_the_interval_that_its_case_says(
    column: str, values: Sequence[float], drawn: st.DataObject
) -> None:
    tests = drawn.draw(st.lists(conditions(column), min_size=1, max_size=4))
    labels = drawn.draw(st.lists(st.sampled_from("abcd"), min_size=len(tests) + 1, max_size=len(tests) + 1))
    branches = " ".join(f"WHEN {text} THEN '{label}'" for (text, _), label in zip(tests, labels, strict=False))
    text = f"SELECT CASE {branches} ELSE '{labels[-1]}' END AS g, COUNT(*) FROM t GROUP BY g"
    try:
        asked = settled(read(text), SMALL)
    except QueryMistaken:
        return
    (grouping,) = asked.query.group_by
    found = dict(asked.view.labels)[column]
    for value in values:
        says = next((label for (_, holds), label in zip(tests, labels, strict=False) if holds(value)), labels[-1])
        assert found[sum(1 for edge in grouping.edges if value >= edge)] == says
