"""A question brought together with the study: labels of CASE on the column's own values."""

from __future__ import annotations

import re

import pytest

from wardround.analyst.settling import settled
from wardround.analyst.sql import read
from wardround.federation.errors import QueryMistaken
from wardround.federation.study_file import parse_study

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
