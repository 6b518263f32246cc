"""The records of a part as whole numbers, in DuckDB's SQL, for a choice among those of units that have too many.

Units are told apart exactly: by their own key where it is a whole number that fits beside the record's,
and by a code for each key otherwise. A hash of a key only ever decides which records count, never whose
they are: two patients taken for one would move a total by twice the norm.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from site_agent.reading.bounding.contribution_bounding import RecordNumber, record_number
from site_agent.reading.bounding.unit_shares import UnitShare
from site_agent.reading.statements.dialect import Dialect
from site_agent.reading.statements.records import CELL, RECORDS, UNIT, TypedRows, value_names, with_records
from site_agent.reading.statements.sql_trees import (
    call,
    cast,
    counted,
    grouped,
    identifier,
    integer,
    named,
    paren,
    ref,
    relation,
    text,
)
from wardround.federation.forms.parts import AnswerLayout, Part

SEED, NUMBER, COPIES = "seed", "number", "copies"
MINE, FIRST, WITHOUT = "mine", "first", "without"
"""Parameters of statements: a unit, beginnings of numbers, units that are left out."""

_CODE, _CROWDED = "code", "crowded"
# Not 32: the factor that makes room for a record's bits must itself be a number of the type.
_SMALL = 31


@dataclass(frozen=True, slots=True)
class Keys:
    """Unit keys that are whole numbers of 64 bits, from the lowest to the highest."""

    low: int
    high: int

    @property
    def bits(self) -> int:
        """How many bits tell them apart."""
        return (self.high - self.low).bit_length()


def among(share: UnitShare, rows: TypedRows) -> TypedRows:
    """The rows of a share's units; those that it leaves out are the parameter `$without`."""
    found = rows
    if share.of > 1:
        bucket = exp.Mod(this=call("HASH", ref(UNIT)), expression=cast(text(str(share.of)), "UBIGINT"))
        found = _where(found, exp.EQ(this=paren(bucket), expression=cast(text(str(share.place)), "UBIGINT")))
    if share.without:
        found = _where(found, exp.Not(this=paren(_listed(ref(UNIT), call("UNNEST", exp.Placeholder(this=WITHOUT))))))
    return found


def parameters(share: UnitShare) -> dict[str, object]:
    """What a statement over a share's rows names and does not hold."""
    return {WITHOUT: list(share.without)} if share.without else {}


def numbered_records(form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect, keys: Keys) -> exp.Select:
    """All records of units with one of `keys`, each as one number: the unit's place among them, then its own number."""
    number = record_number(part)
    kind = _unsigned(keys.bits + number.bits)
    place = cast(exp.Sub(this=ref(UNIT), expression=integer(keys.low)), kind)
    packed = exp.Add(this=_times(place, number.bits, kind), expression=_number(part, number, kind))
    # The keys were looked up by an earlier statement: a unit that came since must not be taken for another.
    inside = exp.Between(this=ref(UNIT), low=integer(keys.low), high=integer(keys.high))
    statement = exp.select(named(packed, NUMBER)).from_(relation(RECORDS)).where(inside, copy=False)
    return with_records(statement, form, part, rows, dialect)


def coded_records(
    form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect, *, cap: int, whole_keys: bool
) -> exp.Select:
    """(unit, seed, number, copies): records of units with more than `cap` one by one, all others added up as unit 0.

    The units are numbered 1, 2, … in no order, so that they are told apart exactly, whatever the type of the
    key; only the seed, which is the unit's own, may decide anything.
    """
    many = exp.GT(this=counted(), expression=integer(cap))
    seed, kind = _seed(whole_keys=whole_keys)
    columns: list[exp.Expression] = [named(exp.Window(this=exp.RowNumber()), _CODE), named(seed, SEED)]
    crowded = grouped(relation(RECORDS), [ref(UNIT)], columns).having(many, copy=False)
    record = record_number(part)
    number = named(_number(part, record, "UBIGINT"), NUMBER)
    beside = [ref(name) for name in wide_names(part)]
    zero, one = (cast(text(digit), "UBIGINT") for digit in "01")
    chosen_from = exp.select(named(cast(ref(_CODE), "UBIGINT"), UNIT), ref(SEED), number, named(one, COPIES), *beside)
    added = exp.select(
        named(zero, UNIT),
        named(cast(text("0"), kind), SEED),
        number.copy(),
        named(cast(counted(), "UBIGINT"), COPIES),
        *(column.copy() for column in beside),
    )
    same = [ref(NUMBER), *(column.copy() for column in beside)]
    both = exp.union(
        chosen_from.from_(relation(RECORDS)).join(_crowded("INNER"), copy=False),
        added.from_(relation(RECORDS)).join(_crowded("ANTI"), copy=False).group_by(*same, copy=False),
        distinct=False,
    )
    wanted = (UNIT, SEED, NUMBER, COPIES, *wide_names(part))
    statement = exp.select(*(ref(name) for name in wanted)).from_(both.subquery("both"))
    # Materialised: every reference must see the very same rows, whatever happens to the file meanwhile.
    statement = with_records(statement, form, part, rows, dialect, materialized=True)
    return statement.with_(_CROWDED, as_=crowded, copy=False)


def unit_records(form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect) -> exp.Select:
    """The unit of every record."""
    return with_records(exp.select(ref(UNIT)).from_(relation(RECORDS)), form, part, rows, dialect)


def giant_units(records: exp.Query, *, most: int, whole_keys: bool) -> exp.Select:
    """(unit, seed) of units with more than `most` of some records."""
    many = exp.GT(this=counted(), expression=integer(most))
    seed, _ = _seed(whole_keys=whole_keys)
    return grouped(records.subquery("every"), [ref(UNIT)], [named(seed, SEED)]).having(many, copy=False)


def counted_records(
    form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect, *, of: int, by: int
) -> exp.Select:
    """(number, copies): how many records of the unit `$mine` have each number, moved right by `by` bits.

    Of those records that are one of `$first` when they are moved by `of`.
    """
    number = _number(part, record_number(part), "UBIGINT", whole=True)
    first = _listed(_moved(number, of), cast(call("UNNEST", exp.Placeholder(this=FIRST)), "UBIGINT"))
    moved = exp.select(named(_moved(number.copy(), by), NUMBER)).from_(relation(RECORDS)).where(first, copy=False)
    found = grouped(moved.subquery("moved"), [ref(NUMBER)], [named(counted(), COPIES)])
    return with_records(found, form, part, one_unit(rows), dialect)


def one_unit(rows: TypedRows) -> TypedRows:
    """The rows of the unit `$mine`."""
    return _where(rows, exp.EQ(this=ref(UNIT), expression=exp.Placeholder(this=MINE)))


def _where(rows: TypedRows, condition: exp.Expression) -> TypedRows:
    return TypedRows(exp.select("*").from_(rows.query.subquery("every")).where(condition, copy=False))


def _listed(value: exp.Expression, listed: exp.Expression) -> exp.Expression:
    """Whether a value is in a list; unnested, so that it is looked up and not searched for."""
    return exp.In(this=value, query=exp.select(listed).subquery())


def _seed(*, whole_keys: bool) -> tuple[exp.Expression, str]:
    """What decides where a unit's choice begins, and its type: a whole number is its own seed, other keys are hashed.

    As beside packed records, whose units have no other: which way is taken depends on all keys, the choice may not.
    """
    seed, kind = (ref(UNIT), "BIGINT") if whole_keys else (call("HASH", ref(UNIT)), "UBIGINT")
    return cast(seed, kind), kind


def wide_names(part: Part) -> tuple[str, ...]:
    """The values that stand beside the record's number because they do not fit into it."""
    return value_names(part) if record_number(part).wide else ()


def _crowded(kind: str) -> exp.Join:
    return exp.Join(this=relation(_CROWDED), kind=kind, using=[identifier(UNIT)])


def _unsigned(bits: int) -> str:
    """The smaller type that holds so many bits."""
    return "UINTEGER" if bits <= _SMALL else "UBIGINT"


def _moved(number: exp.Expression, bits: int) -> exp.Expression:
    return paren(exp.IntDiv(this=paren(number), expression=cast(text(str(1 << bits)), "UBIGINT")))


def _number(part: Part, record: RecordNumber, kind: str, *, whole: bool = False) -> exp.Expression:
    """The record's number; `whole` where its values are in it although they make it wide."""
    number = cast(ref(CELL), kind)
    if record.wide and not whole:
        return number
    for name, bits, lowest in zip(value_names(part), record.value_bits, record.lowest, strict=True):
        offset = exp.Sub(this=ref(name), expression=integer(lowest))
        number = exp.Add(this=_times(number, bits, kind), expression=cast(offset, kind))
    return paren(number)


def _times(value: exp.Expression, bits: int, kind: str) -> exp.Expression:
    return exp.Mul(this=paren(value), expression=cast(text(str(1 << bits)), kind))
