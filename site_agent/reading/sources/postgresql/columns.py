"""From what PostgreSQL holds to the five types of a study, without one value that can raise.

What is not a value of the declared type is NULL, as from a file (`typed_columns`): text that is no number, NaN
and infinity, a fraction in an integer column, days before and after all days. PostgreSQL has no cast that
tries, so every cast stands behind a CASE that lets nothing through it could fail on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp

from site_agent.reading.sources.postgresql.dialect import literal, numeric
from site_agent.reading.statements.sql_trees import call, cast, identifier, joined, paren, text
from wardround.federation.study.study import Column, ColumnType

THIS = "this"
"""How the statement calls the hospital's relation."""

_TRUE = ("true", "t", "yes", "y", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "0", "0.0")
_LARGEST = 1.7976931348623157e308
_SMALLEST = 1e-300
_LOWEST, _BEYOND = -(2**63), 2**63
_NUMBER = r"^[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?[ \t\n\v\f\r]*$"
_DAY = r"^[ \t\n\v\f\r]*[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?[ \t\n\v\f\r]*$"
_BLANK = " \t\n\v\f\r"


class DatabaseType(StrEnum):
    """What a column of the database holds, as far as it matters here."""

    WHOLE = "whole"
    DOUBLE = "double"
    NUMERIC = "numeric"
    TEXT = "text"
    NAMED = "named"
    BOOLEAN = "boolean"
    DAY = "day"
    MOMENT = "moment"
    ZONED = "zoned"
    OTHER = "other"
    NESTED = "nested"


_STORED = {
    **dict.fromkeys(("int2", "int4", "int8"), DatabaseType.WHOLE),
    **dict.fromkeys(("float4", "float8"), DatabaseType.DOUBLE),
    "numeric": DatabaseType.NUMERIC,
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext", "char"), DatabaseType.TEXT),
    "uuid": DatabaseType.NAMED,
    "bool": DatabaseType.BOOLEAN,
    "date": DatabaseType.DAY,
    "timestamp": DatabaseType.MOMENT,
    "timestamptz": DatabaseType.ZONED,
    **dict.fromkeys(("json", "jsonb", "xml", "record"), DatabaseType.NESTED),
}
_NUMBERS = frozenset({DatabaseType.WHOLE, DatabaseType.DOUBLE, DatabaseType.NUMERIC, DatabaseType.TEXT})
_ACCEPTED = {
    ColumnType.INTEGER: _NUMBERS,
    ColumnType.NUMBER: _NUMBERS,
    ColumnType.BOOLEAN: _NUMBERS | {DatabaseType.BOOLEAN},
    ColumnType.CATEGORY: frozenset({DatabaseType.TEXT, DatabaseType.NAMED, DatabaseType.WHOLE}),
    ColumnType.DATE: frozenset({DatabaseType.DAY, DatabaseType.MOMENT, DatabaseType.ZONED, DatabaseType.TEXT}),
}
_COSTLY = frozenset({DatabaseType.TEXT, DatabaseType.NUMERIC})


@dataclass(frozen=True, slots=True)
class StoredType:
    """A type of the database: its name, and the letters by which its catalogue sorts types."""

    name: str
    kind: str
    category: str

    @property
    def stored(self) -> DatabaseType:
        """What it is here."""
        if self.category in ("A", "C", "R") or self.kind in ("c", "r", "m", "p"):
            return DatabaseType.NESTED
        if self.kind == "e":
            return DatabaseType.NAMED
        return _STORED.get(self.name, DatabaseType.OTHER)


def accepts(kind: ColumnType, stored: DatabaseType) -> bool:
    """Whether a column can hold what the study declares; text is read as numbers and days where it is written so."""
    return stored in _ACCEPTED[kind]


def accepts_key(stored: DatabaseType) -> bool:
    """Whether a column can tell units apart: any type but a nested one."""
    return stored is not DatabaseType.NESTED


def is_costly(kind: ColumnType, stored: DatabaseType) -> bool:
    """Whether a value is better worked out once than wherever it is used."""
    return stored in _COSTLY and kind is not ColumnType.CATEGORY


def held(name: str) -> exp.Column:
    """A column of the hospital's relation, as it is stored."""
    return exp.column(name, table=THIS, quoted=True)


def typed_key(name: str, stored: DatabaseType) -> exp.Expression:
    """The unit key: a whole number of 64 bits, or a text; only equality matters.

    Numbers that are equal are one key however they are written; what PostgreSQL holds equal only in a
    language's own order stays apart.
    """
    value: exp.Expression = held(name)
    match stored:
        case DatabaseType.WHOLE:
            return cast(value, "BIGINT")
        case DatabaseType.DOUBLE:
            # Adding zero takes the sign off a zero.
            value = exp.Add(this=paren(_finite(cast(value, "DOUBLE"))), expression=literal(0.0))
        case DatabaseType.NUMERIC:
            value = call("TRIM_SCALE", value)
        case _:
            pass
    return exp.Nullif(this=_plain(paren(value)), expression=text(""))


def typed_column(column: Column, stored: DatabaseType) -> exp.Expression:
    """The column's value in the study's type, its default in place of NULL."""
    value = _typed(held(column.name), column.type, stored)
    if column.default is None:
        return value
    default = float(column.default) if column.type is ColumnType.NUMBER else column.default  # type: ignore[arg-type]
    return exp.Coalesce(this=value, expressions=[literal(default)])


def _typed(value: exp.Expression, kind: ColumnType, stored: DatabaseType) -> exp.Expression:
    match kind:
        case ColumnType.CATEGORY:
            return exp.Nullif(this=_plain(value), expression=text(""))
        case ColumnType.NUMBER:
            return _number(value, stored)
        case ColumnType.INTEGER:
            return _integer(value, stored)
        case ColumnType.BOOLEAN:
            return _boolean(value, stored)
        case ColumnType.DATE:
            return _day(value, stored)


def _number(value: exp.Expression, stored: DatabaseType) -> exp.Expression:
    match stored:
        case DatabaseType.WHOLE:
            return cast(value, "DOUBLE")
        case DatabaseType.DOUBLE:
            return _finite(cast(value, "DOUBLE"))
        case DatabaseType.NUMERIC:
            return _from_numeric(value)
        case _:
            # By a number of any length: the text of a double may be too small for the cast, which would raise.
            return _when(_is_written(value, _NUMBER, "numeric"), _from_numeric(numeric(_plain(value))))


def _from_numeric(value: exp.Expression) -> exp.Expression:
    """NaN and infinity are above or below every number."""
    largest, smallest = (numeric(text(repr(bound))) for bound in (_LARGEST, _SMALLEST))
    size = exp.Abs(this=paren(value.copy()))
    tiny = exp.LT(this=size, expression=smallest)
    inside = exp.LTE(this=size.copy(), expression=largest)
    return exp.Case().when(tiny, literal(0.0)).when(inside, cast(value, "DOUBLE"))


def _integer(value: exp.Expression, stored: DatabaseType) -> exp.Expression:
    match stored:
        case DatabaseType.WHOLE:
            return cast(value, "BIGINT")
        case DatabaseType.DOUBLE:
            return _from_whole(cast(value, "DOUBLE"))
        case DatabaseType.NUMERIC:
            return _from_whole(value)
        case _:
            return _when(_is_written(value, _NUMBER, "numeric"), _from_whole(numeric(_plain(value))))


def _from_whole(value: exp.Expression) -> exp.Expression:
    """The value as 64 bits where it is whole and has a place there; both bounds are doubles too."""
    low, beyond = (exp.Literal.string(str(bound)) for bound in (_LOWEST, _BEYOND))
    conditions: list[exp.Expression] = [
        exp.GTE(this=value.copy(), expression=low),
        exp.LT(this=value.copy(), expression=beyond),
        exp.EQ(this=value.copy(), expression=exp.Floor(this=value.copy())),
    ]
    return _when(joined(exp.And, conditions), cast(value, "BIGINT"))


def _boolean(value: exp.Expression, stored: DatabaseType) -> exp.Expression:
    if stored is DatabaseType.TEXT:
        word = call("LOWER", call("BTRIM", _plain(value), text(_BLANK)))
        return _chosen(word, [text(each) for each in _TRUE], [text(each) for each in _FALSE])
    if stored is DatabaseType.BOOLEAN:
        return _chosen(value, [exp.true()], [exp.false()])
    one, zero = (exp.Literal.number(digit) for digit in (1, 0))
    return _chosen(value, [one], [zero])


def _chosen(value: exp.Expression, true: list[exp.Expression], false: list[exp.Expression]) -> exp.Expression:
    decided = exp.Case()
    for words, outcome in ((true, True), (false, False)):
        decided = decided.when(exp.In(this=value.copy(), expressions=words), literal(outcome))
    return decided


def _day(value: exp.Expression, stored: DatabaseType) -> exp.Expression:
    match stored:
        case DatabaseType.TEXT:
            return _when(_is_written(value, _DAY, "timestamp"), cast(cast(_plain(value), "TIMESTAMP"), "DATE"))
        case DatabaseType.DAY:
            return _when(call("ISFINITE", value), value.copy())
        case _:
            # The session's time zone is UTC.
            return _when(call("ISFINITE", value), cast(value, "DATE"))


def _is_written(value: exp.Expression, pattern: str, kind: str) -> exp.Expression:
    """Whether a text is written as we read it, and PostgreSQL can read it too."""
    looks = exp.RegexpLike(this=_plain(value), expression=text(pattern))
    # Inside a CASE: PostgreSQL works the terms of an AND out in any order.
    reads = call("PG_INPUT_IS_VALID", _plain(value), text(kind))
    return paren(exp.Case().when(looks, reads).else_(exp.false()))


def _plain(value: exp.Expression) -> exp.Expression:
    """As text that is equal only if its bytes are; a column may have an order of its own with other equals."""
    return paren(exp.Collate(this=cast(value, "TEXT"), expression=identifier("C")))


def _finite(value: exp.Expression) -> exp.Expression:
    """NaN is above every number."""
    return _when(exp.Between(this=value, low=literal(-_LARGEST), high=literal(_LARGEST)), value.copy())


def _when(condition: exp.Expression, value: exp.Expression) -> exp.Expression:
    return exp.Case().when(condition, value)
