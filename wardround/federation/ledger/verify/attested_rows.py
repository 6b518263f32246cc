"""Rows that a chain accounts for, compared with those that lie beside it.

What a row says stands in the entry that was written with it, in a later one, or, of rows that an earlier version wrote,
in the `attested` entries by which a newer one took them over. A ledger that no newer version has served yet has rows of
which no entry speaks: they are named, and are no problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import text_in
from wardround.federation.ledger.verify.problems import Code, Problem

Row = tuple[object, ...]
_K = TypeVar("_K")
_V = TypeVar("_V")


class AttestedRows:
    """What was taken over, and whether entries account for every row; `complete` if they do so from the beginning."""

    def __init__(self, opened: Mapping[str, object]) -> None:
        self.complete = "attests" in opened
        self.unattested: set[str] = set()
        self._taken: dict[str, dict[Row, tuple[int, Row]]] = {}

    def read(self, number: int, body: Mapping[str, object]) -> Iterator[Code]:
        """Take note of rows that were taken over; nobody takes any over twice."""
        if self.complete:
            yield Code.MALFORMED_ENTRY
        table, rows = text_in(body, "table"), body.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, list) and row for row in rows):
            raise LedgerCorrupt(private="an entry takes over what are no rows")
        if not table:
            self.complete = True
        # The keys of these tables are one column or, where sites are concerned, two.
        width = 2 if table in ("tasks", "places", "site_entries") else 1
        for row in rows:
            self._taken.setdefault(table, {})[tuple(map(str, row[:width]))] = number, tuple(map(_text, row[width:]))

    def taken(self, table: str) -> Mapping[Row, tuple[int, Row]]:
        """The rows of a table that were taken over, by key, as texts, with the number of their entry."""
        return self._taken.get(table, {})

    def compare(self, table: str, expected: Mapping[_K, tuple[int, _V]], stored: Mapping[_K, _V]) -> Iterator[Problem]:
        """Where the rows of a table differ from what entries say of them, by key."""
        for key, (number, row) in expected.items():
            if stored.get(key) != row:
                yield Problem(number, Code.WRONG_INDEX)
        yield from self.unknown(table, [key for key in stored if key not in expected])

    def unknown(self, table: str, found: Sequence[object]) -> Iterator[Problem]:
        """Rows of which no entry speaks."""
        if found and not self.complete:
            self.unattested.add(table)
        elif found:
            yield Problem(0, Code.WRONG_INDEX)


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)
