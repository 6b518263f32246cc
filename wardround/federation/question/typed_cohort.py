"""A cohort checked against the study: columns that are declared, values of their types.

Both sides ask it, because they trust nobody. It sees public things only: the question and the study.
"""

from __future__ import annotations

import datetime
import math

from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import MAX_TEXT
from wardround.federation.plain_text import escaped
from wardround.federation.question.cohort import (
    MAX_DEPTH,
    MAX_TERMS,
    MAX_VALUES,
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Within,
    depth,
    leaf_values,
    leaves,
)
from wardround.federation.strict_toml import nearest
from wardround.federation.study.study import Column, ColumnType, Table, Value, parse_date

MAX_INTEGER = 2**63 - 1
_EQUALITY = (Operator.EQUAL, Operator.UNEQUAL)


def typed_cohort(cohort: Expression, table: Table) -> Expression:
    """The cohort in canonical form; `QueryMistaken` when the table does not allow it."""
    if depth(cohort) > MAX_DEPTH or sum(1 for _ in leaves(cohort)) > MAX_TERMS:
        raise QueryMistaken(f"a cohort has at most {MAX_TERMS} terms, nested at most {MAX_DEPTH} deep.")
    if any(len(leaf_values(leaf)) > MAX_VALUES for leaf in leaves(cohort)):
        raise QueryMistaken(f"IN takes at most {MAX_VALUES} values.")
    return _typed_term(cohort, table)


def _typed_term(term: Expression, table: Table) -> Expression:
    match term:
        case Comparison(name, operator, value):
            column = table.column(name)
            if operator not in _EQUALITY and column.type in (ColumnType.CATEGORY, ColumnType.BOOLEAN):
                raise QueryMistaken(
                    f"{name!r} is a {column.type.value} column and has no order; use {_equality(column)}."
                )
            return Comparison(name, operator, typed_value(value, column))
        case Within(name, values):
            column = table.column(name)
            if not values:
                raise QueryMistaken(f"{name} IN () selects nothing; give at least one value.")
            return Within(name, tuple(sorted({typed_value(value, column) for value in values}, key=_order)))
        case Between(name, lower, upper):
            column = table.column(name)
            if column.type in (ColumnType.CATEGORY, ColumnType.BOOLEAN):
                raise QueryMistaken(
                    f"{name!r} is a {column.type.value} column and has no order; use {_equality(column)}."
                )
            return Between(name, typed_value(lower, column), typed_value(upper, column))
        case IsNull(name):
            table.column(name)
            return term
        case Not(inner):
            return Not(_typed_term(inner, table))
        case And(terms) | Or(terms):
            if not terms:
                raise QueryMistaken("AND and OR join at least one term.")
            return type(term)(tuple(_typed_term(inner, table) for inner in terms))


def typed_value(value: Value, column: Column) -> Value:
    """A literal in its column's type; `QueryMistaken` says what was expected."""
    match column.type, value:
        case ColumnType.BOOLEAN, bool():
            return value
        case ColumnType.CATEGORY, str():
            if value in column.values or (column.open and 0 < len(value) <= MAX_TEXT):
                return value
            raise QueryMistaken(f"{column.name!r} has no value {value!r} in the study; {nearest(value, column.values)}")
        case ColumnType.DATE, str():
            if (day := parse_date(value)) is not None:
                return day
        case ColumnType.DATE, datetime.date():
            return value
        case ((ColumnType.INTEGER | ColumnType.NUMBER), int() | float()) if not isinstance(value, bool):
            return _number(value, column)
        case _:
            pass
    raise QueryMistaken(
        f"{column.name!r} is compared with {value!r}, but its type is {column.type.value}; give {_wanted(column)}."
    )


def _wanted(column: Column) -> str:
    """What a column is compared with, by an example of the study where it has one."""
    match column.type:
        case ColumnType.INTEGER | ColumnType.NUMBER:
            kind = "a whole number" if column.type is ColumnType.INTEGER else "a number"
            bounds = column.numeric_bounds
            within = "" if bounds is None else f" from {float(bounds[0]):.12g} to {float(bounds[1]):.12g}"
            return f"{kind}{within}, without quotes"
        case ColumnType.CATEGORY:
            return f"a text such as {_quoted(next(iter(column.values), 'E11'))}"
        case ColumnType.BOOLEAN:
            return "TRUE or FALSE"
        case ColumnType.DATE:
            day = datetime.date(2026, 1, 31) if column.lower is None else datetime.date.fromordinal(int(column.lower))
            return f"a date such as '{day.isoformat()}'"


def _equality(column: Column) -> str:
    """The comparisons that a column without an order has."""
    if column.type is ColumnType.BOOLEAN:
        return f"{column.name} = TRUE or {column.name} = FALSE"
    listed = [_quoted(value) for value in column.values[:2]] or ["'E11'", "'I10'"]
    return f"{column.name} = {listed[0]} or {column.name} IN ({', '.join(listed)})"


def _quoted(text: str) -> str:
    return "'" + escaped(text).replace("'", "''") + "'"


def _number(value: float, column: Column) -> int | float:
    # Size first: a whole number of hundreds of digits is no float that could be asked whether it is finite.
    if abs(value) > MAX_INTEGER or not math.isfinite(value):
        raise QueryMistaken(f"{column.name!r} is compared with a number that is not finite or too large.")
    if column.type is ColumnType.NUMBER:
        return float(value)
    return int(value) if value == int(value) else float(value)


def _order(value: Value) -> tuple[str, float, str]:
    number = float(value) if isinstance(value, int | float) else 0.0
    return type(value).__name__, number, str(value)
