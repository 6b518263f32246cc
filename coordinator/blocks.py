"""Trainings at the coordinator: which are paid for, who takes part in them, and which of their rounds are taken.

Whoever took part in the first round is asked in every other, so that a hospital that comes or goes later makes no
second training of it. One that declined a round is not asked again; one that missed a round is asked, but not waited
for as long. Every function works inside the caller's transaction.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from wardround.federation import canonical
from wardround.federation.errors import LedgerCorrupt, PlanRefused, TooFewSites
from wardround.federation.plan import Charge, Plan
from wardround.federation.study import Study
from wardround.federation.training import Step

TAKEN = (
    "this round of the training was asked before with other numbers; take the training up with the program and the "
    "settings that began it, or begin it afresh (--fresh), which is charged again."
)


@dataclass(frozen=True, slots=True)
class Due:
    """What a plan is charged now, at which sites, and which participants declined its training earlier."""

    charge: Charge
    sites: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def due(connection: sqlite3.Connection, plan: Plan, charge: Charge, study: Study) -> Due:
    """The whole training at its first round, and nothing at a further one.

    Raises:
        PlanRefused: the round was asked with other numbers.
        TooFewSites: too many participants have declined an earlier round.
    """
    if not charge.block:
        return Due(charge, plan.participants)
    taken = connection.execute("SELECT plan_id FROM steps WHERE block = ? AND place = ?", (charge.block, charge.place))
    if (row := taken.fetchone()) is not None and row[0] != plan.plan_id:
        raise PlanRefused(TAKEN)
    if connection.execute("SELECT 1 FROM steps WHERE block = ? LIMIT 1", (charge.block,)).fetchone() is None:
        return Due(charge, plan.participants)
    declined = _declined(connection, charge.block)
    sites = tuple(site for site in plan.participants if site not in declined)
    if len(sites) < study.min_sites:
        names = ", ".join(f"{site} ({code})" for site, code in declined.items())
        raise TooFewSites(
            f"{len(sites)} sites still take part in the training and the study needs {study.min_sites}; "
            f"refused: {names}. When the hospitals have changed their policy, begin it afresh (--fresh)."
        )
    return Due(charge.continued(), sites, tuple(declined.items()))


def take(connection: sqlite3.Connection, plan: Plan, found: Due) -> None:
    """Write down that a charged plan has its round, and who is not asked."""
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


def participants_of(connection: sqlite3.Connection, step: Step, *, study: Study, nonce: str) -> tuple[str, ...]:
    """Who takes part in this training, once it has begun; nobody before."""
    row = connection.execute(
        "SELECT participants FROM trainings WHERE lineage = ?", (_lineage(study.study_hash, step, nonce),)
    ).fetchone()
    if row is None:
        return ()
    try:
        return tuple(map(str, json.loads(row[0])))
    except (ValueError, TypeError):
        raise LedgerCorrupt(private="the participants of a training cannot be read") from None


def left_out(connection: sqlite3.Connection, plan_id: str) -> dict[str, str]:
    """The participants of a round that were not asked, with the code of their earlier refusal."""
    return dict(connection.execute("SELECT site, code FROM left_out WHERE plan_id = ? ORDER BY site", (plan_id,)))


def away(connection: sqlite3.Connection, plan_id: str) -> frozenset[str]:
    """Who is still missing in the round before of the same training, the last that was settled; nobody for a question.

    A late answer changes no round, but whoever sent it is not away any more.
    """
    rows = connection.execute(
        "SELECT tasks.site FROM tasks WHERE tasks.state = 'missing' AND tasks.plan_id ="
        " (SELECT earlier.plan_id FROM rounds AS own JOIN steps AS step ON step.plan_id = own.plan_id"
        " JOIN steps AS other ON other.block = step.block JOIN rounds AS earlier ON earlier.plan_id = other.plan_id"
        " WHERE own.plan_id = ? AND earlier.number < own.number AND earlier.state IN ('settled', 'answered')"
        " ORDER BY earlier.number DESC LIMIT 1)",
        (plan_id,),
    )
    return frozenset(site for (site,) in rows)


def first_opened_at(connection: sqlite3.Connection, plan_id: str) -> float:
    """When a round was opened, or the first of its training: a steward decides about a training once."""
    row = connection.execute(
        "SELECT MIN(rounds.opened_at) FROM rounds WHERE plan_id = ?1 OR plan_id IN"
        " (SELECT other.plan_id FROM steps AS own JOIN steps AS other ON own.block = other.block"
        " WHERE own.plan_id = ?1)",
        (plan_id,),
    ).fetchone()
    return float(row[0])


def keeps_its_charge(connection: sqlite3.Connection, plan_id: str, site: str) -> bool:
    """Whether a refusal of this plan gives nothing back: another round of its training was asked of the site.

    That one may have been answered, or be under way, and it was paid for by the same charge.
    """
    row = connection.execute(
        "SELECT 1 FROM steps AS own JOIN steps AS other ON own.block = other.block AND own.plan_id <> other.plan_id"
        " WHERE own.plan_id = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM left_out WHERE left_out.plan_id = other.plan_id AND left_out.site = ?2) LIMIT 1",
        (plan_id, site),
    ).fetchone()
    return row is not None


def _declined(connection: sqlite3.Connection, block: str) -> dict[str, str]:
    """Every site that declined a round of the training, with the code of its first refusal."""
    rows = connection.execute(
        "SELECT submissions.site, submissions.code FROM steps JOIN submissions USING (plan_id)"
        " WHERE steps.block = ? AND submissions.code <> '' ORDER BY submissions.site, submissions.receipt DESC",
        (block,),
    )
    # Of several the oldest is read last, and stays.
    return dict(rows.fetchall())


def _lineage(study_hash: str, step: Step, nonce: str) -> str:
    """What the rounds of a training have in common whoever takes part."""
    return canonical.digest((study_hash, step.training, nonce))
