"""Which tables are closed, and how many readings of each began and never ended.

`closing` decides when a table is closed; here is what the ledger remembers of it. A reading is noted in the
transaction that pays for it, so that a row that ends this process is noticed like one that ends a connection.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from site_agent.store.charges import refuse_if_frozen
from wardround.federation.errors import LedgerCorrupt, Mistaken
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import decode_body, text_in
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import Identity


class Reason(StrEnum):
    """Why a table was opened again."""

    CHANGED = "changed"
    STEWARD = "steward"


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed table; `source` is the state it was closed at, empty where the source cannot see changes."""

    table: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A table was closed, or opened again for a reason."""

    sequence: int
    date: str
    table: str
    kind: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClosedTables:
    """The closed tables of one site's ledger."""

    database: Database
    identity: Identity
    today: Callable[[], datetime.date]

    def standing(self, table: str) -> tuple[Closed | None, int]:
        """The table if it is closed, and how many of its readings began and never ended."""
        with self.database.reading() as connection:
            row = connection.execute("SELECT COALESCE(SUM(begun), 0) FROM readings WHERE name = ?", (table,)).fetchone()
            return _find(connection, table), int(row[0])

    def listed(self) -> list[Closed]:
        """Every table that is closed, by name."""
        with self.database.reading() as connection:
            rows = connection.execute("SELECT sequence FROM closed_tables ORDER BY name").fetchall()
            return [_closed(chain.entry_at(connection, sequence)) for (sequence,) in rows]

    def turns(self) -> list[Turn]:
        """Every closing and opening, oldest first."""
        with self.database.reading() as connection:
            told = [
                (entry, decode_body(entry.body))
                for kind in ("closed", "reopened")
                for entry in chain.of_kind(connection, kind)
            ]
        found = [
            Turn(entry.sequence, text_in(body, "date"), text_in(body, "table"), entry.kind, str(body.get("reason", "")))
            for entry, body in told
        ]
        return sorted(found, key=lambda turn: turn.sequence)

    def close(self, table: str, *, source: str) -> None:
        """Close a table for every question, at this state of its source; durable when this returns."""
        body = {"table": table, "source": source, "date": self.today().isoformat()}
        with self.database.transaction() as connection:
            refuse_if_frozen(connection)
            if _find(connection, table) is None:
                entry = chain.append(connection, self.identity, kind="closed", body=body)
                row = (table, entry.sequence)
                connection.execute("INSERT INTO closed_tables (name, sequence) VALUES (?, ?)", row)

    def reopen_changed(self, table: str, *, source: str) -> bool:
        """Open a closed table whose source is in another state now, once a day; whether that was done.

        A database that is written all day would otherwise open its table for every question.
        """
        with self.database.transaction() as connection:
            refuse_if_frozen(connection)
            closed = _find(connection, table)
            if closed is None or closed.source in ("", source) or self._reopened_today(connection, table):
                return False
            self._reopen(connection, table, Reason.CHANGED)
            return True

    def reopen(self, table: str) -> None:
        """Open a closed table because a steward says so.

        Raises:
            Mistaken: it is not closed.
        """
        with self.database.transaction() as connection:
            refuse_if_frozen(connection)
            if _find(connection, table) is None:
                raise Mistaken(f"the table {table!r} is not closed; nothing was done.")
            self._reopen(connection, table, Reason.STEWARD)

    def begin_again(self, plan_id: str, table: str) -> None:
        """A paid plan that has no release reads its table once more; durable when this returns."""
        with self.database.transaction() as connection:
            begin(connection, plan_id, table)

    def take_back(self, plan_id: str) -> None:
        """The reading that a plan began last found its source away before there was a row."""
        with self.database.transaction() as connection:
            connection.execute("UPDATE readings SET begun = begun - 1 WHERE plan_id = ? AND begun > 0", (plan_id,))

    def _reopen(self, connection: sqlite3.Connection, table: str, reason: Reason) -> None:
        body = {"table": table, "reason": reason.value, "date": self.today().isoformat()}
        chain.append(connection, self.identity, kind="reopened", body=body)
        connection.execute("DELETE FROM closed_tables WHERE name = ?", (table,))
        # What was counted against the table is counted anew.
        connection.execute("DELETE FROM readings WHERE name = ?", (table,))

    def _reopened_today(self, connection: sqlite3.Connection, table: str) -> bool:
        today = {"table": table, "reason": Reason.CHANGED.value, "date": self.today().isoformat()}
        return any(decode_body(entry.body) == today for entry in chain.of_kind(connection, "reopened"))


def begin(connection: sqlite3.Connection, plan_id: str, table: str) -> None:
    """Note inside a transaction, before a row is read, that a paid plan begins to read its table."""
    connection.execute(
        "INSERT INTO readings (plan_id, name, begun) VALUES (?, ?, 1)"
        " ON CONFLICT (plan_id) DO UPDATE SET begun = begun + 1",
        (plan_id, table),
    )


def end(connection: sqlite3.Connection, plan_id: str) -> None:
    """Note inside a transaction that a plan's reading ended in a release."""
    connection.execute("DELETE FROM readings WHERE plan_id = ?", (plan_id,))


def _find(connection: sqlite3.Connection, table: str) -> Closed | None:
    row = connection.execute("SELECT sequence FROM closed_tables WHERE name = ?", (table,)).fetchone()
    return None if row is None else _closed(chain.entry_at(connection, row[0]))


def _closed(entry: Entry | None) -> Closed:
    if entry is None or entry.kind != "closed":
        raise LedgerCorrupt(private="a closed table has no entry that closed it")
    body = decode_body(entry.body)
    return Closed(text_in(body, "table"), text_in(body, "source"), text_in(body, "date"))
