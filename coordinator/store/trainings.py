"""Trainings in the ledger: which have begun, who takes part in them, and which of their rounds are taken."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from wardround.federation import canonical
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import Charge, Plan


@dataclass(frozen=True, slots=True)
class Begun:
    """A block that is paid: the plan that took the place in question, if one did, and who declined, with the code."""

    taken_by: str | None
    declined: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Due:
    """What a plan is charged now, at which sites, and which participants declined its training earlier."""

    charge: Charge
    sites: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


class TrainingStore:
    """The trainings of every analyst."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begun(self, charge: Charge) -> Begun | None:
        """The block that this charge belongs to, once it is paid; None before, and for a question."""
        if not charge.block:
            return None
        with self._database.reading() as connection:
            if connection.execute("SELECT 1 FROM steps WHERE block = ? LIMIT 1", (charge.block,)).fetchone() is None:
                return None
            taken = connection.execute(
                "SELECT plan_id FROM steps WHERE block = ? AND place = ?", (charge.block, charge.place)
            ).fetchone()
            declined = connection.execute(
                "SELECT submissions.site, submissions.code FROM steps JOIN submissions USING (plan_id)"
                " WHERE steps.block = ? AND submissions.code <> '' ORDER BY submissions.site, submissions.receipt DESC",
                (charge.block,),
            ).fetchall()
        # Of several refusals of a site the oldest is read last, and stays.
        return Begun(None if taken is None else str(taken[0]), tuple(dict(declined).items()))

    def participants(self, step: Step, *, study_hash: str, nonce: str) -> tuple[str, ...]:
        """Who takes part in this training, once it has begun; nobody before."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT participants FROM trainings WHERE lineage = ?", (_lineage(study_hash, step, nonce),)
            ).fetchone()
        if row is None:
            return ()
        try:
            return tuple(map(str, json.loads(row[0])))
        except (ValueError, TypeError):
            raise LedgerCorrupt(private="the participants of a training cannot be read") from None

    def left_out(self, plan_id: str) -> dict[str, str]:
        """The participants of a round that were not asked, with the code of their earlier refusal."""
        with self._database.reading() as connection:
            return dict(
                connection.execute("SELECT site, code FROM left_out WHERE plan_id = ? ORDER BY site", (plan_id,))
            )

    def away(self, plan_id: str) -> frozenset[str]:
        """Who is missing in the round before of the same training, the last that was settled; nobody for a question.

        A late answer changes no round, but whoever sent it is not away any more.
        """
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT tasks.site FROM tasks WHERE tasks.state = 'missing' AND tasks.plan_id ="
                " (SELECT earlier.plan_id FROM rounds AS own JOIN steps AS step ON step.plan_id = own.plan_id"
                " JOIN steps AS other ON other.block = step.block"
                " JOIN rounds AS earlier ON earlier.plan_id = other.plan_id"
                " WHERE own.plan_id = ? AND earlier.number < own.number AND earlier.state IN ('settled', 'answered')"
                " ORDER BY earlier.number DESC LIMIT 1)",
                (plan_id,),
            )
            return frozenset(site for (site,) in rows)

    def first_opened_at(self, plan_id: str) -> float:
        """When a round was opened, or the first of its training: a steward decides about a training once."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT MIN(rounds.opened_at) FROM rounds WHERE plan_id = ?1 OR plan_id IN"
                " (SELECT other.plan_id FROM steps AS own JOIN steps AS other ON own.block = other.block"
                " WHERE own.plan_id = ?1)",
                (plan_id,),
            ).fetchone()
        return float(row[0])

    def keeps_its_charge(self, plan_id: str, site: str) -> bool:
        """Whether a refusal of this plan gives nothing back: another round of its training was asked of the site.

        That one may have been answered, or be under way, and it was paid for by the same charge.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM steps AS own"
                " JOIN steps AS other ON own.block = other.block AND own.plan_id <> other.plan_id"
                " WHERE own.plan_id = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM left_out WHERE left_out.plan_id = other.plan_id AND left_out.site = ?2) LIMIT 1",
                (plan_id, site),
            ).fetchone()
        return row is not None


def take(connection: sqlite3.Connection, plan: Plan, found: Due) -> None:
    """Write down, inside a running transaction, that a charged plan has its round, and who is not asked."""
    charge = found.charge
    if not charge.block or not isinstance(plan.query, Step):
        return
    connection.execute(
        "INSERT INTO trainings (lineage, block, participants) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (_lineage(plan.study_hash, plan.query, plan.nonce), charge.block, json.dumps(plan.participants)),
    )
    row = (charge.block, charge.place, plan.plan_id)
    connection.execute("INSERT INTO steps (block, place, plan_id) VALUES (?, ?, ?)", row)
    connection.executemany(
        "INSERT INTO left_out (plan_id, site, code) VALUES (?, ?, ?)",
        [(plan.plan_id, site, code) for site, code in found.left_out],
    )


def _lineage(study_hash: str, step: Step, nonce: str) -> str:
    """What the rounds of a training have in common whoever takes part."""
    return canonical.digest((study_hash, step.training, nonce))
