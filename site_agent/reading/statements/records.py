"""From typed rows to records: what the norms of a part count, as whole numbers, in plain SQL.

What one unit contributes never depends on another unit, on row numbers or on the order of a file. The
statement is a tree (never formatted text) and total: no row can make it fail. A row outside the public keys has no
cell of the answer (NULL) and is left out; the cohort has its own three-valued logic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from sqlglot import exp

from site_agent.reading.bounding.tally import is_collapsed, is_weighed
from site_agent.reading.statements.dialect import Dialect, RowDialect
from site_agent.reading.statements.sql_trees import (
    counted,
    double,
    greatest,
    grouped,
    integer,
    is_null,
    joined,
    least,
    minus,
    named,
    paren,
    plus,
    present,
    ref,
    relation,
    times,
    whole,
)
from wardround.federation.forms.grids import Coding, Quantiser
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums
from wardround.federation.question.cohort import (
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Within,
    leaves,
)
from wardround.federation.question.query import GroupBy, Grouping, domain, month_range
from wardround.federation.study.study import Column, ColumnType, Value

UNIT, CELL, WEIGHT = "unit", "cell", "weight"
SELECTED, RECORDS = "selected", "records"
_COMPARISONS: Mapping[Operator, Callable[..., exp.Expression]] = {
    Operator.EQUAL: exp.EQ,
    Operator.UNEQUAL: exp.NEQ,
    Operator.LESS: exp.LT,
    Operator.LESS_OR_EQUAL: exp.LTE,
    Operator.GREATER: exp.GT,
    Operator.GREATER_OR_EQUAL: exp.GTE,
}


@dataclass(frozen=True, slots=True)
class TypedRows:
    """A relation with the unit key as `unit` and each needed column under `column_name(...)`, typed.

    Columns have the study's types (64-bit whole number, double, text, truth value, day), every value is
    finite and defaults are in place: whatever a row held that is not a value of the type is NULL.
    """

    query: exp.Query


def columns_needed(form: AnswerLayout) -> tuple[Column, ...]:
    """The columns of the study that the question looks at, each once."""
    names = [name for aggregate in form.query.aggregates for name in aggregate.columns]
    names += [grouping.column for grouping in form.query.group_by]
    if form.query.cohort is not None:
        names += [leaf.column for leaf in leaves(form.query.cohort)]
    wanted = set(names)
    return tuple(column for column in form.table.columns if column.name in wanted)


def level_names(part: Part) -> tuple[str, ...]:
    """What `selected` calls the level of each column."""
    return tuple(f"v{place}" for place in range(len(part.quantisers)))


def value_names(part: Part) -> tuple[str, ...]:
    """What a record holds beside its cell: nothing, its code, or the level of each column."""
    match part.sums:
        case Sums.COUNT:
            return ()
        case Sums.CODES:
            return ("v0",)
        case Sums.LEVELS | Sums.COUNTED_LEVELS | Sums.PRODUCTS:
            return tuple(f"v{place}" for place in range(len(part.columns)))
        case _:
            assert_never(part.sums)


def selected(form: AnswerLayout, part: Part, rows: TypedRows, dialect: RowDialect) -> exp.Select:
    """The cohort's rows as (unit, cell, levels or code) in whole numbers; rows that lack one of them are left out."""
    names = level_names(part)
    projection = [ref(UNIT), named(cell(form, part, dialect), CELL)]
    for name, column, quantiser in zip(names, part.columns, part.quantisers, strict=False):
        projection.append(named(level(form.table.column(column), quantiser, dialect), name))
    inner = exp.select(*projection).from_(rows.query.subquery("typed"), copy=False)
    if form.query.cohort is not None:
        inner = inner.where(condition(form.query.cohort, dialect), copy=False)
    kept = [UNIT, CELL, *names]
    outer = exp.select(*(ref(name) for name in kept)).from_(inner.subquery("chosen", copy=False), copy=False)
    return outer.where(*(present(ref(name)) for name in kept), copy=False)


def records(form: AnswerLayout, part: Part, dialect: Dialect) -> exp.Select:
    """Rows of `selected` as records (unit, cell, `value_names`): each row, or one for each unit and cell."""
    source, keys = relation(SELECTED), [ref(UNIT), ref(CELL)]
    if is_weighed(form, part):
        capped = least(counted(), integer(form.table.max_rows_per_unit))
        return grouped(source, keys, [named(whole(capped), WEIGHT)])
    collapsed = is_collapsed(form, part)
    values = [
        named(value, name)
        for name, value in zip(value_names(part), _values(part, dialect, collapsed=collapsed), strict=True)
    ]
    if collapsed:
        return grouped(source, keys, [*values])
    return exp.select(*keys, *values).from_(source)


def with_records(
    statement: exp.Select,
    form: AnswerLayout,
    part: Part,
    rows: TypedRows,
    dialect: Dialect,
    *,
    materialized: bool | None = None,
) -> exp.Select:
    """`statement` over `records`; materialised where every reference must see the very same rows."""
    return statement.with_(SELECTED, as_=selected(form, part, rows, dialect), copy=False).with_(
        RECORDS, as_=records(form, part, dialect), materialized=materialized, copy=False
    )


def _values(part: Part, dialect: Dialect, *, collapsed: bool) -> list[exp.Expression]:
    if part.records is Records.LAST:
        # The later of two times, and of two equal ones the one with the event.
        both = plus(times(code(ref("v0"), part.codes, dialect), integer(2)), ref("v1"))
        return [exp.Max(this=both) if collapsed else both]
    levels = [
        _mean(ref(f"v{place}"), dialect) if collapsed else ref(f"v{place}") for place in range(len(part.quantisers))
    ]
    if part.sums is Sums.CODES:
        return [code(levels[0], part.codes, dialect)]
    return levels


def _mean(level: exp.Expression, dialect: Dialect) -> exp.Expression:
    """The unit's mean rounded to a whole level: ⌊(2·sum + n) / 2n⌋, between levels because they are ≥ 0."""
    above = plus(times(dialect.total(level), integer(2)), counted())
    return dialect.wide_quotient(above, times(counted(), integer(2)))


def cell(form: AnswerLayout, part: Part, dialect: RowDialect) -> exp.Expression:
    """The number of the row's cell, the last grouping counting fastest; NULL outside the public keys."""
    found: exp.Expression | None = None
    for grouping in part.groupings:
        place = _place(grouping, form.table.column(grouping.column), dialect)
        size = integer(len(domain(grouping, form.table)))
        found = place if found is None else plus(times(found, size), place)
    return integer(0) if found is None else whole(paren(found))


def _place(grouping: Grouping, column: Column, dialect: RowDialect) -> exp.Expression:
    """Where a value stands among the public keys of its grouping; NULL elsewhere."""
    value = ref(column_name(column.name))
    match grouping.by:
        case GroupBy.MONTH:
            first, months = month_range(column)
            return _inside(dialect.month(value), first, first + months - 1)
        case GroupBy.BINS:
            number = double(value)
            below = _edges_below(number, grouping.edges, dialect)
            return paren(exp.Case().when(is_null(value.copy()), exp.null()).else_(below))
        case GroupBy.VALUE if column.type is ColumnType.CATEGORY:
            return dialect.place(value, grouping.keys or column.values)
        case GroupBy.VALUE if column.type is ColumnType.BOOLEAN:
            return whole(value)
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
    number = whole(held) if column.type is ColumnType.BOOLEAN else held
    value = dialect.saturated(double(number))
    moved = minus(value, dialect.literal(float(quantiser.origin)))
    rounded = dialect.floor(plus(times(moved, dialect.literal(float(quantiser.per_unit))), dialect.literal(0.5)))
    low, high = (dialect.literal(float(bound)) for bound in (quantiser.low, quantiser.high))
    inside = whole(least(greatest(rounded, low), high))
    # Databases disagree about the least of a number and NULL.
    return paren(exp.Case().when(present(held.copy()), inside))


def code(level: exp.Expression, coding: Coding, dialect: Dialect) -> exp.Expression:
    """min(⌊(q + offset) / width⌋, codes − 1) of a level that is not NULL."""
    place = dialect.quotient(plus(level, integer(coding.offset)), integer(coding.width))
    return least(place, integer(coding.codes - 1))


def column_name(name: str) -> str:
    """How typed rows call a column of the study; never the name of anything else in the statement."""
    return f"c_{name}"


def condition(term: Expression, dialect: RowDialect) -> exp.Expression:
    """The rows that `term` selects; every level in brackets of its own."""
    within = functools.partial(condition, dialect=dialect)
    match term:
        case Comparison(name, operator, value):
            return _compared(name, _COMPARISONS[operator], value, dialect)
        case Between(name, lower, upper):
            at_least = _compared(name, exp.GTE, lower, dialect)
            return paren(exp.And(this=at_least, expression=_compared(name, exp.LTE, upper, dialect)))
        case Within(name, values):
            return joined(exp.Or, (_among(name, same, dialect) for same in _by_type(values)))
        case IsNull(name):
            return paren(is_null(ref(column_name(name))))
        case Not(inner):
            return paren(exp.Not(this=within(inner)))
        case And(terms):
            return joined(exp.And, map(within, terms))
        case Or(terms):
            return joined(exp.Or, map(within, terms))


def _compared(
    name: str, comparison: Callable[..., exp.Expression], value: Value, dialect: RowDialect
) -> exp.Expression:
    column = dialect.compared(ref(column_name(name)), value)
    return paren(comparison(this=column, expression=dialect.literal(value)))


def _among(name: str, values: tuple[Value, ...], dialect: RowDialect) -> exp.Expression:
    column = dialect.compared(ref(column_name(name)), values[0])
    return paren(exp.In(this=column, expressions=[dialect.literal(value) for value in values]))


def _by_type(values: tuple[Value, ...]) -> list[tuple[Value, ...]]:
    types = dict.fromkeys(type(value) for value in values)
    return [tuple(value for value in values if type(value) is kind) for kind in types]
