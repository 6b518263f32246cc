"""From rows to records in SQL: one statement for each part of an answer.

Values are clamped to whole grid steps inside the statement, and from there on only integers are added.
What one unit contributes never depends on another unit, on row numbers or on the order of a file. The
statement is a tree (never formatted text) and total: no row can make it fail.

Where a unit may have more records than count, `site_agent.records` hands them out as whole numbers and
`site_agent.bounding` chooses among them; elsewhere the statement adds them up itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from site_agent.bounding import LARGEST_TOTAL
from site_agent.trees import (
    call,
    cast,
    clamped,
    double,
    grouped,
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
from wardround.federation.quantising import Quantiser
from wardround.federation.shape import Part, PartKind, Shape
from wardround.federation.study import Column, ColumnType, Unit

UNIT, GROUP, FIRST, SECOND = "unit", "cell", "first", "second"
_COMPARISONS: Mapping[Operator, Callable[..., exp.Expression]] = {
    Operator.EQUAL: exp.EQ,
    Operator.UNEQUAL: exp.NEQ,
    Operator.LESS: exp.LT,
    Operator.LESS_OR_EQUAL: exp.LTE,
    Operator.GREATER: exp.GT,
    Operator.GREATER_OR_EQUAL: exp.GTE,
}


@dataclass(frozen=True, slots=True)
class Keys:
    """Unit keys that are whole numbers of 64 bits, from the lowest to the highest."""

    low: int
    high: int

    @property
    def bits(self) -> int:
        """How many bits tell them apart."""
        return (self.high - self.low).bit_length()


@dataclass(frozen=True, slots=True)
class TypedRows:
    """A relation with the unit key as `unit` and each needed column under `column_name(...)`, typed.

    Columns have the study's types (BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE), every value is finite and
    defaults are in place: whatever a row held that is not a value of the type is NULL. `keys` is
    None where unit keys are of any other kind.
    """

    query: exp.Query
    keys: Keys | None


@dataclass(frozen=True, slots=True)
class Slice:
    """Those units whose key falls into one of `of` equal shares; a unit is always whole in one of them."""

    place: int = 0
    of: int = 1


def column_name(name: str) -> str:
    """How typed rows call a column of the study; never the name of anything else in the statement."""
    return f"c_{name}"


def columns_needed(form: Shape) -> tuple[Column, ...]:
    """The columns of the study that the question looks at, each once."""
    names = [name for aggregate in form.query.aggregates for name in aggregate.columns]
    names += [grouping.column for grouping in form.query.group_by]
    if form.query.cohort is not None:
        names += [leaf.column for leaf in leaves(form.query.cohort)]
    wanted = set(names)
    return tuple(column for column in form.table.columns if column.name in wanted)


def record_cap(form: Shape, part: Part) -> int | None:
    """How many records of a unit count, or None where `bounded_totals` alone keeps it within the norms."""
    if form.unit is not Unit.PATIENT:
        return None
    match part.kind:
        case PartKind.EVENTS if part.groups == 1:
            # With one cell it does not matter which rows count, only how many.
            return None
        case PartKind.EVENTS | PartKind.SUM:
            return form.table.max_rows_per_unit
        case _:
            return part.max_groups if part.max_groups < part.groups else None


def bounded_totals(form: Shape, part: Part, rows: TypedRows) -> exp.Query:
    """The totals where no unit has too many records: (cell, first[, second]) for each group that is not empty."""
    sums: list[exp.Expression] = []
    for name in (FIRST, SECOND)[: part.coordinates]:
        total = cast(exp.Sum(this=ref(name)), "INT128")
        inside = clamped(total, -LARGEST_TOTAL, LARGEST_TOTAL, "INT128")
        sums.append(named(cast(inside, "BIGINT"), name))
    statement = grouped(exp.to_table("records"), [ref(GROUP)], sums)
    return with_records(statement, form, part, rows, Slice())


def with_records(
    statement: exp.Select, form: Shape, part: Part, rows: TypedRows, share: Slice, *, materialized: bool | None = None
) -> exp.Select:
    """`statement` over `records` (unit, cell, first[, second]) of the units in `share`."""
    selected = _selected(form, part, rows)
    if share.of > 1:
        bucket = exp.Mod(this=call("HASH", ref(UNIT)), expression=cast(text(str(share.of)), "UBIGINT"))
        selected = selected.where(
            exp.EQ(this=paren(bucket), expression=cast(text(str(share.place)), "UBIGINT")), copy=False
        )
    return statement.with_("selected", as_=selected, copy=False).with_(
        "records", as_=_records(form, part), materialized=materialized, copy=False
    )


# --- From rows to records: one record is what the cap counts ---------------------------------------------


def _selected(form: Shape, part: Part, rows: TypedRows) -> exp.Query:
    """The cohort's rows as (unit, cell[, first]) in integers; rows that lack one of them are left out."""
    projection: list[exp.Expression] = [ref(UNIT), named(_cell(form), GROUP)]
    present = [UNIT, GROUP]
    if part.quantisers:
        projection.append(named(_quantised(part.columns[0], form, part.quantisers[0]), FIRST))
        present.append(FIRST)
    inner = exp.select(*projection).from_(rows.query.subquery("typed"), copy=False)
    if form.query.cohort is not None:
        inner = inner.where(_condition(form.query.cohort, form), copy=False)
    outer = exp.select(*(ref(name) for name in present)).from_(inner.subquery("chosen", copy=False), copy=False)
    return outer.where(*(paren(is_null(ref(name)).not_()) for name in present), copy=False)


def _records(form: Shape, part: Part) -> exp.Query:
    """What the norms count: rows, or one record for each unit and group."""
    by_patient = form.unit is Unit.PATIENT
    source = exp.to_table("selected")
    key_columns = [ref(UNIT), ref(GROUP)]
    match part.kind:
        case PartKind.EVENTS if by_patient and part.groups == 1:
            capped = call("LEAST", exp.Count(this=exp.Star()), integer(form.table.max_rows_per_unit))
            value = exp.Mul(this=cast(capped, "BIGINT"), expression=integer(part.increment))
            return grouped(source, key_columns, [named(value, FIRST)])
        case PartKind.EVENTS:
            return exp.select(*key_columns, named(integer(part.increment), FIRST)).from_(source)
        case PartKind.PATIENTS:
            one = named(call("ANY_VALUE", integer(part.increment)), FIRST)
            return grouped(source, key_columns, [one])
        case PartKind.SUM:
            return exp.select(*key_columns, ref(FIRST)).from_(source)
        case _:
            levels = part.quantisers[0].high
            mean = _whole_mean() if by_patient else ref(FIRST)
            first = named(mean, FIRST)
            second = named(exp.Sub(this=integer(levels), expression=paren(mean.copy())), SECOND)
            if not by_patient:
                return exp.select(*key_columns, first, second).from_(source)
            return grouped(source, key_columns, [first, second])


def _whole_mean() -> exp.Expression:
    """The unit's mean rounded to a whole level: ⌊(2·sum + n) / 2n⌋, between levels because they are ≥ 0."""
    total = cast(exp.Sum(this=ref(FIRST)), "INT128")
    number = cast(exp.Count(this=exp.Star()), "INT128")
    above = exp.Add(this=paren(exp.Mul(this=total, expression=integer(2))), expression=number)
    below = exp.Mul(this=number.copy(), expression=integer(2))
    return cast(exp.IntDiv(this=paren(above), expression=paren(below)), "BIGINT")


# --- Cells and levels -------------------------------------------------------------------------------------


def _cell(form: Shape) -> exp.Expression:
    """The number of the row's group in the order of `form.group_keys`; NULL outside the public values."""
    cell: exp.Expression = integer(0)
    for grouping in form.query.group_by:
        column = form.table.column(grouping.column)
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
