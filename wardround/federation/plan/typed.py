"""A query checked against the study, with every literal brought to its column's type.

Every side does this once and carries the `Typed` on: the coordinator so that a mistake costs nothing, the site so that
nothing the study does not describe ever reaches its tables. Equal questions become equal words here, and therefore
one plan id.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.typed_aggregates import typed_aggregate, typed_groups
from wardround.federation.question.cohort import (
    MAX_DEPTH,
    MAX_TERMS,
    MAX_TEXT,
    MAX_VALUES,
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
    depth,
    leaf_values,
    leaves,
)
from wardround.federation.question.query import MAX_AGGREGATES, Query
from wardround.federation.statistics import find
from wardround.federation.strict_toml import nearest
from wardround.federation.study.study import Column, ColumnType, Study, Table, parse_date

MAX_INTEGER = 2**63 - 1
_EQUALITY = (Operator.EQUAL, Operator.UNEQUAL)
_WANTED = {
    ColumnType.INTEGER: "a whole number",
    ColumnType.NUMBER: "a number",
    ColumnType.CATEGORY: "a text such as 'E11'",
    ColumnType.BOOLEAN: "TRUE or FALSE",
    ColumnType.DATE: "a date such as '2026-01-31'",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A query with typed literals, and the table that it asks; made by `type_query`."""

    query: Query
    table: Table


def type_query(query: Query, study: Study) -> Typed:
    """The query checked against the study, or `QueryMistaken` in one sentence."""
    return Typed(typed(query, study), study.table(query.table))


def typed(query: Query, study: Study) -> Query:
    """The same query with typed literals, or `QueryMistaken` in one sentence."""
    table = study.table(query.table)
    if not 1 <= len(query.aggregates) <= MAX_AGGREGATES:
        msg = f"a question asks for 1 to {MAX_AGGREGATES} aggregates; this one asks for {len(query.aggregates)}."
        raise QueryMistaken(msg)
    aggregates = tuple(typed_aggregate(aggregate, table) for aggregate in query.aggregates)
    if len(set(aggregates)) != len(aggregates):
        msg = "a question names each aggregate once; remove the repeated one."
        raise QueryMistaken(msg)
    asked = [find(each.statistic) for each in aggregates]
    alone = next((definition for definition in asked if definition.alone), None)
    if alone is not None and (len(aggregates) > 1 or query.group_by):
        word = alone.functions[0].name
        msg = f"{word} is a question of its own; ask it without other aggregates and without GROUP BY."
        raise QueryMistaken(msg)
    groups = typed_groups(query.group_by, table)
    cohort = None if query.cohort is None else typed_cohort(query.cohort, table)
    return Query(query.table, aggregates, cohort, groups)


def typed_cohort(cohort: Expression, table: Table) -> Expression:
    """The cohort in canonical form; `QueryMistaken` when the table does not allow it."""
    if depth(cohort) > MAX_DEPTH or sum(1 for _ in leaves(cohort)) > MAX_TERMS:
        msg = f"a cohort has at most {MAX_TERMS} terms, nested at most {MAX_DEPTH} deep."
        raise QueryMistaken(msg)
    if any(len(leaf_values(leaf)) > MAX_VALUES for leaf in leaves(cohort)):
        msg = f"IN takes at most {MAX_VALUES} values."
        raise QueryMistaken(msg)
    return _typed_term(cohort, table)


def _typed_term(term: Expression, table: Table) -> Expression:
    match term:
        case Comparison(name, operator, value):
            column = table.column(name)
            if operator not in _EQUALITY and column.type in (ColumnType.CATEGORY, ColumnType.BOOLEAN):
                msg = f"{name!r} is a {column.type.value} column and has no order; use =, <> or IN."
                raise QueryMistaken(msg)
            return Comparison(name, operator, typed_value(value, column))
        case Within(name, values):
            column = table.column(name)
            if not values:
                msg = f"{name} IN () selects nothing; give at least one value."
                raise QueryMistaken(msg)
            return Within(name, tuple(sorted({typed_value(value, column) for value in values}, key=_order)))
        case Between(name, lower, upper):
            column = table.column(name)
            if column.type in (ColumnType.CATEGORY, ColumnType.BOOLEAN):
                msg = f"{name!r} is a {column.type.value} column and has no order; use IN."
                raise QueryMistaken(msg)
            return Between(name, typed_value(lower, column), typed_value(upper, column))
        case IsNull(name):
            table.column(name)
            return term
        case Not(inner):
            return Not(_typed_term(inner, table))
        case And(terms) | Or(terms):
            if not terms:
                msg = "AND and OR join at least one term."
                raise QueryMistaken(msg)
            return type(term)(tuple(_typed_term(inner, table) for inner in terms))


def typed_value(value: Value, column: Column) -> Value:
    """A literal in its column's type; `QueryMistaken` says what was expected."""
    match column.type, value:
        case ColumnType.BOOLEAN, bool():
            return value
        case ColumnType.CATEGORY, str():
            if value in column.values or (column.open and 0 < len(value) <= MAX_TEXT):
                return value
            msg = f"{column.name!r} has no value {value!r} in the study; {nearest(value, column.values[:50])}"
            raise QueryMistaken(msg)
        case ColumnType.DATE, str():
            if (day := parse_date(value)) is not None:
                return day
        case ColumnType.DATE, datetime.date():
            return value
        case ((ColumnType.INTEGER | ColumnType.NUMBER), int() | float()) if not isinstance(value, bool):
            return _number(value, column)
        case _:
            pass
    msg = (
        f"{column.name!r} is compared with {value!r}, but its type is {column.type.value}; give {_WANTED[column.type]}."
    )
    raise QueryMistaken(msg)


def _number(value: float, column: Column) -> int | float:
    # Size first: a whole number of hundreds of digits is no float that could be asked whether it is finite.
    if abs(value) > MAX_INTEGER or not math.isfinite(value):
        msg = f"{column.name!r} is compared with a number that is not finite or too large."
        raise QueryMistaken(msg)
    if column.type is ColumnType.NUMBER:
        return float(value)
    return int(value) if value == int(value) else float(value)


def _order(value: Value) -> tuple[str, float, str]:
    number = float(value) if isinstance(value, int | float) else 0.0
    return type(value).__name__, number, str(value)
