"""The columns of a Parquet file, decoded from bytes and whole numbers by SQL that has a value for every row.

The type of each column is the one that DuckDB's own reader gives it, and so is every value that this reader can read;
a value that it cannot read is NULL.
"""

from __future__ import annotations

import re

from sqlglot import exp

from site_agent.reading.sources.duckdb.columns import MICROSECONDS, is_readable_time
from site_agent.reading.sources.files.parquet_footer import StoredForm
from site_agent.reading.statements.sql_trees import call, cast, integer, paren, ref, text, type_of

_TEXTS = ("VARCHAR", "JSON")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TIMES = ("TIME", "TIME_NS", "TIME WITH TIME ZONE")
_STAMPS = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
_A_SECOND = {"MS": 10**3, "US": 10**6, "NS": 10**9}
_DIGITS = {"MS": 3, "US": 6, "NS": 9}
_ROOM = ((4, 16), (9, 32))
"""Up to so many digits, a decimal has so many bits."""

_HEX, _COMPLEMENT = "0123456789ABCDEF", "FEDCBA9876543210"


def can_fail(kind: str, stored: StoredForm) -> bool:
    """Whether a value of a column that DuckDB reads as `kind` may be none that it can read."""
    return (
        kind in _TEXTS
        or kind in _TIMES
        or (kind in _STAMPS and stored.unit in ("MS", "US"))
        or _DECIMAL.fullmatch(kind) is not None
    )


def in_range(name: str, kind: str) -> exp.Expression | None:
    """Whether a value is one of its type, where DuckDB reads others too and fails at what is done with them."""
    if kind in _STAMPS:
        return is_readable_time(ref(name), kind)
    if (found := _DECIMAL.fullmatch(kind)) is None:
        return None
    precision, scale = int(found[1]), int(found[2])
    digits = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
    return exp.Between(this=ref(name), low=cast(text(f"-{digits}"), kind), high=cast(text(digits), kind))


def decoded_value(name: str, kind: str, stored: StoredForm) -> exp.Expression:
    """The value of a bare column as `kind`, or NULL."""
    value = ref(name)
    if kind in _TEXTS:
        words = call("TRY", call("DECODE", value))
        return words if kind == "VARCHAR" else _tried(words, kind)
    if kind in _STAMPS:
        ratio = 1000 if stored.unit == "MS" else 1
        # The first is a multiple of a day.
        first, last = (integer(micros // ratio) for micros in MICROSECONDS)
        micros = exp.Mul(this=value.copy(), expression=integer(ratio))
        stamp = call("MAKE_TIMESTAMP" if kind == "TIMESTAMP" else "MAKE_TIMESTAMPTZ", micros)
        return exp.Case().when(exp.Between(this=value, low=first, high=last), stamp)
    if kind in _TIMES:
        return _time(value, kind, stored.unit)
    return _decimal(value, kind, in_bytes=stored.in_bytes)


def _time(value: exp.Expression, kind: str, unit: str) -> exp.Expression:
    second = _A_SECOND[unit]
    places = (3600 * second, 60 * second, second)
    parts = [_rest_of(value, None, places[0]), _rest_of(value, places[0], places[1])]
    parts += [_rest_of(value, places[1], places[2]), _rest_of(value, places[2], 1)]
    zone = "+00" if kind.endswith("ZONE") else ""
    layout = f"{{:02d}}:{{:02d}}:{{:02d}}.{{:0{_DIGITS[unit]}d}}{zone}"
    written = call("FORMAT", text(layout), *parts)
    inside = exp.Between(this=value.copy(), low=integer(0), high=integer(24 * 3600 * second))
    return exp.Case().when(inside, _tried(written, kind))


def _rest_of(value: exp.Expression, larger: int | None, smaller: int) -> exp.Expression:
    rest: exp.Expression = value.copy()
    if larger is not None:
        rest = paren(exp.Mod(this=rest, expression=integer(larger)))
    return exp.IntDiv(this=rest, expression=integer(smaller))


def _decimal(value: exp.Expression, kind: str, *, in_bytes: bool) -> exp.Expression:
    """The whole number without its point, as text; then with the point, where there are not too many digits."""
    precision, scale = (int(number) for number in kind.removeprefix("DECIMAL(").removesuffix(")").split(","))
    digits = _digits(value) if in_bytes else cast(_wrapped(value, precision), "VARCHAR")
    if not scale:
        return _tried(digits, kind)
    bare = call("LTRIM", digits.copy(), text("-"))
    size = call("GREATEST", call("STRLEN", bare.copy()), integer(scale))
    padded = call("LPAD", bare, cast(size, "INTEGER"), text("0"))
    pointed = call("REGEXP_REPLACE", padded, text(f"^(.*)(.{{{scale}}})$"), text(r"\1.\2"))
    sign = exp.Case().when(_negative_text(digits), text("-")).else_(text(""))
    return _tried(exp.DPipe(this=paren(sign), expression=pointed), kind)


def _wrapped(value: exp.Expression, precision: int) -> exp.Expression:
    """A whole number without the bits that DuckDB has no room for in a decimal of few digits, as its reader does it."""
    bits = next((bits for most, bits in _ROOM if precision <= most), 0)
    if not bits:
        return value
    low = paren(exp.BitwiseAnd(this=cast(value, "BIGINT"), expression=integer(2**bits - 1)))
    flipped = paren(call("XOR", low, integer(2 ** (bits - 1))))
    return exp.Sub(this=flipped, expression=integer(2 ** (bits - 1)))


def _digits(value: exp.Expression) -> exp.Expression:
    """Bytes as the whole number that they are: the highest first, the first bit its sign; NULL beyond 128 bits."""
    written = call("HEX", value.copy())
    flipped = call("TRANSLATE", written.copy(), text(_HEX), text(_COMPLEMENT))
    below = call("TRY", exp.Add(this=_unsigned(flipped), expression=cast(text("1"), "UHUGEINT")))
    negative = exp.GTE(this=call("LEFT", written.copy(), integer(1)), expression=text("8"))
    minus = exp.DPipe(this=text("-"), expression=cast(below, "VARCHAR"))
    return exp.Case().when(negative, minus).else_(cast(_unsigned(written), "VARCHAR"))


def _unsigned(written: exp.Expression) -> exp.Expression:
    short = exp.DPipe(this=text("0x0"), expression=call("LTRIM", written, text("0")))
    return _tried(paren(short), "UHUGEINT")


def _negative_text(digits: exp.Expression) -> exp.Expression:
    return exp.EQ(this=call("LEFT", digits.copy(), integer(1)), expression=text("-"))


def _tried(value: exp.Expression, sql_type: str) -> exp.Expression:
    return exp.TryCast(this=value.copy(), to=type_of(sql_type))
