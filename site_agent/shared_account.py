"""One budget for a dataset that several studies use.

Each study has a folder and a ledger of its own; what they spend on the same dataset is added up in one more
file, which every folder's site.toml names. It is charged first: a crash between the two charges leaves the
shared account ahead of a ledger, never behind it, and the repeated task finds its charge and goes on.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from wardround.federation.ledger.accounts import budget_exceeded
from wardround.federation.ledger.database import Database
from wardround.federation.plan import Charge
from wardround.privacy.filter import Cap, admits
from wardround.privacy.loss import Cost

SCHEMA = """
CREATE TABLE shared_charges (
    dataset    TEXT NOT NULL,
    owner      TEXT NOT NULL,
    plan_id    TEXT NOT NULL,
    mu_squared INTEGER NOT NULL CHECK (mu_squared >= 0),
    pure       INTEGER NOT NULL CHECK (pure >= 0),
    slack      INTEGER NOT NULL CHECK (slack >= 0),
    PRIMARY KEY (dataset, owner, plan_id)
) STRICT, WITHOUT ROWID;
"""

_FIND = "SELECT 1 FROM shared_charges WHERE dataset = ? AND owner = ? AND plan_id = ?"
_REMOVE = "DELETE FROM shared_charges WHERE dataset = ? AND owner = ? AND plan_id = ?"


class SharedAccount:
    """The dataset's account, for one of the folders that charge it; `owner` is that folder's site and study."""

    def __init__(self, path: Path, *, dataset: str, owner: str, cap: Cap, durable: bool = True) -> None:
        self._database = Database(path, schema=SCHEMA, durable=durable)
        self._dataset = dataset
        self._owner = owner
        self._cap = cap

    def spend(self, charge: Charge) -> None:
        """Charge a plan, once; durable when this returns. `BudgetExceeded` charges nothing."""
        cost = charge.cost
        with self._database.transaction() as connection:
            key = (self._dataset, self._owner, charge.plan_id)
            if connection.execute(_FIND, key).fetchone() is not None:
                return
            before = self._spent(connection)
            if not admits(self._cap.allowance(), before, cost):
                raise budget_exceeded(cost, before, self._cap)
            connection.execute(
                "INSERT INTO shared_charges VALUES (?, ?, ?, ?, ?, ?)",
                (*key, cost.mu_squared, cost.pure, cost.slack),
            )

    def void(self, plan_id: str) -> None:
        """Give a charge back: the folder's own ledger refused the plan before anything was read."""
        with self._database.transaction() as connection:
            connection.execute(_REMOVE, (self._dataset, self._owner, plan_id))

    def spent(self) -> Cost:
        """What all folders together have spent on the dataset."""
        with self._database.reading() as connection:
            return self._spent(connection)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _spent(self, connection: sqlite3.Connection) -> Cost:
        row = connection.execute(
            "SELECT coalesce(sum(mu_squared), 0), coalesce(sum(pure), 0), coalesce(sum(slack), 0)"
            " FROM shared_charges WHERE dataset = ?",
            (self._dataset,),
        ).fetchone()
        return Cost(*row)
