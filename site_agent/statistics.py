"""Bounded totals as one SQL statement for each part of an answer.

Every unit is brought within the part's norms inside the statement: rows it has too many of are taken
out by a keyed order of its own rows, values are clamped to whole grid steps, and from there on only
integers are added. What one unit contributes never depends on another unit, on row numbers or on the
order of a file. The statement is a tree (never formatted text) and total: no row can make it fail.

A patient with more rows than count keeps a random choice of them: rows are ordered by a keyed hash of
patient, group, value and, among equal rows, their number; so two rows that tie are the same to the
question. The hash is the database's own and only has to be unpredictable to the analyst; the bound
holds for any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from site_agent.trees import (
    above,
    call,
    cast,
    clamped,
    double,
    grouped,
    identifier,
    integer,
    is_null,
    literal,
    named,
    paren,
    ref,
    sql_type,
    text,
)
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
    leaves,
)
from wardround.federation.shape import Part, PartKind, Quantiser, Shape
from wardround.federation.study import Column, ColumnType, Unit

LARGEST_TOTAL = 2**62
"""Totals saturate here; clamping a sum moves no two totals further apart."""

UNIT, GROUP, FIRST, SECOND = "unit", "cell", "first", "second"
_COPY, _RANK = "copy", "rank"
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

    Columns have the study's types (BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE), every value is finite and
    defaults are in place: whatever a row held that is not a value of the type is NULL.
    """

    query: exp.Query


def column_name(name: str) -> str:
    """How typed rows call a column of the study; never the name of anything else in the statement."""
    return f"c_{name}"


def columns_needed(form: Shape) -> tuple[Column, ...]:
    """The columns of the study that the question looks at, each once."""
    names = [aggregate.column for aggregate in form.query.aggregates]
    names += form.query.group_by
    if form.query.cohort is not None:
        names += [leaf.column for leaf in leaves(form.query.cohort)]
    wanted = set(names)
    return tuple(column for column in form.table.columns if column.name in wanted)


def bounded_totals(form: Shape, part: Part, rows: TypedRows, *, key: bytes) -> exp.Query:
    """The statement whose result is (cell, first[, second]): one row for each group that is not empty."""
    selected = _selected(form, part, rows)
    records, cap = _records(form, part)
    if cap is None:
        statement = _totals(part, exp.to_table("records"))
        return statement.with_("selected", as_=selected, copy=False).with_("records", as_=records, copy=False)
    # Materialised: the difference below is bounded only if every reference sees the very same rows,
    # whatever happens to the file meanwhile.
    kept = exp.union(
        _values(part, "records", negated=False),
        _values(part, "ranked", negated=True).where(above(_RANK, cap), copy=False),
        distinct=False,
    )
    statement = _totals(part, exp.Subquery(this=kept, alias=exp.TableAlias(this=identifier("kept"))))
    return (
        statement.with_("selected", as_=selected, copy=False)
        .with_("records", as_=records, materialized=True, copy=False)
        .with_("crowded", as_=_crowded(cap), copy=False)
        .with_("marked", as_=_marked(part), copy=False)
        .with_("ranked", as_=_ranked(part, key), copy=False)
    )


# --- From rows to records: one record is what the cap counts ---------------------------------------------


def _selected(form: Shape, part: Part, rows: TypedRows) -> exp.Query:
    """The cohort's rows as (unit, cell[, first]) in integers; rows that lack one of them are left out."""
    projection: list[exp.Expression] = [ref(UNIT), named(_cell(form), GROUP)]
    present = [UNIT, GROUP]
    if part.quantiser is not None and part.aggregate.column is not None:
        projection.append(named(_quantised(part.aggregate.column, form, part.quantiser), FIRST))
        present.append(FIRST)
    inner = exp.select(*projection).from_(rows.query.subquery("typed"), copy=False)
    if form.query.cohort is not None:
        inner = inner.where(_condition(form.query.cohort, form), copy=False)
    outer = exp.select(*(ref(name) for name in present)).from_(inner.subquery("chosen", copy=False), copy=False)
    return outer.where(*(paren(is_null(ref(name)).not_()) for name in present), copy=False)


def _records(form: Shape, part: Part) -> tuple[exp.Query, int | None]:
    """The records that count towards the norms, and how many of them one unit may have."""
    by_patient = form.unit is Unit.PATIENT
    source = exp.to_table("selected")
    key_columns = [ref(UNIT), ref(GROUP)]
    rows = form.table.max_rows_per_unit
    groups = part.max_groups if by_patient and part.max_groups < part.groups else None
    match part.kind:
        case PartKind.EVENTS if by_patient and part.groups == 1:
            # With one cell it does not matter which rows count, only how many.
            capped = call("LEAST", exp.Count(this=exp.Star()), integer(rows))
            value = exp.Mul(this=cast(capped, "BIGINT"), expression=integer(part.increment))
            return grouped(source, key_columns, [named(value, FIRST)]), None
        case PartKind.EVENTS:
            one = named(integer(part.increment), FIRST)
            return exp.select(*key_columns, one).from_(source), rows if by_patient else None
        case PartKind.PATIENTS:
            one = named(call("ANY_VALUE", integer(part.increment)), FIRST)
            return grouped(source, key_columns, [one]), groups
        case PartKind.SUM:
            return exp.select(*key_columns, ref(FIRST)).from_(source), rows if by_patient else None
        case PartKind.MEAN:
            levels = part.quantiser.high if part.quantiser is not None else 0
            mean = _whole_mean() if by_patient else ref(FIRST)
            first = named(mean, FIRST)
            second = named(exp.Sub(this=integer(levels), expression=paren(mean.copy())), SECOND)
            if not by_patient:
                return exp.select(*key_columns, first, second).from_(source), None
            return grouped(source, key_columns, [first, second]), groups


def _whole_mean() -> exp.Expression:
    """The unit's mean rounded to a whole level: ⌊(2·sum + n) / 2n⌋, between levels because they are ≥ 0."""
    total = cast(exp.Sum(this=ref(FIRST)), "INT128")
    number = cast(exp.Count(this=exp.Star()), "INT128")
    above = exp.Add(this=paren(exp.Mul(this=total, expression=integer(2))), expression=number)
    below = exp.Mul(this=number.copy(), expression=integer(2))
    return cast(exp.IntDiv(this=paren(above), expression=paren(below)), "BIGINT")


# --- The cap: which records of a crowded unit do not count ------------------------------------------------


def _crowded(cap: int) -> exp.Query:
    """The units with more records than count; most have fewer, and only these are ever ranked."""
    few = exp.select(ref(UNIT)).from_("records").group_by(ref(UNIT), copy=False)
    return few.having(exp.GT(this=exp.Count(this=exp.Star()), expression=integer(cap)), copy=False)


def _marked(part: Part) -> exp.Query:
    """The crowded units' records, equal ones numbered so that each gets its own place in the order."""
    record = [ref(name) for name in (UNIT, GROUP, *_coordinates(part))]
    number = exp.Window(this=exp.RowNumber(), partition_by=[column.copy() for column in record])
    inside = exp.In(this=ref(UNIT), query=exp.select(ref(UNIT)).from_("crowded").subquery())
    return exp.select(*record, named(number, _COPY)).from_("records").where(inside, copy=False)


def _ranked(part: Part, key: bytes) -> exp.Query:
    """The same records with their place in the unit's keyed order."""
    half = len(key) // 2
    # A mean is chosen by its group alone, so that a patient's mean and presence are kept in the same groups.
    chosen_by = (UNIT, GROUP, FIRST, _COPY) if part.kind is PartKind.SUM else (UNIT, GROUP, _COPY)
    hashed = exp.Anonymous(
        this="HASH",
        expressions=[text(key[:half].hex()), *(ref(name) for name in chosen_by), text(key[half:].hex())],
    )
    order = exp.Order(expressions=[hashed, *(ref(name) for name in (GROUP, FIRST, _COPY))])
    rank = exp.Window(this=exp.RowNumber(), partition_by=[ref(UNIT)], order=order)
    names = (GROUP, *_coordinates(part))
    return exp.select(*(ref(name) for name in names), named(rank, _RANK)).from_("marked")


def _values(part: Part, table: str, *, negated: bool) -> exp.Select:
    columns = [named(exp.Neg(this=ref(name)), name) if negated else ref(name) for name in _coordinates(part)]
    return exp.select(ref(GROUP), *columns).from_(table)


def _totals(part: Part, source: exp.Expression) -> exp.Select:
    sums: list[exp.Expression] = []
    for name in _coordinates(part):
        total = cast(exp.Sum(this=ref(name)), "INT128")
        inside = clamped(total, -LARGEST_TOTAL, LARGEST_TOTAL, "INT128")
        sums.append(named(cast(inside, "BIGINT"), name))
    return grouped(source, [ref(GROUP)], sums)


def _coordinates(part: Part) -> tuple[str, ...]:
    return (FIRST, SECOND)[: part.coordinates]


# --- Cells and levels -------------------------------------------------------------------------------------


def _cell(form: Shape) -> exp.Expression:
    """The number of the row's group in the order of `form.group_keys`; NULL outside the public values."""
    cell: exp.Expression = integer(0)
    for name in form.query.group_by:
        column = form.table.column(name)
        scaled = exp.Mul(this=paren(cell), expression=integer(len(column.domain)))
        cell = exp.Add(this=scaled, expression=_place(column))
    return cast(paren(cell), "BIGINT")


def _place(column: Column) -> exp.Expression:
    """Where a value stands among the column's public values, compared exactly; NULL elsewhere."""
    value = ref(column_name(column.name))
    match column.type:
        case ColumnType.CATEGORY:
            names = exp.DataType(this=exp.DataType.Type.ENUM, expressions=[text(word) for word in column.values])
            code = exp.Anonymous(this="ENUM_CODE", expressions=[exp.TryCast(this=value, to=names)])
            return cast(code, "BIGINT")
        case ColumnType.BOOLEAN:
            return cast(value, "BIGINT")
        case _:
            low, high = column.domain[0], column.domain[-1]
            inside = clamped(value, int(str(low)), int(str(high)), "BIGINT")
            # Clamped before the subtraction, so that it cannot overflow on the rows CASE leaves out.
            place = exp.Sub(this=inside, expression=integer(int(str(low))))
            return paren(exp.Case().when(exp.EQ(this=value.copy(), expression=inside.copy()), place))


def _quantised(name: str, form: Shape, quantiser: Quantiser) -> exp.Expression:
    """clamp(⌊(x − origin)·per_unit + ½⌋): whole doubles below 2^53, so clamp and cast are exact."""
    value = cast(ref(column_name(name)), "DOUBLE")
    if form.table.column(name).type is ColumnType.BOOLEAN:
        value = cast(cast(ref(column_name(name)), "BIGINT"), "DOUBLE")
    moved = exp.Sub(this=value, expression=double(float(quantiser.origin)))
    scaled = exp.Mul(this=paren(moved), expression=double(float(quantiser.per_unit)))
    rounded = call("FLOOR", exp.Add(this=paren(scaled), expression=double(0.5)))
    inside = clamped(rounded, quantiser.low, quantiser.high, "DOUBLE")
    # LEAST and GREATEST skip NULL: without this an absent value would become the upper bound.
    present = exp.Case().when(is_null(value.copy()), exp.null()).else_(inside)
    return cast(present, "BIGINT")


# --- The cohort -------------------------------------------------------------------------------------------


def _condition(term: Expression, form: Shape) -> exp.Expression:
    """SQL's own three-valued logic over typed columns; every level in brackets of its own."""
    condition = functools.partial(_condition, form=form)
    match term:
        case Comparison(name, operator, value):
            return _compared(name, _COMPARISONS[operator], value)
        case Between(name, lower, upper):
            at_least, at_most = _compared(name, exp.GTE, lower), _compared(name, exp.LTE, upper)
            return paren(exp.And(this=at_least, expression=at_most))
        case Within(name, values):
            return _joined(exp.Or, (_among(name, same) for same in _by_type(values)))
        case IsNull(name):
            return paren(is_null(ref(column_name(name))))
        case Not(inner):
            return paren(exp.Not(this=condition(inner)))
        case And(terms):
            return _joined(exp.And, map(condition, terms))
        case Or(terms):
            return _joined(exp.Or, map(condition, terms))


def _compared(name: str, comparison: Callable[..., exp.Expression], value: Value) -> exp.Expression:
    # Both sides are cast to the literal's type: left to itself the database would try DECIMAL, and raise.
    column = cast(ref(column_name(name)), sql_type(value))
    return paren(comparison(this=column, expression=literal(value)))


def _among(name: str, values: tuple[Value, ...]) -> exp.Expression:
    column = cast(ref(column_name(name)), sql_type(values[0]))
    return paren(exp.In(this=column, expressions=[literal(value) for value in values]))


def _by_type(values: tuple[Value, ...]) -> list[tuple[Value, ...]]:
    types = dict.fromkeys(sql_type(value) for value in values)
    return [tuple(value for value in values if sql_type(value) == kind) for kind in types]


def _joined(connector: Callable[..., exp.Expression], terms: Iterable[exp.Expression]) -> exp.Expression:
    return paren(functools.reduce(lambda left, right: connector(this=left, expression=right), terms))
