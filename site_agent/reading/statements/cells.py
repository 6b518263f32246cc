"""Which cell of the answer a row falls into, and the level of a value on its public grid.

A row outside the public keys has no cell (NULL) and is left out. Everything is whole numbers from here on.
"""

from __future__ import annotations

from sqlglot import exp

from site_agent.reading.statements.dialect import Dialect, RowDialect
from site_agent.reading.statements.sql_trees import (
    greatest,
    integer,
    is_null,
    least,
    minus,
    paren,
    plus,
    present,
    ref,
    times,
)
from site_agent.reading.statements.where_sql import column_name
from wardround.federation.forms.grids import Coding, Quantiser
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.question.grouping import domain, month_range
from wardround.federation.question.query import GroupBy, Grouping
from wardround.federation.study.study import Column, ColumnType


def cell(form: AnswerLayout, part: Part, dialect: RowDialect) -> exp.Expression:
    """The number of the row's cell, the last grouping counting fastest; NULL outside the public keys."""
    found: exp.Expression | None = None
    for grouping in part.groupings:
        place = _place(grouping, form.table.column(grouping.column), dialect)
        size = integer(len(domain(grouping, form.table)))
        found = place if found is None else plus(times(found, size), place)
    return integer(0) if found is None else dialect.whole(paren(found))


def _place(grouping: Grouping, column: Column, dialect: RowDialect) -> exp.Expression:
    """Where a value stands among the public keys of its grouping; NULL elsewhere."""
    value = ref(column_name(column.name))
    match grouping.by:
        case GroupBy.MONTH:
            first, months = month_range(column)
            return _inside(dialect.month(value), first, first + months - 1)
        case GroupBy.BINS:
            number = dialect.double(value)
            below = _edges_below(number, grouping.edges, dialect)
            return paren(exp.Case().when(is_null(value.copy()), exp.null()).else_(below))
        case GroupBy.VALUE if column.type is ColumnType.CATEGORY:
            return dialect.place(value, grouping.keys or column.values)
        case GroupBy.VALUE if column.type is ColumnType.BOOLEAN:
            return dialect.whole(value)
        case GroupBy.VALUE:
            return _inside(value, int(str(column.domain[0])), int(str(column.domain[-1])))


def _inside(value: exp.Expression, low: int, high: int) -> exp.Expression:
    """Value − low between the two, NULL elsewhere; clamped before it is moved, so that no subtraction overflows."""
    nearest = least(greatest(value, integer(low)), integer(high))
    moved = minus(nearest, integer(low))
    inside = exp.And(this=present(value.copy()), expression=exp.EQ(this=value.copy(), expression=nearest.copy()))
    return paren(exp.Case().when(inside, moved))


def _edges_below(
    value: exp.Expression, edges: tuple[float, ...], dialect: RowDialect, first: int = 0
) -> exp.Expression:
    """How many edges are not above a value that is not NULL, by halves: ten comparisons for a thousand edges."""
    if not edges:
        return integer(first)
    middle = len(edges) // 2
    under = exp.LT(this=value.copy(), expression=dialect.literal(edges[middle]))
    left = _edges_below(value, edges[:middle], dialect, first)
    right = _edges_below(value, edges[middle + 1 :], dialect, first + middle + 1)
    return paren(exp.Case().when(under, left).else_(right))


def level(column: Column, quantiser: Quantiser, dialect: RowDialect) -> exp.Expression:
    """clamp(⌊(x − origin)·per_unit + ½⌋): whole doubles below 2^53, so that clamp and cast are exact."""
    held = ref(column_name(column.name))
    number = dialect.whole(held) if column.type is ColumnType.BOOLEAN else held
    value = dialect.saturated(dialect.double(number))
    moved = minus(value, dialect.literal(float(quantiser.origin)))
    rounded = dialect.floor(plus(times(moved, dialect.literal(float(quantiser.per_unit))), dialect.literal(0.5)))
    low, high = (dialect.literal(float(bound)) for bound in (quantiser.low, quantiser.high))
    inside = dialect.whole(least(greatest(rounded, low), high))
    # Databases disagree about the least of a number and NULL.
    return paren(exp.Case().when(present(held.copy()), inside))


def code(level: exp.Expression, coding: Coding, dialect: Dialect) -> exp.Expression:
    """min(⌊(q + offset) / width⌋, codes − 1) of a level that is not NULL."""
    place = dialect.quotient(plus(level, integer(coding.offset)), integer(coding.width))
    return least(place, integer(coding.codes - 1))
