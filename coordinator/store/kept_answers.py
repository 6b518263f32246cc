"""Answers in the ledger: texts, and the pages of long ones, that are written once and never change."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass

from wardround.federation.ledger import chain
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.trust.identity import Identity


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer as it is stored: its text, and the pages of a long one, whose hashes the text names."""

    text: str
    pages: tuple[bytes, ...] = ()


def keep_answer(connection: sqlite3.Connection, identity: Identity, plan_id: str, answer: WrittenAnswer) -> None:
    """Store an answer inside a running transaction; one that is already there stays as it is."""
    if connection.execute("SELECT 1 FROM answers WHERE plan_id = ?", (plan_id,)).fetchone() is not None:
        return
    connection.execute("INSERT INTO answers (plan_id, answer) VALUES (?, ?)", (plan_id, answer.text))
    connection.executemany(
        "INSERT INTO answer_pages (plan_id, number, page) VALUES (?, ?, ?)",
        ((plan_id, number, page) for number, page in enumerate(answer.pages)),
    )
    connection.execute("UPDATE rounds SET state = 'answered' WHERE plan_id = ?", (plan_id,))
    digest = hashlib.sha256(answer.text.encode()).hexdigest()
    chain.append(connection, identity, kind="answered", body={"plan_id": plan_id, "answer_hash": digest})


class AnswerStore:
    """The stored answers."""

    def __init__(self, database: Database, identity: Identity) -> None:
        self._database = database
        self._identity = identity

    def keep(self, plan_id: str, answer: WrittenAnswer) -> None:
        """Store the answer under its plan; one that is already there stays as it is."""
        with self._database.transaction() as connection:
            keep_answer(connection, self._identity, plan_id, answer)

    def exists(self, plan_id: str) -> bool:
        """Whether the plan has been answered."""
        with self._database.reading() as connection:
            return connection.execute("SELECT 1 FROM answers WHERE plan_id = ?", (plan_id,)).fetchone() is not None

    def text(self, plan_id: str) -> str | None:
        """The stored answer as it was written, if there is one; decode it once the ledger is free again."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT answer FROM answers WHERE plan_id = ?", (plan_id,)).fetchone()
        return None if row is None else str(row[0])

    def pages(self, plan_id: str, *, first: int, end: int) -> tuple[bytes, ...]:
        """The pages of a long answer from number `first` to before `end`."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT page FROM answer_pages WHERE plan_id = ? AND number BETWEEN ? AND ? ORDER BY number",
                (plan_id, first, end - 1),
            )
            return tuple(bytes(page) for (page,) in rows)
