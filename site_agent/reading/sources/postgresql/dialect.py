"""What PostgreSQL calls the things a statement needs.

PostgreSQL raises where other databases round: a double that overflows or underflows, a cast that does not
fit, a whole number beyond 64 bits. Everything here is kept away from those edges before it is worked out.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from site_agent.reading.statements.records import column_name
from site_agent.reading.statements.sql_trees import (
    call,
    cast,
    greatest,
    integer,
    least,
    minus,
    paren,
    plus,
    ref,
    text,
    times,
)
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.query import GroupBy
from wardround.federation.study.study import ColumnType, Value

_LARGE, _SMALL = 1e250, 1e-250
_MONTHS = 12
_SURROGATES = range(0xD800, 0xE000)
_NO_LETTER = "\ufdd0"
"""A code point that is no character and never will be."""

_LARGEST = 2**63 - 1

Places = Mapping[tuple[str, tuple[str, ...]], str]
"""Which column of the typed rows holds the place of a column's text among some words."""


def places_needed(form: AnswerLayout) -> Places:
    """A name for the place of every text that makes a cell of the question."""
    wanted: dict[tuple[str, tuple[str, ...]], str] = {}
    for part in form.parts:
        for grouping in part.groupings:
            column = form.table.column(grouping.column)
            if grouping.by is GroupBy.VALUE and column.type is ColumnType.CATEGORY:
                wanted.setdefault((column_name(column.name), grouping.keys or column.values), f"p_{len(wanted)}")
    return wanted


@dataclass(frozen=True, slots=True)
class PostgresqlDialect:
    """See `Dialect`. A truth value is 0 or 1 in 64 bits; `seed` follows from the site's key and is not the key."""

    seed: int = field(repr=False)
    whole_keys: bool
    places: Places = field(default_factory=dict)
    name: str = "postgres"

    def literal(self, value: Value) -> exp.Expression:
        """A public value in its own type."""
        return literal(value)

    def compared(self, column: exp.Expression, value: Value) -> exp.Expression:
        """As a double beside a double; everything else is already of the literal's type."""
        return cast(column, "DOUBLE") if isinstance(value, float) else column

    def saturated(self, value: exp.Expression) -> exp.Expression:
        """Within ±1e250, and 0 where a product would vanish: PostgreSQL raises for both."""
        inside = least(greatest(value, literal(-_LARGE)), literal(_LARGE))
        tiny = exp.LT(this=exp.Abs(this=value.copy()), expression=literal(_SMALL))
        return paren(exp.Case().when(tiny, literal(0.0)).else_(inside))

    def floor(self, value: exp.Expression) -> exp.Expression:
        """By PostgreSQL's own function."""
        return exp.Floor(this=value)

    def quotient(self, above: exp.Expression, below: exp.Expression) -> exp.Expression:
        """PostgreSQL divides whole numbers by cutting off, which is the floor of what is not below zero."""
        return paren(exp.Div(this=paren(above), expression=paren(below), typed=True, safe=False))

    def wide_quotient(self, above: exp.Expression, below: exp.Expression) -> exp.Expression:
        """In numbers of any length."""
        return cast(call("DIV", numeric(above), numeric(below)), "BIGINT")

    def total(self, value: exp.Expression) -> exp.Expression:
        """PostgreSQL adds 64-bit numbers up to a number of any length."""
        return exp.Sum(this=value)

    def place(self, value: exp.Expression, words: Sequence[str]) -> exp.Expression:
        """A column that the typed rows have beside the text: they were joined to the words, by one hash table."""
        name = self.places.get((value.name, tuple(words)))
        if name is None:
            raise InvariantBroken(private="a place was not joined to the typed rows")
        return ref(name)

    def month(self, value: exp.Expression) -> exp.Expression:
        year, month = (
            cast(exp.Extract(this=exp.var(part), expression=value.copy()), "BIGINT") for part in ("YEAR", "MONTH")
        )
        return plus(times(year, integer(_MONTHS)), minus(month, integer(1)))

    def beginning(self, unit: exp.Expression, number: exp.Expression) -> exp.Expression:
        """By a hash of the unit's own key."""
        mixed = exp.BitwiseAnd(this=self.mixed(unit), expression=integer(_LARGEST))
        return paren(exp.Mod(this=paren(mixed), expression=paren(number.copy())))

    def mixed(self, unit: exp.Expression) -> exp.Expression:
        """64 bits of a unit's key."""
        function = "HASHINT8EXTENDED" if self.whole_keys else "HASHTEXTEXTENDED"
        return call(function, unit, integer(self.seed))


def numeric(value: exp.Expression) -> exp.Expression:
    """A number of any length; the type by name would be read as one of three decimal places."""
    return exp.Cast(this=value.copy(), to=exp.DataType(this=exp.DataType.Type.DECIMAL))


def literal(value: Value) -> exp.Expression:
    """A public value in its own type."""
    match value:
        case bool() | int():
            return integer(int(value))
        case float():
            return cast(text(repr(value)), "DOUBLE")
        case datetime.date():
            return cast(text(value.isoformat()), "DATE")
        case str():
            return cast(text("".join(letter if _is_storable(letter) else _NO_LETTER for letter in value)), "TEXT")


def is_storable(value: str) -> bool:
    """Whether PostgreSQL can hold the text at all: no NUL, nothing that is no character."""
    return all(map(_is_storable, value))


def _is_storable(letter: str) -> bool:
    return letter != "\x00" and ord(letter) not in _SURROGATES
