"""Small pieces of SQL as trees, so that nothing is ever formatted into a statement.

Every name is quoted and every literal is a quoted text cast to its type: there is no value that could
be read as anything else.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from sqlglot import exp

from wardround.federation.expressions import Value

_SQL_TYPES: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def identifier(name: str) -> exp.Identifier:
    """A quoted name."""
    return exp.to_identifier(name, quoted=True)


def ref(name: str) -> exp.Column:
    """A column, always quoted."""
    return exp.column(name, quoted=True)


def named(value: exp.Expression, name: str) -> exp.Alias:
    """`value AS name`."""
    return exp.Alias(this=value, alias=identifier(name))


def paren(value: exp.Expression) -> exp.Paren:
    """Brackets, so that no operator binds otherwise than the tree says."""
    return exp.Paren(this=value)


def cast(value: exp.Expression, sql_type: str) -> exp.Expression:
    """A cast that cannot fail where it is used: between numbers that fit, or of a literal."""
    return exp.Cast(this=value, to=exp.DataType.build(sql_type, dialect="duckdb"))


def text(text: str) -> exp.Expression:
    """A text literal; the generator quotes it."""
    return exp.Literal.string(text)


def integer(number: int) -> exp.Expression:
    """A 64-bit whole number."""
    return cast(exp.Literal.string(str(number)), "BIGINT")


def double(number: float) -> exp.Expression:
    """A double, written so that it is read back exactly."""
    return cast(exp.Literal.string(repr(number)), "DOUBLE")


def sql_type(value: Value) -> str:
    """The type in which a public value is compared."""
    return "DATE" if isinstance(value, datetime.date) else _SQL_TYPES[type(value)]


def literal(value: Value) -> exp.Expression:
    """A public value in its own type."""
    text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    return cast(exp.Literal.string(text), sql_type(value))


def is_null(value: exp.Expression) -> exp.Expression:
    """`value IS NULL`."""
    return exp.Is(this=value, expression=exp.null())


def clamped(value: exp.Expression, low: int, high: int, sql_type: str) -> exp.Expression:
    """The value, or the nearer of the two bounds; NULL becomes the lower bound, as LEAST and GREATEST skip it."""
    least, most = (cast(exp.Literal.string(str(bound)), sql_type) for bound in (low, high))
    return call("LEAST", call("GREATEST", value, least), most)


def grouped(source: exp.Expression, keys: list[exp.Column], values: list[exp.Expression]) -> exp.Select:
    """`SELECT keys, values … GROUP BY keys`."""
    return exp.select(*keys, *values).from_(source).group_by(*(key.copy() for key in keys), copy=False)


def call(function: str, *arguments: exp.Expression) -> exp.Expression:
    """A function by the database's own name for it."""
    return exp.Anonymous(this=function, expressions=list(arguments))
