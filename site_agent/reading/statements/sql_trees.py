"""Small pieces of SQL as trees, so that nothing is ever formatted into a statement.

Every name is quoted and every literal is a quoted text cast to its type: there is no value that could
be read as anything else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from sqlglot import exp


def identifier(name: str) -> exp.Identifier:
    """A quoted name."""
    return exp.to_identifier(name, quoted=True)


def ref(name: str) -> exp.Column:
    """A column, always quoted."""
    return exp.column(name, quoted=True)


def relation(name: str) -> exp.Table:
    """A table or an earlier part of the statement, always quoted."""
    return exp.Table(this=identifier(name))


def named(value: exp.Expression, name: str) -> exp.Alias:
    """`value AS name`."""
    return exp.Alias(this=value, alias=identifier(name))


def paren(value: exp.Expression) -> exp.Paren:
    """Brackets, so that no operator binds otherwise than the tree says."""
    return exp.Paren(this=value)


def cast(value: exp.Expression, sql_type: str) -> exp.Expression:
    """A cast that cannot fail where it is used: between numbers that fit, or of a literal."""
    return exp.Cast(this=value, to=type_of(sql_type))


def type_of(sql_type: str) -> exp.DataType:
    """A type by DuckDB's name for it; every database's generator has its own."""
    return _parsed(sql_type).copy()


@functools.lru_cache(maxsize=64)
def _parsed(sql_type: str) -> exp.DataType:
    return exp.DataType.build(sql_type, dialect="duckdb")


def text(text: str) -> exp.Expression:
    """A text literal; the generator quotes it."""
    return exp.Literal.string(text)


def integer(number: int) -> exp.Expression:
    """A 64-bit whole number."""
    return cast(exp.Literal.string(str(number)), "BIGINT")


def whole(value: exp.Expression) -> exp.Expression:
    """A truth value as 0 or 1, and a whole number or a whole double below 2^53 as itself, in 64 bits."""
    return cast(value, "BIGINT")


def double(value: exp.Expression) -> exp.Expression:
    """A whole number or a double as a double, rounded to the nearest."""
    return cast(value, "DOUBLE")


def is_null(value: exp.Expression) -> exp.Expression:
    """`value IS NULL`."""
    return exp.Is(this=value, expression=exp.null())


def present(value: exp.Expression) -> exp.Expression:
    """`(NOT value IS NULL)`."""
    return paren(is_null(value).not_())


def times(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    """`(left) * (right)`."""
    return exp.Mul(this=paren(left), expression=paren(right))


def plus(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    """`(left) + (right)`."""
    return exp.Add(this=paren(left), expression=paren(right))


def minus(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    """`(left) - (right)`."""
    return exp.Sub(this=paren(left), expression=paren(right))


def least(*values: exp.Expression) -> exp.Expression:
    """The least of values none of which is NULL: databases differ in what they do with one."""
    return exp.Least(this=values[0], expressions=list(values[1:]))


def greatest(*values: exp.Expression) -> exp.Expression:
    """The greatest of values none of which is NULL."""
    return exp.Greatest(this=values[0], expressions=list(values[1:]))


def counted() -> exp.Expression:
    """`COUNT(*)`."""
    return exp.Count(this=exp.Star())


def joined(connector: Callable[..., exp.Expression], terms: Iterable[exp.Expression]) -> exp.Expression:
    """All terms with one connector between them."""
    return paren(functools.reduce(lambda left, right: connector(this=left, expression=right), terms))


def grouped(source: exp.Expression, keys: list[exp.Column], values: list[exp.Expression]) -> exp.Select:
    """`SELECT keys, values … GROUP BY keys`."""
    return exp.select(*keys, *values).from_(source).group_by(*(key.copy() for key in keys), copy=False)


def call(function: str, *arguments: exp.Expression) -> exp.Expression:
    """A function by one database's own name for it."""
    return exp.Anonymous(this=function, expressions=list(arguments))
