"""The choice among a unit's records by one sort of whole numbers inside PostgreSQL.

A record is one number: its unit, then some bits of a keyed hash of unit and record, then the record itself.
Sorted, a unit's records stand together in a random order of its own, and a record counts unless the one `cap`
places further on belongs to the same unit. That takes one sort and one comparison a record, no window and no
join. Nothing but a unit's own key and records decides; where a row lies and what others hold never do.

Where a hash does not fit beside a long record, it is folded into it: the lowest bits of the last value change
places with the rest and are mixed with a hash of it, which takes no bit more and can be undone.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from site_agent.reading.bounding.contribution_bounding import RecordNumber, record_number
from site_agent.reading.sources.postgresql.dialect import PostgresqlDialect
from site_agent.reading.statements.records import CELL, RECORDS, UNIT, TypedRows, value_names, with_records
from site_agent.reading.statements.sql_trees import call, integer, minus, named, paren, plus, ref, relation
from site_agent.reading.statements.tally_sql import tally_of
from wardround.federation.forms.parts import AnswerLayout, Part

_WORD = 63
_HASH_BITS = 12
_LEAST_UNIT_BITS = 31
_LEAST_FOLDED_UNIT_BITS = 22
_COUNTING, _NUMBER = "counting", "number"
_LEVELS = "chosen"
"""What `selected` calls the rows whose levels it has just worked out."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How a unit and its record share one number of 63 bits; `folded` where the hash has no bits of its own."""

    record: RecordNumber
    folded: bool = False

    @property
    def unit_bits(self) -> int:
        """Keys from 0 to 2^unit_bits − 1 fit."""
        return _WORD - self.own_bits

    @property
    def own_bits(self) -> int:
        """The bits behind the unit's."""
        return self.record.bits if self.folded else _HASH_BITS + self.record.bits

    @property
    def rest_bits(self) -> int:
        """What of a folded record is not mixed."""
        return self.record.bits - _HASH_BITS

    def holds(self, unit: exp.Expression) -> exp.Expression:
        """Whether a unit's key fits; a negative one is −1 when it is moved right."""
        return exp.EQ(this=paren(_right(unit, self.unit_bits)), expression=integer(0))


def packing(part: Part) -> Packing | None:
    """None where records are too long."""
    record = record_number(part)
    if record.wide:
        return None
    beside, folded = Packing(record), Packing(record, folded=True)
    if beside.unit_bits >= _LEAST_UNIT_BITS:
        return beside
    # Records that differ in the mixed bits alone are in no even order: these may be bits of a value, never of a cell.
    fine = bool(record.value_bits) and record.value_bits[-1] >= _HASH_BITS
    return folded if fine and folded.unit_bits >= _LEAST_FOLDED_UNIT_BITS else None


def restricted(rows: TypedRows, condition: exp.Expression) -> TypedRows:
    """Some of the rows."""
    return TypedRows(exp.select("*").from_(rows.query.subquery("every")).where(condition, copy=False))


def levels_once(statement: exp.Select, part: Part) -> exp.Select:
    """The statement with a fence behind the levels: else PostgreSQL works each of them out twice."""
    if part.quantisers:
        for found in list(statement.find_all(exp.Subquery)):
            if found.alias == _LEVELS and isinstance(found.this, exp.Select):
                _fenced(found.this)
    return statement


def packed_tally_statement(
    form: AnswerLayout, part: Part, rows: TypedRows, dialect: PostgresqlDialect, *, cap: int, packed: Packing
) -> exp.Select:
    """The tally over at most `cap` records of each unit whose key fits; a line without a cell says that one did not."""
    numbers = _numbers(part, packed, dialect)
    # Fenced off: PostgreSQL sorts single numbers much faster than lines, and would sort lines by itself.
    ordered = exp.select(ref("x")).from_(numbers.subquery("numbers")).order_by(ref("x"))
    together = exp.select(named(exp.ArrayAgg(this=ref("x")), "v")).from_(_fenced(ordered).subquery("ordered"))
    further = exp.Bracket(this=ref("v"), expressions=[exp.Slice(this=exp.Literal.number(cap + 1))])
    pairs = exp.select(named(call("UNNEST", ref("v")), "a"), named(call("UNNEST", further), "b"))
    pairs = _fenced(pairs.from_(_fenced(together).subquery("together")))
    differs = paren(exp.BitwiseXor(this=ref("a"), expression=ref("b")))
    other = exp.NullSafeNEQ(this=paren(_right(differs, packed.own_bits)), expression=integer(0))
    return _counting(pairs.subquery("pairs"), other, form, part, rows, dialect, packed)


def ranked_tally_statement(
    form: AnswerLayout, part: Part, rows: TypedRows, dialect: PostgresqlDialect, *, cap: int, packed: Packing
) -> exp.Select:
    """The same choice, the last `cap` records of each unit in the order of their numbers, by a window and no array."""
    unit = paren(_right(ref("x"), packed.own_bits))
    last = exp.Order(expressions=[exp.Ordered(this=ref("x"), desc=True)])
    place = exp.Window(this=exp.RowNumber(), partition_by=[unit], order=last)
    placed = exp.select(named(ref("x"), "a"), named(place, "b")).from_(
        _numbers(part, packed, dialect).subquery("numbers")
    )
    kept = exp.LTE(this=ref("b"), expression=integer(cap))
    return _counting(placed.subquery("placed"), kept, form, part, rows, dialect, packed)


def _numbers(part: Part, packed: Packing, dialect: PostgresqlDialect) -> exp.Select:
    """Each record as one number `x`; none where its unit's key does not fit."""
    number = _number(part, packed.record)
    single: exp.Expression = relation(RECORDS)
    if packed.folded:
        # Fenced off: PostgreSQL would work a level out again wherever its number is used.
        single = _fenced(exp.select(ref(UNIT), named(number, _NUMBER)).from_(single)).subquery("single")
        number = ref(_NUMBER)
    every = _folded(packed, dialect) if packed.folded else _beside(number, packed, dialect)
    return _fenced(exp.select(named(exp.Case().when(packed.holds(ref(UNIT)), every), "x")).from_(single))


def _counting(
    source: exp.Subquery,
    condition: exp.Expression,
    form: AnswerLayout,
    part: Part,
    rows: TypedRows,
    dialect: PostgresqlDialect,
    packed: Packing,
) -> exp.Select:
    """The tally of those numbers `a` that a condition lets count."""
    held = named(_unfolded(packed, dialect), "a") if packed.folded else ref("a")
    chosen = exp.select(held).from_(source).where(condition, copy=False)
    if packed.folded:
        chosen = _fenced(chosen)
    counting = exp.select(*_apart(part, packed.record)).from_(chosen.subquery("kept"))
    statement = with_records(tally_of(_COUNTING, form, part, dialect), form, part, rows, dialect)
    return statement.with_(_COUNTING, as_=counting, copy=False)


def _beside(number: exp.Expression, packed: Packing, dialect: PostgresqlDialect) -> exp.Expression:
    """Unit, hash, record."""
    whole = paren(_either(_left(ref(UNIT), packed.record.bits), number))
    drawn = exp.BitwiseAnd(this=_mixed(whole, dialect), expression=integer((2**_HASH_BITS - 1) << packed.record.bits))
    own = _either(paren(drawn), number.copy())
    return _either(paren(_left(ref(UNIT), packed.own_bits)), paren(own))


def _folded(packed: Packing, dialect: PostgresqlDialect) -> exp.Expression:
    """Unit, the record's lowest bits mixed with a hash of unit and rest, the rest."""
    rest = paren(_right(ref(_NUMBER), _HASH_BITS))
    whole = paren(_either(paren(_left(ref(UNIT), packed.rest_bits)), rest))
    lowest = paren(_lowest(paren(exp.BitwiseXor(this=ref(_NUMBER), expression=_mixed(whole, dialect))), _HASH_BITS))
    front = paren(_either(paren(_left(ref(UNIT), _HASH_BITS)), lowest))
    return _either(paren(_left(front, packed.rest_bits)), rest.copy())


def _unfolded(packed: Packing, dialect: PostgresqlDialect) -> exp.Expression:
    """The record of the number `a`; see `_folded`."""
    rest = paren(_lowest(ref("a"), packed.rest_bits))
    unit = paren(_right(ref("a"), packed.own_bits))
    whole = paren(_either(paren(_left(unit, packed.rest_bits)), rest))
    middle = paren(_right(ref("a"), packed.rest_bits))
    lowest = paren(_lowest(paren(exp.BitwiseXor(this=middle, expression=_mixed(whole, dialect))), _HASH_BITS))
    return _either(paren(_left(rest.copy(), _HASH_BITS)), lowest)


def _mixed(whole: exp.Expression, dialect: PostgresqlDialect) -> exp.Expression:
    return call("HASHINT8EXTENDED", whole, integer(dialect.seed))


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
    return paren(_lowest(shifted, bits))


def _lowest(value: exp.Expression, bits: int) -> exp.Expression:
    return exp.BitwiseAnd(this=value, expression=integer(2**bits - 1))


def _fenced(query: exp.Select) -> exp.Select:
    return query.offset(0, copy=False)


def _left(value: exp.Expression, bits: int) -> exp.Expression:
    return exp.BitwiseLeftShift(this=value, expression=exp.Literal.number(bits))


def _right(value: exp.Expression, bits: int) -> exp.Expression:
    return exp.BitwiseRightShift(this=value, expression=exp.Literal.number(bits))


def _either(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.BitwiseOr(this=left, expression=right)
