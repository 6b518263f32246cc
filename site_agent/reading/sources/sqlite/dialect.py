"""What SQLite calls the things a statement needs.

It hands out rows and adds nothing up: it would sort them for that, all of them in memory, and its own sum raises where
64 bits are left. Everywhere else a whole number that leaves 64 bits becomes a double, and nothing is raised.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.generator import Generator
from sqlglot.generators.sqlite import SQLiteGenerator

from site_agent.reading.statements.sql_trees import call, cast, integer, minus, paren, plus, text, times
from wardround.federation.study.study import Value

SHARE, PLACE, IS_TEXT = "wardround_share", "wardround_place", "wardround_is_text"
"""Three functions are ours: (the unit's key as bytes, n) ↦ which of n shares the unit is in; (a text as bytes, a
number of `words`) ↦ its place among them; (a text as bytes) ↦ whether it is one, because SQLite never looks."""

_EXACT = 2**53
_FACTOR = 2**62
_MONTHS = 12


@dataclass(frozen=True, slots=True)
class SqliteDialect:
    """See `RowDialect`. A truth value is 0 or 1, a day is its text as in 2026-01-31.

    `words` are those whose places its statements ask for; they grow as statements are written.
    """

    words: list[Mapping[bytes, int]] = field(default_factory=list)
    name: str = "sqlite"

    def literal(self, value: Value) -> exp.Expression:
        """A public value in its own type."""
        return literal(value)

    def compared(self, column: exp.Expression, value: Value) -> exp.Expression:
        """As a double beside a double; whole numbers and texts are compared as they are."""
        return cast(column, "DOUBLE") if isinstance(value, float) else column

    def saturated(self, value: exp.Expression) -> exp.Expression:
        """Itself: a product beyond all doubles is infinite."""
        return value

    def floor(self, value: exp.Expression) -> exp.Expression:
        """The cast cuts towards zero and saturates at 64 bits; FLOOR is missing in some builds."""
        cut = cast(paren(value), "BIGINT")
        above = exp.LT(this=paren(value.copy()), expression=cut.copy())
        return paren(minus(cut, above))

    def place(self, value: exp.Expression, words: Sequence[str]) -> exp.Expression:
        """By a function of ours, which looks it up; as a statement a few ten thousand words are too many for SQLite."""
        places = {word.encode("utf-8", "surrogatepass"): place for place, word in enumerate(words)}
        self.words.append(places)
        # Bytes, because text that is not UTF-8 would raise on its way into Python.
        return call(PLACE, cast(value, "BLOB"), number(len(self.words) - 1))

    def month(self, value: exp.Expression) -> exp.Expression:
        """From the first seven letters of the day."""
        year = cast(call("SUBSTR", value, number(1), number(4)), "BIGINT")
        month = cast(call("SUBSTR", value.copy(), number(6), number(2)), "BIGINT")
        return plus(times(year, integer(_MONTHS)), minus(month, integer(1)))


class _Writer(SQLiteGenerator):
    """SQLite's generator, but a cast stays the cast it is: it would look each one over for dates at great length."""

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        return str(Generator.cast_sql(self, expression, safe_prefix))


def written(statement: exp.Query) -> str:
    """The statement as text; it is used up."""
    return str(_Writer(dialect="sqlite").generate(statement, copy=False))


def literal(value: Value) -> exp.Expression:
    """A public value in its own type."""
    match value:
        case bool() | int():
            return integer(int(value))
        case float():
            return _double(value)
        case datetime.date():
            return text(value.isoformat())
        case str():
            return _text(value)


def number(value: int) -> exp.Expression:
    """A small number as the argument of a function."""
    return exp.Literal.number(value)


def _text(value: str) -> exp.Expression:
    """NUL would end the statement, so it is written as a function."""
    first, *rest = (text(piece) for piece in value.split("\x00"))
    whole: exp.Expression = first
    for piece in rest:
        nul = exp.DPipe(this=whole, expression=call("CHAR", number(0)))
        whole = exp.DPipe(this=nul, expression=piece)
    return paren(whole) if rest else whole


def _double(value: float) -> exp.Expression:
    """A product m · 2^k in whole numbers, because SQLite does not read every decimal fraction to the nearest double."""
    above, below = value.as_integer_ratio()
    factors: list[tuple[type[exp.Mul | exp.Div], int]] = []
    while abs(above) >= _EXACT:
        step = min(_FACTOR, above & -above)
        above, factors = above // step, [*factors, (exp.Mul, step)]
    while below > 1:
        step = min(_FACTOR, below)
        below, factors = below // step, [*factors, (exp.Div, step)]
    found = cast(text(str(above)), "DOUBLE")
    for operator, step in factors:
        found = _operation(operator, found, cast(text(str(step)), "DOUBLE"))
    return paren(found)


def _operation(operator: type[exp.Mul | exp.Div], left: exp.Expression, right: exp.Expression) -> exp.Expression:
    if operator is exp.Div:
        return _divided(left, right)
    return times(left, right)


def _divided(above: exp.Expression, below: exp.Expression) -> exp.Expression:
    # "Typed" and "safe" are what SQLite's own division is: the generator then adds no cast.
    return exp.Div(this=paren(above), expression=paren(below), typed=True, safe=True)
