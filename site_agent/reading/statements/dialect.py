"""What differs from one database to another, in as few words as possible.

Every function is total: whatever the rows hold, the expression it returns raises nothing, and it is NULL
where its value is NULL. Numbers are the same in every database, to the last bit: doubles are IEEE doubles,
and whole numbers are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlglot import exp

from wardround.federation.study.study import Value


class RowDialect(Protocol):
    """How one database says what a row is made of beyond plain SQL."""

    @property
    def name(self) -> str:
        """The generator's name for it."""

    def literal(self, value: Value) -> exp.Expression:
        """A public value in its own type; a double is read back exactly."""

    def compared(self, column: exp.Expression, value: Value) -> exp.Expression:
        """The typed column in the type in which it is compared with `literal(value)`, so that no cast is guessed."""

    def saturated(self, value: exp.Expression) -> exp.Expression:
        """A double that may be multiplied by 2^64: itself, or ±1e250 in its place where infinity would raise."""

    def floor(self, value: exp.Expression) -> exp.Expression:
        """The greatest whole double that is not above a double."""

    def place(self, value: exp.Expression, words: Sequence[str]) -> exp.Expression:
        """Where a text stands among different words, from 0, compared byte by byte; NULL elsewhere."""

    def month(self, value: exp.Expression) -> exp.Expression:
        """Year · 12 + month − 1 of a day."""


class Dialect(RowDialect, Protocol):
    """The same of a database that brings rows together and adds them up by itself."""

    def quotient(self, above: exp.Expression, below: exp.Expression) -> exp.Expression:
        """⌊above / below⌋ of 64-bit numbers, above ≥ 0 and below > 0, as one."""

    def wide_quotient(self, above: exp.Expression, below: exp.Expression) -> exp.Expression:
        """The same where `above` is made of totals; what comes out fits into 64 bits."""

    def total(self, value: exp.Expression) -> exp.Expression:
        """The exact sum of 64-bit numbers over a group, however many: it neither rounds nor overflows."""

    def beginning(self, unit: exp.Expression, number: exp.Expression) -> exp.Expression:
        """A whole number from 0 to number − 1 that the unit's key and the site's own key decide, and nothing else."""
