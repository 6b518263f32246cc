"""What must be true of closed tables in a site's ledger: closed once, and opened for a reason there can be.

An entry that charges does not say which table a plan reads. What the chain alone proves is this: while every table of
the study is closed, nothing is charged or released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import text_in
from wardround.federation.ledger.verify.problems import Code
from wardround.federation.trust.entry import Entry


class ClosingRules:
    """The tables that a site's chain closed; `tables` are all there are, where that is known."""

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._sources: dict[str, str] = {}
        self._reopened: set[tuple[str, str]] = set()
        self.closed: dict[str, int] = {}

    @property
    def all_closed(self) -> bool:
        """Whether no table could be asked."""
        return bool(self._tables) and self._tables <= self.closed.keys()

    def turned(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with the next closing or opening."""
        table, date = text_in(body, "table"), text_in(body, "date")
        if self._tables and table not in self._tables:
            yield Code.WRONG_CLOSING
        if entry.kind == "closed":
            if table in self.closed:
                yield Code.WRONG_CLOSING
            self._sources[table] = text_in(body, "source")
            self.closed.setdefault(table, entry.sequence)
            return
        if self.closed.pop(table, None) is None:
            yield Code.WRONG_CLOSING
        match text_in(body, "reason"):
            case "steward":
                pass
            case "changed":
                # Only a source that sees changes opens its table by itself, and only once a day.
                if not self._sources.get(table) or (table, date) in self._reopened:
                    yield Code.WRONG_CLOSING
                self._reopened.add((table, date))
            case _:
                raise LedgerCorrupt(private="a table was opened for a reason that is none")
