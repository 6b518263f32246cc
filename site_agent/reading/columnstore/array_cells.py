"""Groups, levels and the cohort over prepared columns: the same whole numbers as the statements of every database give.

A place is a value's number among the public keys, and a level its number on the public grid. The double expression
of the grid is the one the statements use, so the integers agree to the last.

The cohort has SQL's three-valued logic without SQL: a term is asked what it selects and what it rejects; a row on which
it is undecided is in neither. So NOT is an exchange of the two, and an absent value selects nothing.
"""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import EPOCH, NO_DAY, Booleans, Days, Integers, Numbers, Places, TextCodes, Values
from site_agent.reading.columnstore.column_encoding import KeptColumn, per_row, rows_where
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.grids import Quantiser
from wardround.federation.forms.parts import AnswerLayout, Part
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
from wardround.federation.question.query import MONTHS_A_YEAR, GroupBy, Grouping, domain, month_range
from wardround.federation.study.study import Column, Value

Vector = NDArray[np.int64]
Vectors = Callable[[slice], Vector]

NOWHERE = -1
NO_LEVEL = -(2**63)
_FIRST_YEAR = 1970
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


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Which group a row is in: its number, or `NOWHERE`; without `numbers` all rows are in one.

    Where it can be counted by the codes of one column, `column` is that column and `table` the group of each code.
    """

    groups: int
    numbers: Vectors | None = None
    column: KeptColumn | None = None
    table: Vector | None = None


def cells_of(form: AnswerLayout, part: Part, columns: Columns) -> Cells:
    """The groups of a part: its own, or those of the question."""
    groupings = part.groupings
    if not groupings:
        return Cells(1)
    sizes = [len(domain(grouping, form.table)) for grouping in groupings]
    kept = [columns(grouping.column) for grouping in groupings]
    placings = [_placing(grouping, column.column) for grouping, column in zip(groupings, kept, strict=True)]
    places = [per_row(column, placing) for column, placing in zip(kept, placings, strict=True)]
    if len(places) > 1:
        return Cells(part.groups, _combined(places, sizes))
    table = placings[0](kept[0].table()) if kept[0].small else None
    return Cells(part.groups, places[0], kept[0] if table is not None else None, table)


def text_cells(column: KeptColumn, *, usable: Callable[[str], bool]) -> Cells:
    """A group for every text of an open category; texts that may not be shown are nowhere."""
    shown = np.array([*(usable(text) for text in column.texts), False, False], dtype=np.bool_)

    def place(values: Values) -> Vector:
        if not isinstance(values, TextCodes):
            raise InvariantBroken(private="keys were asked of a column that is not open")
        return np.where(shown[values.values], values.values.astype(np.int64), NOWHERE)

    return Cells(len(column.texts), per_row(column, place))


def levels_of(column: KeptColumn, quantiser: Quantiser) -> Vectors:
    """The level of every row on the grid, or `NO_LEVEL`."""
    return per_row(column, lambda values: quantised(values, quantiser))


def quantised(values: Values, quantiser: Quantiser) -> Vector:
    """clamp(⌊(x − origin)·per_unit + ½⌋): whole doubles below 2^53, so clamp and cast are exact."""
    known = present(values)
    match values:
        case Numbers(number):
            double = number
        case Integers(whole, _):
            double = whole.astype(np.float64)
        case Booleans(sign):
            double = sign.astype(np.float64)
        case _:
            raise InvariantBroken(private="a level was asked of a column without numbers")
    with np.errstate(over="ignore"):
        scaled = np.floor((np.where(known, double, 0.0) - float(quantiser.origin)) * float(quantiser.per_unit) + 0.5)
    inside = np.clip(scaled, float(quantiser.low), float(quantiser.high)).astype(np.int64)
    return np.where(known, inside, NO_LEVEL)


def _combined(places: list[Vectors], sizes: list[int]) -> Vectors:
    def numbers(rows: slice) -> Vector:
        cell = places[0](rows)
        for place, size in zip(places[1:], sizes[1:], strict=True):
            found = place(rows)
            cell = np.where((cell < 0) | (found < 0), NOWHERE, cell * size + found)
        return cell

    return numbers


def _placing(grouping: Grouping, column: Column) -> Callable[[Values], Vector]:
    match grouping.by:
        case GroupBy.VALUE:
            return lambda values: _by_value(values, column, grouping.keys)
        case GroupBy.MONTH:
            return lambda values: _by_month(values, column)
        case GroupBy.BINS:
            return lambda values: _by_interval(values, np.array(grouping.edges))


def _by_value(values: Values, column: Column, keys: tuple[str, ...]) -> Vector:
    match values:
        case Places(place):
            return np.maximum(place, NOWHERE).astype(np.int64)
        case TextCodes(place, texts):
            wanted = {key: number for number, key in enumerate(keys)}
            table = np.array([*(wanted.get(text, NOWHERE) for text in texts), NOWHERE, NOWHERE], dtype=np.int64)
            return table[place]
        case Booleans(sign):
            return sign.astype(np.int64)
        case Integers(whole, known):
            low, high = int(str(column.domain[0])), int(str(column.domain[-1]))
            inside = known & (whole >= low) & (whole <= high)
            return np.where(inside, np.clip(whole, low, high) - low, NOWHERE)
        case _:
            raise InvariantBroken(private="a column without public values was grouped by them")


def _by_month(values: Values, column: Column) -> Vector:
    if not isinstance(values, Days):
        raise InvariantBroken(private="months were asked of a column without dates")
    first, months = month_range(column)
    known = values.values != NO_DAY
    days = np.where(known, values.values, 0).astype("datetime64[D]")
    place = days.astype("datetime64[M]").astype(np.int64) + (_FIRST_YEAR * MONTHS_A_YEAR - first)
    return np.where(known & (place >= 0) & (place < months), place, NOWHERE)


def _by_interval(values: Values, edges: NDArray[np.float64]) -> Vector:
    """How many edges are at or below the value, compared as doubles."""
    match values:
        case Numbers(number):
            double = number
        case Integers(whole, _):
            double = whole.astype(np.float64)
        case _:
            raise InvariantBroken(private="intervals were asked of a column without numbers")
    return np.where(present(values), np.searchsorted(edges, double, side="right"), NOWHERE)


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
