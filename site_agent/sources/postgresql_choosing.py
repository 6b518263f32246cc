"""The choice among a unit's records by one sort of whole numbers inside PostgreSQL.

A record is one number: its unit, then some bits of a keyed hash of unit and record, then the record itself.
Sorted, a unit's records stand together in a random order of its own, and a record counts unless the one `cap`
places further on belongs to the same unit. That takes one sort and one comparison a record, no window and no
join. Nothing but a unit's own key and records decides; where a row lies and what others hold never do.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from site_agent.bounding import RecordNumber, record_number
from site_agent.sources.postgresql_dialect import PostgresqlDialect
from site_agent.statements.records import CELL, RECORDS, UNIT, TypedRows, value_names, with_records
from site_agent.statements.tallying import tally_of
from site_agent.statements.trees import call, integer, minus, named, paren, plus, ref, relation
from wardround.federation.shape import Part, Shape

_WORD = 63
_HASH_BITS = 12
_LEAST_UNIT_BITS = 31
_COUNTING = "counting"


@dataclass(frozen=True, slots=True)
class Packing:
    """How a unit and its record share one number of 63 bits."""

    record: RecordNumber

    @property
    def unit_bits(self) -> int:
        """Keys from 0 to 2^unit_bits − 1 fit."""
        return _WORD - _HASH_BITS - self.record.bits

    @property
    def own_bits(self) -> int:
        """The bits behind the unit's."""
        return _HASH_BITS + self.record.bits

    def holds(self, unit: exp.Expression) -> exp.Expression:
        """Whether a unit's key fits; a negative one is −1 when it is moved right."""
        return exp.EQ(this=paren(_right(unit, self.unit_bits)), expression=integer(0))


def packing(part: Part) -> Packing | None:
    """None where records are too long."""
    found = Packing(record_number(part))
    return None if found.record.wide or found.unit_bits < _LEAST_UNIT_BITS else found


@dataclass(frozen=True, slots=True)
class Share:
    """Those units of whom a hash falls into one of `of` equal shares, a power of two."""

    place: int = 0
    of: int = 1

    def among(self, rows: TypedRows, dialect: PostgresqlDialect) -> TypedRows:
        """The rows of these units."""
        if self.of == 1:
            return rows
        bucket = exp.BitwiseAnd(this=dialect.mixed(ref(UNIT)), expression=integer(self.of - 1))
        mine = exp.EQ(this=paren(bucket), expression=integer(self.place))
        return restricted(rows, mine)


def restricted(rows: TypedRows, condition: exp.Expression) -> TypedRows:
    """Some of the rows."""
    return TypedRows(exp.select("*").from_(rows.query.subquery("every")).where(condition, copy=False))


def packed_tally_statement(
    form: Shape, part: Part, rows: TypedRows, dialect: PostgresqlDialect, *, cap: int, packed: Packing
) -> exp.Select:
    """The tally over at most `cap` records of each unit; a line without a cell says that some keys did not fit."""
    number = _number(part, packed.record)
    whole = paren(_either(_left(ref(UNIT), packed.record.bits), number))
    mixed = call("HASHINT8EXTENDED", whole, integer(dialect.seed))
    drawn = exp.BitwiseAnd(this=mixed, expression=integer((2**_HASH_BITS - 1) << packed.record.bits))
    own = _either(paren(drawn), number.copy())
    every = _either(paren(_left(ref(UNIT), packed.own_bits)), paren(own))
    numbers = exp.select(named(exp.Case().when(packed.holds(ref(UNIT)), every), "x")).from_(relation(RECORDS))
    # Fenced off: PostgreSQL sorts single numbers much faster than lines, and would sort lines by itself.
    ordered = exp.select(ref("x")).from_(_fenced(numbers).subquery("numbers")).order_by(ref("x"))
    together = exp.select(named(exp.ArrayAgg(this=ref("x")), "v")).from_(_fenced(ordered).subquery("ordered"))
    further = exp.Bracket(this=ref("v"), expressions=[exp.Slice(this=exp.Literal.number(cap + 1))])
    pairs = exp.select(named(call("UNNEST", ref("v")), "a"), named(call("UNNEST", further), "b"))
    pairs = _fenced(pairs.from_(_fenced(together).subquery("together")))
    counting = exp.select(*_apart(part, packed.record)).from_(pairs.subquery("pairs"))
    differs = paren(exp.BitwiseXor(this=ref("a"), expression=ref("b")))
    other = exp.NullSafeNEQ(this=paren(_right(differs, packed.own_bits)), expression=integer(0))
    counting = counting.where(other, copy=False)
    statement = with_records(tally_of(_COUNTING, form, part, dialect), form, part, rows, dialect)
    return statement.with_(_COUNTING, as_=counting, copy=False)


def _number(part: Part, record: RecordNumber) -> exp.Expression:
    number: exp.Expression = ref(CELL)
    for name, bits, lowest in zip(value_names(part), record.value_bits, record.lowest, strict=True):
        number = paren(_either(paren(_left(number, bits)), paren(minus(ref(name), integer(lowest)))))
    return number


def _apart(part: Part, record: RecordNumber) -> list[exp.Expression]:
    """The cell and the values of the number `a`."""
    moved = 0
    values: list[exp.Expression] = []
    for name, bits, lowest in reversed(
        list(zip(value_names(part), record.value_bits, record.lowest, strict=True)),
    ):
        values.append(named(plus(_bits(moved, bits), integer(lowest)), name))
        moved += bits
    return [named(_bits(moved, record.cell_bits), CELL), *reversed(values)]


def _bits(moved: int, bits: int) -> exp.Expression:
    shifted = paren(_right(ref("a"), moved)) if moved else ref("a")
    return paren(exp.BitwiseAnd(this=shifted, expression=integer(2**bits - 1)))


def _fenced(query: exp.Select) -> exp.Select:
    return query.offset(0, copy=False)


def _left(value: exp.Expression, bits: int) -> exp.Expression:
    return exp.BitwiseLeftShift(this=value, expression=exp.Literal.number(bits))


def _right(value: exp.Expression, bits: int) -> exp.Expression:
    return exp.BitwiseRightShift(this=value, expression=exp.Literal.number(bits))


def _either(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.BitwiseOr(this=left, expression=right)
