"""What a site recalls for a coordinator that came back from a backup: every plan that it may have forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from site_agent.store import outbox
from site_agent.store.askers import Asking, stored_asking
from site_agent.store.charges import entry_about, refuse_if_frozen
from wardround.federation.canonical import decode
from wardround.federation.errors import LedgerCorrupt, MalformedMessage
from wardround.federation.ledger import chain
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import SignedTask
from wardround.federation.trust.entry import Entry, Head

# In the order of the chain, because a refusal gives room for what was charged after it.
_FORGOTTEN = """
SELECT plan_id, min(sequence) AS first FROM (
    SELECT plan_id, sequence FROM charges WHERE sequence > :known
    UNION ALL SELECT plan_id, sequence FROM answered WHERE sequence > :known
    UNION ALL SELECT plan_id, sequence FROM answered WHERE plan_id NOT IN (SELECT plan_id FROM receipts)
    UNION ALL SELECT plan_id, answered.sequence FROM answered JOIN receipts USING (plan_id)
        WHERE receipts.sequence >= :recovered
    -- what a steward may still approve was asked, too, and is charged once that is said
    UNION ALL SELECT plan_id, 9e18 FROM requests
        WHERE state <> 'denied' AND plan_id NOT IN (SELECT plan_id FROM charges UNION SELECT plan_id FROM answered)
) GROUP BY plan_id ORDER BY first, plan_id
"""
_ANSWERED = """
WITH answered (plan_id, sequence) AS (
    SELECT plan_id, sequence FROM releases UNION ALL SELECT plan_id, sequence FROM refusals
)
"""


@dataclass(frozen=True, slots=True)
class Recollection:
    """Our chain from one place on, the plans that were charged, held or answered in it, and where it ends."""

    chain: tuple[Entry, ...]
    plans: Iterator[Recalled]
    head: Head


def recollect(database: Database, *, known: Head, recovered: Entry) -> Recollection:
    """What a coordinator may not know that knew our chain up to a place, and lost what it signed since."""
    places = {"known": known.sequence, "recovered": recovered.sequence}
    with database.reading() as connection:
        refuse_if_frozen(connection)
        shown = tuple(chain.entries(connection, after=known.sequence))
        plans = [str(row[0]) for row in connection.execute(_ANSWERED + _FORGOTTEN, places)]

    def recall(plan_id: str) -> Recalled:
        with database.reading() as connection:
            return _recalled(connection, plan_id)

    return Recollection(shown, map(recall, plans), shown[-1].head if shown else known)


def _recalled(connection: sqlite3.Connection, plan_id: str) -> Recalled:
    """Everything that is known of a plan here."""
    paid = connection.execute("SELECT sequence FROM charges WHERE plan_id = ?", (plan_id,)).fetchone()
    asking = stored_asking(connection, plan_id) or _held(connection, plan_id)
    receipt = connection.execute(
        "SELECT sequence, previous, kind, body, signature FROM receipts WHERE plan_id = ?", (plan_id,)
    ).fetchone()
    return Recalled(
        plan_id,
        plan=None if asking is None else asking.plan,
        asked_by=None if asking is None else asking.asked_by,
        charged=None if paid is None else entry_about(connection, plan_id, paid[0], kind="charged")[0],
        receipt=None if receipt is None else Entry(*receipt),
        answer=outbox.find(connection, plan_id),
    )


def _held(connection: sqlite3.Connection, plan_id: str) -> Asking | None:
    """What waits, or waited, for a steward; an earlier version wrote it down nowhere else."""
    row = connection.execute("SELECT task FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    try:
        signed = None if row is None else decode(SignedTask, bytes(row[0]))
    except MalformedMessage:
        raise LedgerCorrupt(private="a request cannot be read") from None
    return None if signed is None else Asking(signed.task.plan, signed.asked_by)
