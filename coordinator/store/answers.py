"""Answers in the ledger: a text under its plan, written once."""

from __future__ import annotations

import hashlib

from wardround.federation.ledger import chain
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.trust.identity import Identity


class AnswerStore:
    """The stored answers."""

    def __init__(self, database: Database, identity: Identity) -> None:
        self._database = database
        self._identity = identity

    def keep(self, plan_id: str, text: str) -> None:
        """Store the answer under its plan; one that is already there stays as it is."""
        with self._database.transaction() as connection:
            if self.exists(plan_id):
                return
            connection.execute("INSERT INTO answers (plan_id, answer) VALUES (?, ?)", (plan_id, text))
            connection.execute("UPDATE rounds SET state = 'answered' WHERE plan_id = ?", (plan_id,))
            digest = hashlib.sha256(text.encode()).hexdigest()
            chain.append(connection, self._identity, kind="answered", body={"plan_id": plan_id, "answer_hash": digest})

    def exists(self, plan_id: str) -> bool:
        """Whether the plan has been answered."""
        with self._database.reading() as connection:
            return connection.execute("SELECT 1 FROM answers WHERE plan_id = ?", (plan_id,)).fetchone() is not None

    def text(self, plan_id: str) -> str | None:
        """The stored answer as it was written, if there is one; decode it once the ledger is free again."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT answer FROM answers WHERE plan_id = ?", (plan_id,)).fetchone()
        return None if row is None else str(row[0])
