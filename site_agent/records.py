"""The records of a part as whole numbers, in SQL, for a choice among those of units that have too many.

Units are told apart exactly: by their own key where it is a whole number that fits beside the record's,
and by a code for each key otherwise. A hash of a key only ever decides which records count, never whose
they are: two patients taken for one would move a total by twice the norm.
"""

from __future__ import annotations

from sqlglot import exp

from site_agent.bounding import RecordNumber, record_number
from site_agent.statistics import FIRST, GROUP, UNIT, Keys, Slice, TypedRows, with_records
from site_agent.trees import call, cast, grouped, identifier, integer, named, paren, ref, text
from wardround.federation.shape import Part, Shape

SEED, NUMBER, COPIES = "seed", "number", "copies"
_CODE = "code"
# Not 32: the factor that makes room for a record's bits must itself be a number of the type.
_SMALL = 31


def numbered_records(form: Shape, part: Part, rows: TypedRows, keys: Keys, share: Slice) -> exp.Select:
    """All records of units with one of `keys`, each as one number: the unit's place among them, then its own number."""
    number = record_number(part)
    kind = _unsigned(keys.bits + number.bits)
    place = cast(exp.Sub(this=ref(UNIT), expression=integer(keys.low)), kind)
    packed = exp.Add(this=_times(place, number.bits, kind), expression=_number(number, kind))
    # The keys were looked up by an earlier statement: a unit that came since must not be taken for another.
    inside = exp.Between(this=ref(UNIT), low=integer(keys.low), high=integer(keys.high))
    statement = exp.select(named(packed, NUMBER)).from_("records").where(inside, copy=False)
    return with_records(statement, form, part, rows, share)


def coded_records(form: Shape, part: Part, rows: TypedRows, cap: int, share: Slice) -> exp.Select:
    """(unit, seed, number, copies): records of units with more than `cap` one by one, all others added up as unit 0.

    The units are numbered 1, 2, … in no order, so that they are told apart exactly, whatever the type of the
    key; only the seed, which is the unit's own, may decide anything.
    """
    many = exp.GT(this=exp.Count(this=exp.Star()), expression=integer(cap))
    # A whole number is its own seed, as beside packed records: which of the two ways is taken depends on all keys.
    seed, kind = (call("HASH", ref(UNIT)), "UBIGINT") if rows.keys is None else (ref(UNIT), "BIGINT")
    columns: list[exp.Expression] = [named(exp.Window(this=exp.RowNumber()), _CODE), named(cast(seed, kind), SEED)]
    crowded = grouped(exp.to_table("records"), [ref(UNIT)], columns).having(many, copy=False)
    number = named(_number(record_number(part), "UBIGINT"), NUMBER)
    zero, one = (cast(text(digit), "UBIGINT") for digit in "01")
    chosen_from = exp.select(named(cast(ref(_CODE), "UBIGINT"), UNIT), ref(SEED), number, named(one, COPIES))
    added = exp.select(named(zero, UNIT), named(cast(text("0"), kind), SEED), number.copy(), named(_copies(), COPIES))
    both = exp.union(
        chosen_from.from_("records").join(_crowded("INNER"), copy=False),
        added.from_("records").join(_crowded("ANTI"), copy=False).group_by(ref(NUMBER), copy=False),
        distinct=False,
    )
    statement = exp.select(*(ref(name) for name in (UNIT, SEED, NUMBER, COPIES))).from_(both.subquery("both"))
    # Materialised: every reference must see the very same rows, whatever happens to the file meanwhile.
    statement = with_records(statement, form, part, rows, share, materialized=True)
    return statement.with_("crowded", as_=crowded, copy=False)


def _crowded(kind: str) -> exp.Join:
    return exp.Join(this=exp.to_table("crowded"), kind=kind, using=[identifier(UNIT)])


def _copies() -> exp.Expression:
    return cast(exp.Count(this=exp.Star()), "UBIGINT")


def _unsigned(bits: int) -> str:
    """The smaller type that holds so many bits."""
    return "UINTEGER" if bits <= _SMALL else "UBIGINT"


def _number(number: RecordNumber, kind: str) -> exp.Expression:
    cell = _times(cast(ref(GROUP), kind), number.value_bits, kind)
    if number.value_bits == 0:
        return cell
    offset = exp.Sub(this=ref(FIRST), expression=integer(number.lowest))
    return paren(exp.Add(this=cell, expression=cast(offset, kind)))


def _times(value: exp.Expression, bits: int, kind: str) -> exp.Expression:
    return exp.Mul(this=value, expression=cast(text(str(1 << bits)), kind))
