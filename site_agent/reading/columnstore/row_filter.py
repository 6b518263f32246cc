"""The cohort over prepared columns: SQL's three-valued logic without SQL.

A term is asked what it selects and what it rejects; a row on which it is undecided is in neither. So NOT is an
exchange of the two, and an absent value selects nothing, as in every database.
"""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import EPOCH, NO_DAY, Booleans, Days, Integers, Numbers, Places, TextCodes, Values
from site_agent.reading.columnstore.column_encoding import KeptColumn, rows_where
from wardround.federation.question.cohort import (
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Leaf,
    Not,
    Operator,
    Or,
    Within,
)
from wardround.federation.study.study import Column, Value

Mask = NDArray[np.bool_]
Masks = Callable[[slice], Mask]
Columns = Callable[[str], KeptColumn]

_NOWHERE = -3
_COMPARISONS: Mapping[Operator, Callable[..., Mask]] = {
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def selected(term: Expression, columns: Columns) -> Masks:
    """The rows on which the term is true."""
    match term:
        case Not(inner):
            return rejected(inner, columns)
        case And(terms):
            return _all([selected(inner, columns) for inner in terms])
        case Or(terms):
            return _any([selected(inner, columns) for inner in terms])
        case leaf:
            column = columns(leaf.column)
            return rows_where(column, lambda values: _true(leaf, values, column.column))


def rejected(term: Expression, columns: Columns) -> Masks:
    """The rows on which the term is false."""
    match term:
        case Not(inner):
            return selected(inner, columns)
        case And(terms):
            return _any([rejected(inner, columns) for inner in terms])
        case Or(terms):
            return _all([rejected(inner, columns) for inner in terms])
        case IsNull(name):
            return rows_where(columns(name), present)
        case leaf:
            column = columns(leaf.column)
            return rows_where(column, lambda values: present(values) & ~_true(leaf, values, column.column))


def present(values: Values) -> Mask:
    """Where there is a value."""
    match values:
        case Numbers(number):
            return ~np.isnan(number)
        case Integers(_, known):
            return known
        case Places(place) | TextCodes(place, _):
            return np.not_equal(place, -1)
        case Booleans(sign):
            return np.greater_equal(sign, 0)
        case Days(day):
            return np.not_equal(day, NO_DAY)


def _all(masks: list[Masks]) -> Masks:
    return lambda rows: functools.reduce(np.logical_and, (mask(rows) for mask in masks))


def _any(masks: list[Masks]) -> Masks:
    return lambda rows: functools.reduce(np.logical_or, (mask(rows) for mask in masks))


def _true(leaf: Leaf, values: Values, column: Column) -> Mask:
    known = present(values)
    match leaf:
        case IsNull():
            return ~known
        case Comparison(_, comparison, value):
            return known & _compared(values, _COMPARISONS[comparison], value, column)
        case Between(_, lower, upper):
            return known & _compared(values, operator.ge, lower, column) & _compared(values, operator.le, upper, column)
        case Within(_, listed):
            return known & _among(values, listed, column)


def _among(values: Values, listed: tuple[Value, ...], column: Column) -> Mask:
    match values:
        case Numbers(number):
            return np.isin(number, [value for value in listed if isinstance(value, float)])
        case Integers(whole, _):
            fractions = [value for value in listed if isinstance(value, float)]
            exact = np.array([value for value in listed if isinstance(value, int)], dtype=np.int64)
            return np.isin(whole, exact) | np.isin(whole.astype(np.float64), fractions)
        case TextCodes(place, texts):
            wanted = set(listed)
            return np.array([*(text in wanted for text in texts), False, False], dtype=np.bool_)[place]
        case _:
            return functools.reduce(np.logical_or, (_compared(values, operator.eq, each, column) for each in listed))


def _compared(values: Values, comparison: Callable[..., Mask], value: Value, column: Column) -> Mask:
    """In the literal's own type, as the statements do it: a whole number against a fraction is a double."""
    match values, value:
        case Numbers(number), int() | float():
            return comparison(number, float(value))
        case Integers(whole, _), float():
            return comparison(whole.astype(np.float64), value)
        case Integers(whole, _), int():
            return comparison(whole, np.int64(value))
        case Places(place), str():
            return comparison(place, column.values.index(value) if value in column.values else _NOWHERE)
        case TextCodes(place, texts), str():
            return comparison(place, texts.index(value) if value in texts else _NOWHERE)
        case Booleans(sign), bool():
            return comparison(sign, int(value))
        case Days(day), datetime.date():
            return comparison(day, value.toordinal() - EPOCH)
        case _:
            # `typed` has checked every literal against its column; nothing equals what has another type.
            return np.zeros(present(values).size, dtype=np.bool_)
