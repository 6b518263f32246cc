"""Random words, written as SQL in the test's own hand, are read back as the same words."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from wardround.analyst.sql import condition, parse
from wardround.federation.expressions import (
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Value,
    Within,
)
from wardround.federation.query import Aggregate, Query, Statistic
from wardround.federation.wording import query_text

# Every name is written in quotes, so that "order" and "select" are names too.
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,62}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
values: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(-1e18, 1e18, allow_nan=False),
    texts,
    st.dates(),
)
leaves: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Comparison, names, st.sampled_from(Operator), values),
    st.builds(Within, names, st.lists(values, min_size=1, max_size=4).map(tuple)),
    st.builds(Between, names, values, values),
    st.builds(IsNull, names),
)


def flat(kind: type[And | Or], terms: list[Expression]) -> Expression:
    """The one form of a chain: terms of the same kind are never nested."""
    inner = [each for term in terms for each in (term.terms if isinstance(term, kind) else (term,))]
    return kind(tuple(inner))


expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: flat(And, terms)),
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: flat(Or, terms)),
    ),
    max_leaves=12,
)
queries = st.builds(
    Query,
    names,
    st.lists(
        st.one_of(
            st.builds(Aggregate, st.just(Statistic.COUNT), st.one_of(st.none(), names)),
            st.builds(Aggregate, st.sampled_from([Statistic.SUM, Statistic.MEAN]), names),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
    st.one_of(st.none(), expressions),
    st.lists(names, max_size=3, unique=True).map(tuple),
)


def literal(value: Value) -> str:
    match value:
        case bool():
            return str(value).upper()
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return repr(value)


def written(term: Expression) -> str:
    match term:
        case Comparison(column, operator, value):
            return f'"{column}" {operator.value} {literal(value)}'
        case Within(column, found):
            return f'"{column}" IN ({", ".join(map(literal, found))})'
        case Between(column, lower, upper):
            return f'"{column}" BETWEEN {literal(lower)} AND {literal(upper)}'
        case IsNull(column):
            return f'"{column}" IS NULL'
        case Not(inner):
            return f"NOT ({written(inner)})"
        case And(terms):
            return " AND ".join(f"({written(inner)})" for inner in terms)
        case Or(terms):
            return " OR ".join(f"({written(inner)})" for inner in terms)


def asked(query: Query) -> str:
    functions = {Statistic.SUM: "SUM", Statistic.MEAN: "AVG"}
    listed = [f'"{name}"' for name in query.group_by]
    for aggregate in query.aggregates:
        if aggregate.statistic is Statistic.COUNT:
            listed.append("COUNT(*)" if aggregate.column is None else f'COUNT(DISTINCT "{aggregate.column}")')
        else:
            listed.append(f'{functions[aggregate.statistic]}("{aggregate.column}")')
    text = f'SELECT {", ".join(listed)} FROM "{query.table}"'
    if query.cohort is not None:
        text += f" WHERE {written(query.cohort)}"
    if query.group_by:
        text += " GROUP BY " + ", ".join(f'"{name}"' for name in query.group_by)
    return text


@given(queries)
def test_a_query_written_down_is_read_back(query: Query) -> None:
    # repr too, because True == 1 == 1.0 in Python and not in a study.
    found = parse(asked(query))
    assert found == query
    assert repr(found) == repr(query)


@given(expressions)
def test_a_condition_written_down_is_read_back(expression: Expression) -> None:
    assert repr(condition(written(expression))) == repr(expression)


def renamed(term: Expression) -> Expression:
    """The same tree about one plain column: the steward's text writes names without quotes."""
    match term:
        case Comparison(_, operator, value):
            return Comparison("age", operator, value)
        case Within(_, found):
            return Within("age", found)
        case Between(_, lower, upper):
            return Between("age", lower, upper)
        case IsNull(_):
            return IsNull("age")
        case Not(inner):
            return Not(renamed(inner))
        case And(terms) | Or(terms):
            return type(term)(tuple(renamed(inner) for inner in terms))


@given(
    st.builds(
        Query,
        st.just("encounters"),
        st.just((Aggregate(Statistic.COUNT), Aggregate(Statistic.MEAN, "sbp"))),
        st.one_of(st.none(), expressions.map(renamed)),
        st.just(("diagnosis",)),
    )
)
def test_what_a_steward_reads_is_what_was_asked(query: Query) -> None:
    assert parse(query_text(query)) == query
