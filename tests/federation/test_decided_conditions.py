"""Conditions that the study's bounds decide are told; those that leave out or keep some value are not."""

from __future__ import annotations

import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.analyst.sql.read import condition
from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.decided import require_undecided
from wardround.federation.question.cohort import And, Comparison, Expression, Operator, Or
from wardround.federation.question.typed_cohort import typed_cohort
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
    n    = { type = "integer", lower = 0, upper = 3 }
    x    = { type = "number", lower = 80, upper = 200, step = 0.1 }
    free = { type = "number" }
    day  = { type = "date", lower = "2025-01-01", upper = "2025-06-30" }
    dx   = { type = "category", values = ["E11", "I10"] }
    """
)
TABLE = STUDY.table("t")
SIGNS = {
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def told(cohort: Expression) -> str | None:
    try:
        require_undecided(typed_cohort(cohort, TABLE), TABLE)
    except QueryMistaken as mistake:
        return mistake.message
    return None


@pytest.mark.parametrize(
    "text",
    [
        "n >= 0",
        "n <= 3",
        "n < 4",
        "n > -1",
        "n BETWEEN 0 AND 3",
        "n BETWEEN 2 AND 40",
        "n IN (2, 40)",
        "x <= 200",
        "x >= 80",
        "x > 199.95",
        "free > 1e9",
        "day < '2025-07-01'",
        "day >= '2025-06-30'",
        "dx = 'E11' OR dx = 'I10'",
        "dx <> 'E11' AND dx <> 'I10'",
        "dx = 'E11' AND dx <> 'I10'",
        "n > 1 AND n < 3",
        "x > 100 AND x < 100.1",
        "n <> 1 OR dx <> 'E11'",
        "free > 5 OR free < 2",
    ],
)
def test_a_condition_that_decides_something_is_asked(text: str) -> None:
    assert told(condition(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "n > 3",
        "n = 1.5",
        "n > 1 AND n < 2",
        "NOT n > 3",
        "dx = 'E11' OR n = 9",
        "x < 80",
        "x = 200.5",
        "x < 200.5",
        "x BETWEEN 150 AND 100",
        "free BETWEEN 2 AND 1",
        "free > 5 AND free < 2",
        "day > '2025-06-30'",
        "day < '2025-07-02'",
        "n NOT IN (7, 8)",
        "dx IN ('E11') AND dx = 'I10'",
        "dx <> 'E11' OR dx <> 'I10'",
    ],
)
def test_a_condition_that_is_decided_already_is_told(text: str) -> None:
    sentence = told(condition(text))
    assert sentence is not None
    assert sentence.endswith(".")


comparisons = st.builds(Comparison, st.just("n"), st.sampled_from(Operator), st.integers(-2, 6))


@given(st.lists(comparisons, min_size=1, max_size=3))
def test_what_some_value_meets_and_some_value_does_not_is_never_told(terms: list[Comparison]) -> None:
    met = [{n for n in range(4) if SIGNS[each.operator](n, each.value)} for each in terms]
    common = set.intersection(*met)
    cohort = And(tuple(terms))
    if not common:
        assert told(cohort) is not None
    elif all(0 < len(each) < 4 for each in met):
        assert told(cohort) is None


def test_no_sentence_depends_on_the_order_of_terms() -> None:
    terms = [
        Comparison("n", Operator.GREATER, 2),
        Comparison("n", Operator.LESS, 1),
        Comparison("n", Operator.EQUAL, 1),
    ]
    assert all(told(And(order)) for order in itertools.permutations(terms))
    assert told(Or(tuple(terms))) is None
