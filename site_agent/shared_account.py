"""One budget for a dataset that several studies use.

Each study has a folder and a ledger of its own; what they spend on the same dataset is added up in one more
file, which every folder's site.toml names. It is charged first: a crash between the two charges leaves the
shared account ahead of a ledger, never behind it, and the repeated task finds its charge and goes on.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from site_agent.blocks import TAKEN
from wardround.federation.errors import PlanRefused
from wardround.federation.ledger.accounts import budget_exceeded
from wardround.federation.ledger.database import Database, Keeping
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
LATER = """
-- what a training costs, once for all of its rounds, as long as one of them is charged
CREATE TABLE IF NOT EXISTS shared_blocks (
    dataset    TEXT NOT NULL,
    owner      TEXT NOT NULL,
    block      TEXT NOT NULL,
    mu_squared INTEGER NOT NULL CHECK (mu_squared >= 0),
    pure       INTEGER NOT NULL CHECK (pure >= 0),
    slack      INTEGER NOT NULL CHECK (slack >= 0),
    PRIMARY KEY (dataset, owner, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shared_steps (
    dataset TEXT NOT NULL,
    owner   TEXT NOT NULL,
    block   TEXT NOT NULL,
    place   INTEGER NOT NULL,
    plan_id TEXT NOT NULL,
    PRIMARY KEY (dataset, owner, block, place),
    FOREIGN KEY (dataset, owner, block) REFERENCES shared_blocks (dataset, owner, block)
) STRICT, WITHOUT ROWID;
"""

_PLAN = "SELECT 1 FROM shared_charges WHERE dataset = ? AND owner = ? AND plan_id = ?"
_BLOCK = "SELECT 1 FROM shared_blocks WHERE dataset = ? AND owner = ? AND block = ?"
_STEP = "SELECT plan_id FROM shared_steps WHERE dataset = ? AND owner = ? AND block = ? AND place = ?"
_CHARGE_PLAN = "INSERT INTO shared_charges VALUES (?, ?, ?, ?, ?, ?)"
_CHARGE_BLOCK = "INSERT INTO shared_blocks VALUES (?, ?, ?, ?, ?, ?)"
_TAKE = "INSERT INTO shared_steps VALUES (?, ?, ?, ?, ?)"
_VOID_PLAN = "DELETE FROM shared_charges WHERE dataset = ? AND owner = ? AND plan_id = ?"
_VOID_STEP = "DELETE FROM shared_steps WHERE dataset = ? AND owner = ? AND block = ? AND plan_id = ?"
_VOID_BLOCK = """
DELETE FROM shared_blocks WHERE dataset = ?1 AND owner = ?2 AND block = ?3
AND NOT EXISTS (SELECT 1 FROM shared_steps WHERE dataset = ?1 AND owner = ?2 AND block = ?3)
"""
_SPENT = """
SELECT coalesce(sum(mu_squared), 0), coalesce(sum(pure), 0), coalesce(sum(slack), 0) FROM (
    SELECT mu_squared, pure, slack FROM shared_charges WHERE dataset = ?1
    UNION ALL SELECT mu_squared, pure, slack FROM shared_blocks WHERE dataset = ?1
)
"""


class SharedAccount:
    """The dataset's account, for one of the folders that charge it; `owner` is that folder's site and study."""

    def __init__(self, path: Path, *, dataset: str, owner: str, cap: Cap, keeping: Keeping = Keeping.DURABLE) -> None:
        self._database = Database(path, schema=SCHEMA, later=LATER, keeping=keeping)
        self._ours = (dataset, owner)
        self._cap = cap

    def spend(self, charge: Charge) -> None:
        """Charge a plan, once; durable when this returns. `BudgetExceeded` and `PlanRefused` charge nothing."""
        with self._database.transaction() as connection:
            if charge.block:
                self._take(connection, charge)
            elif connection.execute(_PLAN, (*self._ours, charge.plan_id)).fetchone() is None:
                self._debit(connection, _CHARGE_PLAN, charge.plan_id, charge.cost)

    def void(self, charge: Charge) -> None:
        """Give a charge back: the folder's own ledger refused the plan before anything was read.

        A training is given back with the last of its rounds.
        """
        with self._database.transaction() as connection:
            if charge.block:
                connection.execute(_VOID_STEP, (*self._ours, charge.block, charge.plan_id))
                connection.execute(_VOID_BLOCK, (*self._ours, charge.block))
            else:
                connection.execute(_VOID_PLAN, (*self._ours, charge.plan_id))

    def spent(self) -> Cost:
        """What all folders together have spent on the dataset."""
        with self._database.reading() as connection:
            return self._spent(connection)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _take(self, connection: sqlite3.Connection, charge: Charge) -> None:
        """Charge the training of a round where that was not done, and give the round its place."""
        key = (*self._ours, charge.block, charge.place)
        if (taken := connection.execute(_STEP, key).fetchone()) is not None:
            if taken[0] != charge.plan_id:
                raise PlanRefused(TAKEN)
            return
        if connection.execute(_BLOCK, (*self._ours, charge.block)).fetchone() is None:
            self._debit(connection, _CHARGE_BLOCK, charge.block, charge.cost)
        connection.execute(_TAKE, (*key, charge.plan_id))

    def _debit(self, connection: sqlite3.Connection, statement: str, word: str, cost: Cost) -> None:
        before = self._spent(connection)
        if not admits(self._cap.allowance(), before, cost):
            raise budget_exceeded(cost, before, self._cap)
        connection.execute(statement, (*self._ours, word, cost.mu_squared, cost.pure, cost.slack))

    def _spent(self, connection: sqlite3.Connection) -> Cost:
        return Cost(*connection.execute(_SPENT, self._ours[:1]).fetchone())
