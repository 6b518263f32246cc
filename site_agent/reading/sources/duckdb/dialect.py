"""What DuckDB calls the things a statement needs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from site_agent.reading.statements.sql_trees import call, cast, integer, paren, plus, text, times
from wardround.federation.study.study import Value

_SQL_TYPES: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
_WIDE = "INT128"
_MONTHS = 12


@dataclass(frozen=True, slots=True)
class DuckdbDialect:
    """See `Dialect`; infinity raises nothing here."""

    key: bytes = field(repr=False)
    name: str = "duckdb"

    def literal(self, value: Value) -> exp.Expression:
        """A quoted text cast to its type; DuckDB reads the shortest text of a double back exactly."""
        return literal(value)

    def compared(self, column: exp.Expression, value: Value) -> exp.Expression:
        """Both sides are of the literal's type: left to itself DuckDB would try DECIMAL, and raise."""
        return cast(column, _sql_type(value))

    def saturated(self, value: exp.Expression) -> exp.Expression:
        """Itself: a product beyond all doubles is infinite."""
        return value

    def floor(self, value: exp.Expression) -> exp.Expression:
        """By DuckDB's own function."""
        return exp.Floor(this=value)

    def quotient(self, above: exp.Expression, below: exp.Expression) -> exp.Expression:
        return paren(exp.IntDiv(this=paren(above), expression=paren(below)))

    def wide_quotient(self, above: exp.Expression, below: exp.Expression) -> exp.Expression:
        """By `//` in 128 bits."""
        return cast(exp.IntDiv(this=paren(cast(above, _WIDE)), expression=paren(cast(below, _WIDE))), "BIGINT")

    def total(self, value: exp.Expression) -> exp.Expression:
        """DuckDB adds 64-bit numbers up in 128 bits."""
        return cast(exp.Sum(this=value), _WIDE)

    def place(self, value: exp.Expression, words: Sequence[str]) -> exp.Expression:
        """The code of an enumeration: one look-up in a hash table for each row."""
        names = exp.DataType(this=exp.DataType.Type.ENUM, expressions=[text(word) for word in words])
        return cast(call("ENUM_CODE", exp.TryCast(this=value, to=names)), "BIGINT")

    def month(self, value: exp.Expression) -> exp.Expression:
        """By the calendar of DuckDB, which has years before our era too."""
        year, month = (cast(call(part, value.copy()), "BIGINT") for part in ("YEAR", "MONTH"))
        return plus(times(year, integer(_MONTHS)), exp.Sub(this=month, expression=integer(1)))

    def beginning(self, unit: exp.Expression, number: exp.Expression) -> exp.Expression:
        """By a hash of the site's key and the unit's own."""
        seed = call("HASH", cast(unit, "VARCHAR"), text(self.key.hex()))
        return cast(exp.Mod(this=seed, expression=cast(number, "UBIGINT")), "BIGINT")


def literal(value: Value) -> exp.Expression:
    """A public value in its own type."""
    shown = value.isoformat() if isinstance(value, datetime.date) else repr(value)
    return cast(text(value if isinstance(value, str) else shown), _sql_type(value))


def _sql_type(value: Value) -> str:
    return "DATE" if isinstance(value, datetime.date) else _SQL_TYPES[type(value)]
