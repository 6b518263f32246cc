"""Words that earlier versions stored as messages of the wire, in canonical form from now on.

Canonical bytes begin with a brace and no message of ours does, so each row says itself what it is. Nothing is noted
down: killed in the middle, the whole is undone and done again, and rows that an earlier version adds afterwards are
found as well. A row that cannot be read stays as it is, and whoever needs it says so, as before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from wardround.federation.errors import MalformedMessage
from wardround.federation.ledger.sqlite_file import Database

_BRACE = b"{"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The canonical bytes of a stored message, and the plan that it is about."""

    plan_id: str
    content: bytes


Read = Callable[[bytes], Rewritten]
"""Reads a stored message; `MalformedMessage` when it is none."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """Where words are stored, as statements: the plans whose word does not begin so, its bytes, and other bytes."""

    others: str
    stored: str
    replace: str


def rewrite(database: Database, column: StoredColumn, read: Read) -> None:
    """Rewrite every message in a column, in one transaction; none is begun where there are no messages."""
    with database.reading() as connection:
        if connection.execute(column.others, (_BRACE,)).fetchone() is None:
            return
    with database.transaction() as connection:
        # One after another: a step of a training can be a megabyte.
        for (plan_id,) in connection.execute(column.others, (_BRACE,)).fetchall():
            (message,) = connection.execute(column.stored, (plan_id,)).fetchone()
            with suppress(MalformedMessage):
                found = read(message)
                if found.plan_id == plan_id:
                    connection.execute(column.replace, (found.content, plan_id))
