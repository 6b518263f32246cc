"""One budget for a dataset that several studies use.

Each study has a folder and a ledger of its own; what they spend on the same dataset is added up in one more
file, which every folder's site.toml names. It is charged first: a crash between the two charges leaves the
shared account ahead of a ledger, never behind it, and the repeated task finds its charge and goes on. So an account
that lacks a charge of a folder's is not the one that was charged, and is not used.

The file is the account: whatever each folder calls its dataset, which is its own name unless it says otherwise, all of
them are added up.

Only loss of one unit adds up: an event's is no part of a patient's, and no number of the first bounds the second.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from site_agent.store.charges import TAKEN, Charged
from wardround.federation.errors import InvariantBroken, PlanRefused
from wardround.federation.ledger.accounts import budget_exceeded
from wardround.federation.ledger.sqlite_file import Database, Durability
from wardround.federation.plan.plan import Charge
from wardround.federation.study.study import Unit
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap, admits

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
-- whose loss an owner's charges are; those made before this table have a row once their folder was opened again
CREATE TABLE IF NOT EXISTS shared_units (
    dataset TEXT NOT NULL,
    owner   TEXT NOT NULL,
    unit    TEXT NOT NULL,
    PRIMARY KEY (dataset, owner)
) STRICT, WITHOUT ROWID;
"""

_PLAN = "SELECT 1 FROM shared_charges WHERE dataset = ? AND owner = ? AND plan_id = ?"
_BLOCK = "SELECT 1 FROM shared_blocks WHERE dataset = ? AND owner = ? AND block = ?"
_STEP = "SELECT plan_id FROM shared_steps WHERE dataset = ? AND owner = ? AND block = ? AND place = ?"
_CHARGE_PLAN = "INSERT INTO shared_charges VALUES (?, ?, ?, ?, ?, ?)"
_CHARGE_BLOCK = "INSERT INTO shared_blocks VALUES (?, ?, ?, ?, ?, ?)"
_RAISE = """ DO UPDATE SET mu_squared = max(mu_squared, excluded.mu_squared),
pure = max(pure, excluded.pure), slack = max(slack, excluded.slack)"""
_BRING_PLAN = f"{_CHARGE_PLAN} ON CONFLICT (dataset, owner, plan_id) {_RAISE}"
_BRING_BLOCK = f"{_CHARGE_BLOCK} ON CONFLICT (dataset, owner, block) {_RAISE}"
_BRING_STEP = "INSERT OR REPLACE INTO shared_steps VALUES (?, ?, ?, ?, ?)"
_TAKE = "INSERT INTO shared_steps VALUES (?, ?, ?, ?, ?)"
_NOTE = "INSERT INTO shared_units VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_VOID_PLAN = "DELETE FROM shared_charges WHERE dataset = ? AND owner = ? AND plan_id = ?"
_VOID_STEP = "DELETE FROM shared_steps WHERE dataset = ? AND owner = ? AND block = ? AND plan_id = ?"
_VOID_BLOCK = """
DELETE FROM shared_blocks WHERE dataset = ?1 AND owner = ?2 AND block = ?3
AND NOT EXISTS (SELECT 1 FROM shared_steps WHERE dataset = ?1 AND owner = ?2 AND block = ?3)
"""
_PLANS = "SELECT plan_id, mu_squared, pure, slack FROM shared_charges WHERE dataset = ? AND owner = ?"
_BLOCKS = "SELECT block, mu_squared, pure, slack FROM shared_blocks WHERE dataset = ? AND owner = ?"
_STEPS = "SELECT block, place, plan_id FROM shared_steps WHERE dataset = ? AND owner = ?"
_HELD = """
SELECT (SELECT count(*) FROM shared_charges WHERE dataset = ?1 AND owner = ?2)
     + (SELECT count(*) FROM shared_steps WHERE dataset = ?1 AND owner = ?2)
"""
_SPENT = """
SELECT coalesce(sum(mu_squared), 0), coalesce(sum(pure), 0), coalesce(sum(slack), 0) FROM (
    SELECT mu_squared, pure, slack FROM shared_charges UNION ALL SELECT mu_squared, pure, slack FROM shared_blocks
)
"""
_UNITS = """
SELECT owner, coalesce(unit, '') FROM (
    SELECT dataset, owner FROM shared_charges UNION SELECT dataset, owner FROM shared_blocks
) LEFT JOIN shared_units USING (dataset, owner) WHERE owner <> ? ORDER BY owner
"""


@dataclass(frozen=True, slots=True)
class Folder:
    """One of the folders that share an account: the site and its study, whose unit its loss is of."""

    site: str
    study_hash: str
    unit: Unit

    @property
    def owner(self) -> str:
        """How the account calls it."""
        return f"{self.site} {self.study_hash}"


class SharedAccount:
    """The dataset's account, for one of the folders that charge it.

    `advice` is for a file that must be there and is not; without it one is made.
    """

    def __init__(
        self,
        path: Path,
        *,
        dataset: str,
        folder: Folder,
        cap: Cap,
        keeping: Durability = Durability.DURABLE,
        advice: str = "",
    ) -> None:
        self.path = path
        self._database = Database(
            path, schema=SCHEMA, later=LATER, keeping=keeping, existing=bool(advice), advice=advice
        )
        self._ours = (dataset, folder.owner)
        self._unit = folder.unit
        self._cap = cap
        with self._database.reading() as connection:
            self._held = self._count(connection)

    def spend(self, charge: Charge) -> None:
        """Charge a plan, once; durable when this returns. `BudgetExceeded` and `PlanRefused` charge nothing."""
        with self._database.transaction() as connection:
            if self._count(connection) < self._held:
                raise InvariantBroken(f"{self.path} lost charges while it was in use; restore it, then start again.")
            if (fault := self._unit_fault(connection)) is not None:
                raise PlanRefused(fault)
            if charge.block:
                self._take(connection, charge)
            elif connection.execute(_PLAN, (*self._ours, charge.plan_id)).fetchone() is None:
                self._debit(connection, _CHARGE_PLAN, charge.plan_id, charge.cost)
            self._note(connection)
            held = self._count(connection)
        self._held = held

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
            held = self._count(connection)
        self._held = held

    def spent(self) -> Cost:
        """What all folders together have spent."""
        with self._database.reading() as connection:
            return self._spent(connection)

    # --- whether it is the account that was charged ---------------------------------------------------------

    def lacking(self, charges: Sequence[Charged]) -> list[Charged]:
        """Which of the folder's charges are not here, or for less; none where this is the account it charged."""
        with self._database.reading() as connection:
            return self._lacking(connection, charges)

    def bring(self, charges: Sequence[Charged]) -> int:
        """Add what is lacking of the folder's charges, above the cap too: they are facts. How many were added."""
        with self._database.transaction() as connection:
            added = self._lacking(connection, charges)
            for charge in added:
                amounts = (charge.cost.mu_squared, charge.cost.pure, charge.cost.slack)
                if charge.block:
                    connection.execute(_BRING_BLOCK, (*self._ours, charge.block, *amounts))
                    connection.execute(_BRING_STEP, (*self._ours, charge.block, charge.place, charge.plan_id))
                else:
                    connection.execute(_BRING_PLAN, (*self._ours, charge.plan_id, *amounts))
            self._note(connection)
            held = self._count(connection)
        self._held = held
        return len(added)

    def note_unit(self) -> None:
        """Write down whose loss this folder's charges are, if it has any here."""
        with self._database.transaction() as connection:
            self._note(connection)

    def unit_fault(self) -> str | None:
        """Why this folder's loss cannot be added to what is here, or None."""
        with self._database.reading() as connection:
            return self._unit_fault(connection)

    def unknown_units(self) -> list[str]:
        """The sites whose charges are here and whose unit is not known yet: they are taken to be of ours."""
        with self._database.reading() as connection:
            return [owner.partition(" ")[0] for owner, unit in self._others(connection) if not unit]

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
        return Cost(*connection.execute(_SPENT).fetchone())

    def _count(self, connection: sqlite3.Connection) -> int:
        """How many of the folder's plans are charged here."""
        return int(connection.execute(_HELD, self._ours).fetchone()[0])

    def _lacking(self, connection: sqlite3.Connection, charges: Sequence[Charged]) -> list[Charged]:
        plans = {word: Cost(*amounts) for word, *amounts in connection.execute(_PLANS, self._ours)}
        blocks = {word: Cost(*amounts) for word, *amounts in connection.execute(_BLOCKS, self._ours)}
        steps = {(block, place): plan_id for block, place, plan_id in connection.execute(_STEPS, self._ours)}

        def here(charge: Charged) -> bool:
            paid = blocks.get(charge.block) if charge.block else plans.get(charge.plan_id)
            if paid is None or not charge.cost.fits(paid):
                return False
            return not charge.block or steps.get((charge.block, charge.place)) == charge.plan_id

        return [charge for charge in charges if not here(charge)]

    def _note(self, connection: sqlite3.Connection) -> None:
        if self._count(connection):
            connection.execute(_NOTE, (*self._ours, self._unit.value))

    def _others(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        return connection.execute(_UNITS, self._ours[1:]).fetchall()

    def _unit_fault(self, connection: sqlite3.Connection) -> str | None:
        for owner, unit in self._others(connection):
            if unit not in ("", self._unit.value):
                return (
                    f"{self.path} counts {unit}-level loss (of {owner.partition(' ')[0]}) and this study counts "
                    f"{self._unit.value}-level loss; the two cannot be added. Name a separate account in site.toml for "
                    "each, in a file that never held the other's charges, and run for every folder that moves: "
                    "wardround site account DIR"
                )
        return None
