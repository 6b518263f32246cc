"""From what a file holds to the five types of a study, without one value that can raise.

What is not a value of the declared type (unparsable text, NaN, infinity, a fraction in an integer column,
an integer beyond 64 bits) is NULL, and NULL is the column's declared default where it has one. Empty text
is NULL too, so that CSV and Parquet agree.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from site_agent.reading.sources.duckdb.dialect import literal
from site_agent.reading.statements.sql_trees import call, cast, identifier, integer, is_null, paren, ref, text, type_of
from wardround.federation.study.study import Column, ColumnType

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_INTEGERS = frozenset({*_WHOLE, "HUGEINT", "UHUGEINT"})
_FLOATS = frozenset({"FLOAT", "DOUBLE"})
_NANOSECONDS_UTC = "TIMESTAMPTZ_NS"
_TIMES = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", _NANOSECONDS_UTC)
_DAYS = frozenset({"DATE", *_TIMES})
_EDGED = frozenset(_TIMES) - {"TIMESTAMP_NS", _NANOSECONDS_UTC}
MICROSECONDS = (-9_223_372_022_400_000_000, 2**63 - 2)
"""The first and the last time that DuckDB can do something with; beyond are its infinities, and times it ends at."""

_NESTED = ("STRUCT", "MAP", "UNION", "VARIANT", "GEOMETRY")
_TRUE = ("true", "t", "yes", "y", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "0", "0.0")
TEXT = "VARCHAR"
NOTHING = '"NULL"'
"""The type of a Parquet column that was written without any value."""

_SIGNED = frozenset(_WHOLE) - {"UBIGINT"}
_PLAIN_KEYS = frozenset({TEXT, *_WHOLE})


def accepts(kind: ColumnType, stored: str) -> bool:
    """Whether a column stored as `stored` can hold what the study declares."""
    if stored == NOTHING:
        return True
    number = stored in _INTEGERS or stored in _FLOATS or stored.startswith("DECIMAL")
    match kind:
        case ColumnType.INTEGER | ColumnType.NUMBER:
            return number
        case ColumnType.CATEGORY:
            return stored in (TEXT, "UUID") or stored in _INTEGERS or stored.startswith("ENUM")
        case ColumnType.BOOLEAN:
            return stored == "BOOLEAN" or stored in _INTEGERS or stored in _FLOATS
        case ColumnType.DATE:
            return stored in _DAYS


def accepts_key(stored: str) -> bool:
    """Whether a column can tell units apart: any type but a nested one."""
    return not stored.startswith(_NESTED) and not stored.endswith("]")


def is_whole_key(stored: Collection[str]) -> bool:
    """Whether `typed_key` gives whole numbers of 64 bits for files that hold the key as `stored`."""
    return len(stored) == 1 and _SIGNED.issuperset(stored)


def typed_key(name: str, stored: str, *, alone: bool) -> exp.Expression:
    """The unit key; only equality matters, so the plain types stay as they are when all files have one.

    Numbers that are equal are one key whatever their type: a file that lacks one key often holds all others
    as doubles, and a patient taken for two would count twice. Texts are equal only if their bytes are.
    """
    value: exp.Expression = ref(name)
    if stored in _FLOATS or stored.startswith("DECIMAL"):
        value = _number_text(value, stored)
    elif not (alone and stored in _PLAIN_KEYS):
        written = cast(value, TEXT)
        value = _when(is_readable_time(value, stored), written) if stored in _EDGED else written
    if stored in _INTEGERS and alone:
        return value
    return _by_bytes(call("NULLIF", cast(value, TEXT), text("")))


def is_readable_time(value: exp.Expression, stored: str) -> exp.Expression:
    """Whether a time is one that DuckDB can write down; for some others it ends the database."""
    first, last = (cast(call("MAKE_TIMESTAMP", integer(micros)), stored) for micros in MICROSECONDS)
    return exp.Between(this=value.copy(), low=first, high=last)


def typed_column(name: str, column: Column, stored: str) -> exp.Expression:
    """The column's value in the study's type, its default in place of NULL."""
    value = _from_text(ref(name), column) if stored == TEXT else _from_stored(ref(name), column, stored)
    if column.default is None:
        return value
    default = float(column.default) if column.type is ColumnType.NUMBER else column.default  # type: ignore[arg-type]
    return call("COALESCE", value, literal(default))


def _from_text(value: exp.Expression, column: Column) -> exp.Expression:
    match column.type:
        case ColumnType.CATEGORY:
            return _by_bytes(call("NULLIF", value, text("")))
        case ColumnType.NUMBER:
            return _finite(_tried(value, "DOUBLE"))
        case ColumnType.INTEGER:
            # Text such as '12.7' would be rounded by the cast alone.
            return _when(_is_whole(_tried(value, "DOUBLE")), _tried(value, "BIGINT"))
        case ColumnType.BOOLEAN:
            return _boolean(call("LOWER", call("TRIM", value)), _TRUE, _FALSE)
        case ColumnType.DATE:
            return _finite(_tried(value, "DATE"))


def _from_stored(value: exp.Expression, column: Column, stored: str) -> exp.Expression:
    match column.type:
        case ColumnType.CATEGORY:
            return _tried(value, TEXT)
        case ColumnType.NUMBER:
            return _finite(_tried(value, "DOUBLE"))
        case ColumnType.INTEGER if stored in _INTEGERS or stored == NOTHING:
            return _tried(value, "BIGINT")
        case ColumnType.INTEGER:
            whole = _is_whole(value) if stored in _FLOATS else exp.EQ(this=value, expression=_floor(value))
            return _when(whole, _tried(value, "BIGINT"))
        case ColumnType.BOOLEAN if stored in ("BOOLEAN", NOTHING):
            return _tried(value, "BOOLEAN")
        case ColumnType.BOOLEAN:
            return _boolean(_tried(value, TEXT), ("1", "1.0"), ("0", "0.0", "-0.0"))
        case ColumnType.DATE if stored == NOTHING:
            return _tried(value, "DATE")
        case ColumnType.DATE if stored == _NANOSECONDS_UTC:
            # Nothing tells its infinities from other times; as microseconds they are such.
            return _from_stored(_tried(value, "TIMESTAMPTZ"), column, "TIMESTAMP WITH TIME ZONE")
        case ColumnType.DATE if stored in _EDGED:
            return _when(is_readable_time(value, stored), _tried(value, "DATE"))
        case ColumnType.DATE:
            # The cast would turn an infinite timestamp into a finite day.
            return _finite(_when(_is_finite(value), _tried(value, "DATE")))


def _number_text(value: exp.Expression, stored: str) -> exp.Expression:
    """A number as text that depends on nothing but its value: no sign of a zero, and no fraction of a whole number."""
    if stored in _FLOATS:
        whole, written = _is_whole(value), _when(_is_finite(value), cast(value, TEXT))
    else:
        whole = exp.EQ(this=value.copy(), expression=_floor(value))
        written = call("RTRIM", cast(value, TEXT), text("0"))
    digits = cast(_when(whole, _tried(value, "INT128")), TEXT)
    return call("COALESCE", digits, written)


def _by_bytes(value: exp.Expression) -> exp.Expression:
    """The text without the order of its own that a hospital may have given its column."""
    return paren(exp.Collate(this=value, expression=identifier("binary")))


def _tried(value: exp.Expression, sql_type: str) -> exp.Expression:
    return exp.TryCast(this=value.copy(), to=type_of(sql_type))


def _floor(value: exp.Expression) -> exp.Expression:
    return call("FLOOR", value.copy())


def _is_finite(value: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="ISFINITE", expressions=[value.copy()])


def _is_whole(value: exp.Expression) -> exp.Expression:
    whole = exp.EQ(this=value.copy(), expression=_floor(value))
    return exp.And(this=_is_finite(value), expression=paren(whole))


def _when(condition: exp.Expression, value: exp.Expression) -> exp.Expression:
    return exp.Case().when(condition, value)


def _finite(value: exp.Expression) -> exp.Expression:
    return _when(_is_finite(value), value.copy())


def _boolean(value: exp.Expression, true: tuple[str, ...], false: tuple[str, ...]) -> exp.Expression:
    decided = exp.Case().when(is_null(value.copy()), exp.null())
    for words, outcome in ((true, exp.true()), (false, exp.false())):
        listed = exp.In(this=value.copy(), expressions=[text(word) for word in words])
        decided = decided.when(listed, outcome)
    return cast(decided, "BOOLEAN")
