"""Conditions that the study's public bounds and values decide already: told before anything is charged.

Such a condition is nearly always a slip (400 for 40, two ends changed over, AND for OR), and its answer would cost as
much as any. A condition that only repeats a bound, such as age <= 110, is left alone: it leaves out absent values and
those that a hospital holds beyond the bounds. Only the question and the study are looked at.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.sql_text import condition_text, literal_text
from wardround.federation.question.cohort import And, Between, Comparison, Expression, Leaf, Not, Operator, Or, Within
from wardround.federation.study.study import Column, ColumnType, Table, Value

_WHOLE = (ColumnType.INTEGER, ColumnType.DATE)
_Point = tuple[Fraction | float, int]
"""A number, and whether just below it (−1), itself (0) or just above it (1) is meant."""
_Interval = tuple[_Point, _Point]
_FIRST: _Point = (-math.inf, 0)
_LAST: _Point = (math.inf, 0)


def require_undecided(cohort: Expression, table: Table) -> None:
    """`QueryMistaken` for a typed cohort with a condition that no value within the bounds meets, or that all meet."""
    match cohort:
        case Not(term):
            require_undecided(term, table)
        case And(terms) | Or(terms):
            for term in terms:
                require_undecided(term, table)
            if isinstance(cohort, And):
                _require_some_value(terms, table)
            else:
                _require_exclusion(terms)
        case Between(name, lower, upper) if _number(lower) > _number(upper):
            swapped = condition_text(Between(name, upper, lower))
            raise QueryMistaken(f"{condition_text(cohort)} holds for no value; write {swapped}.")
        case Comparison() | Between() | Within():
            _require_within_bounds(cohort, table.column(cohort.column))
        case _:
            pass


def _require_within_bounds(leaf: Leaf, column: Column) -> None:
    if column.lower is None or column.upper is None:
        return
    first, last = (literal_text(_as_value(bound, column)) for bound in (column.lower, column.upper))
    bounds = f"the study's bounds of {column.name!r} are {first} to {last}"
    own = [((column.lower, 0), (column.upper, 0))]
    if not _shared(own, _met_by(leaf), column):
        if _shared([(_FIRST, _LAST)], _met_by(leaf), column):
            raise QueryMistaken(f"{condition_text(leaf)} holds for no value: {bounds}; write a value between them.")
        raise QueryMistaken(f"{condition_text(leaf)} holds for no value: {column.name!r} has whole numbers; write one.")
    step = 1 if column.type in _WHOLE else 0
    if _beyond(leaf, column.lower - step, column.upper + step):
        raise QueryMistaken(
            f"{condition_text(leaf)} holds for every value: {bounds}; leave it out, or write {column.name} IS NOT NULL."
        )


def _beyond(leaf: Leaf, lower: Fraction, upper: Fraction) -> bool:
    """Whether a comparison with a value beyond the bounds leaves nothing out; age < 111 is another age <= 110."""
    match leaf:
        case Comparison(_, Operator.LESS | Operator.LESS_OR_EQUAL, value):
            return _number(value) > upper
        case Comparison(_, Operator.GREATER | Operator.GREATER_OR_EQUAL, value):
            return _number(value) < lower
        case Comparison(_, Operator.UNEQUAL, value):
            return not lower <= _number(value) <= upper
        case Between(_, low, high):
            return _number(low) < lower and _number(high) > upper
        case _:
            return False


def _require_some_value(terms: Sequence[Expression], table: Table) -> None:
    """Conditions that AND joins must leave some value of each column."""
    seen: dict[str, list[Comparison | Between | Within]] = {}
    for term in terms:
        if isinstance(term, Comparison | Between | Within):
            seen.setdefault(term.column, []).append(term)
    for name, leaves in seen.items():
        column = table.column(name)
        both = " AND ".join(condition_text(leaf) for leaf in leaves)
        if column.type in (ColumnType.CATEGORY, ColumnType.BOOLEAN):
            listed = [frozenset(values) for leaf in leaves if (values := _listed(leaf)) is not None]
            if listed and not frozenset.intersection(*listed):
                whole = condition_text(
                    Within(name, tuple(dict.fromkeys(v for leaf in leaves for v in _listed(leaf) or ())))
                )
                raise QueryMistaken(f"no row can have {both}; write {whole}.")
            continue
        shared: list[_Interval] = [(_FIRST, _LAST)]
        for leaf in leaves:
            shared = _shared(shared, _met_by(leaf), column)
        if not shared:
            raise QueryMistaken(f"no row can have {both}; write {' OR '.join(map(condition_text, leaves))}.")


def _require_exclusion(terms: Sequence[Expression]) -> None:
    """What is unequal to one value or to another is everything."""
    unequal = [term for term in terms if isinstance(term, Comparison) and term.operator is Operator.UNEQUAL]
    for each in unequal:
        values = {other.value for other in unequal if other.column == each.column}
        if len(values) > 1:
            meant = " AND ".join(condition_text(other) for other in unequal if other.column == each.column)
            raise QueryMistaken(f"unequal to one or to the other holds for every value; write {meant}.")


def _listed(leaf: Leaf) -> tuple[Value, ...] | None:
    match leaf:
        case Comparison(_, Operator.EQUAL, value):
            return (value,)
        case Within(_, values):
            return values
        case _:
            return None


def _met_by(leaf: Leaf) -> list[_Interval]:
    """The numbers that meet a condition."""
    match leaf:
        case Comparison(_, operator, value):
            at = _number(value)
            met: dict[Operator, list[_Interval]] = {
                Operator.EQUAL: [((at, 0), (at, 0))],
                Operator.UNEQUAL: [(_FIRST, (at, -1)), ((at, 1), _LAST)],
                Operator.LESS: [(_FIRST, (at, -1))],
                Operator.LESS_OR_EQUAL: [(_FIRST, (at, 0))],
                Operator.GREATER: [((at, 1), _LAST)],
                Operator.GREATER_OR_EQUAL: [((at, 0), _LAST)],
            }
            return met[operator]
        case Between(_, lower, upper):
            return [((_number(lower), 0), (_number(upper), 0))]
        case Within(_, values):
            return [((_number(value), 0), (_number(value), 0)) for value in values]
        case _:
            return [(_FIRST, _LAST)]


def _shared(some: Iterable[_Interval], others: Sequence[_Interval], column: Column) -> list[_Interval]:
    """What two sets of numbers share; of a column with whole numbers only these."""
    both = [(max(low, low_too), min(high, high_too)) for low, high in some for low_too, high_too in others]
    if column.type in _WHOLE:
        both = [(_whole_from(low), _whole_to(high)) for low, high in both]
    return [(low, high) for low, high in both if low <= high]


def _whole_from(point: _Point) -> _Point:
    value, side = point
    if isinstance(value, float):
        return point
    up = math.ceil(value)
    return (Fraction(up + 1 if side > 0 and up == value else up), 0)


def _whole_to(point: _Point) -> _Point:
    value, side = point
    if isinstance(value, float):
        return point
    down = math.floor(value)
    return (Fraction(down - 1 if side < 0 and down == value else down), 0)


def _number(value: Value) -> Fraction:
    """A value on the line; texts have no place there and are never asked for one."""
    match value:
        case datetime.date():
            return Fraction(value.toordinal())
        case str():
            return Fraction(0)
        case _:
            return Fraction(value)


def _as_value(bound: Fraction, column: Column) -> Value:
    match column.type:
        case ColumnType.DATE:
            return datetime.date.fromordinal(int(bound))
        case _ if bound.denominator == 1:
            return int(bound)
        case _:
            return float(bound)
