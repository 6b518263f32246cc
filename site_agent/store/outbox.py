"""What leaves a site: releases and refusals, as rows that are written once and read back before they are sent.

Every function works inside the caller's transaction; `SiteLedger` decides when one begins and ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import TypeAlias

from site_agent.store.charges import entry_about, facts_paid
from wardround.federation.errors import LedgerCorrupt, UnpaidRelease
from wardround.federation.forms.release import Release, extent, release_hash
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import Body, Plain, acknowledges, newer, text_in
from wardround.federation.plan.task import Declined, Released
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import Identity, PublicIdentity

Kept: TypeAlias = Released | Declined

# Receipts of answers that were under way together are stored in any order; so many are looked at for the newest.
_LAST = 256


def store_release(connection: sqlite3.Connection, identity: Identity, release: Release) -> None:
    """Write the bytes of a release and the signed entry that names their hash."""
    facts = facts_paid(connection, release.plan_id)
    if facts is None:
        raise UnpaidRelease
    if not extent(release).is_paid_by(facts):
        raise UnpaidRelease(private="the release has another extent than what was paid for")
    payload = release.encode()
    body = {"plan_id": release.plan_id, "release_hash": release_hash(payload)}
    entry = chain.append(connection, identity, kind="released", body=body)
    connection.execute(
        "INSERT INTO releases (plan_id, sequence, payload) VALUES (?, ?, ?)",
        (release.plan_id, entry.sequence, payload),
    )


def store_refusal(
    connection: sqlite3.Connection,
    identity: Identity,
    *,
    plan_id: str,
    code: str,
    date: str,
    asked: Mapping[str, Plain],
) -> None:
    """Write a signed refusal of what was `asked`."""
    body: Body = {"plan_id": plan_id, "code": code, "date": date, **asked}
    entry = chain.append(connection, identity, kind="refused", body=body)
    connection.execute(
        "INSERT INTO refusals (plan_id, sequence, date) VALUES (?, ?, ?)", (plan_id, entry.sequence, date)
    )


def store_receipt(connection: sqlite3.Connection, plan_id: str, receipt: Entry) -> None:
    """Write the coordinator's receipt; the first one stays."""
    connection.execute(
        "INSERT INTO receipts (plan_id, sequence, previous, kind, body, signature) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (plan_id) DO NOTHING",
        (plan_id, receipt.sequence, receipt.previous, receipt.kind, receipt.body, receipt.signature),
    )


def find(connection: sqlite3.Connection, plan_id: str) -> Kept | None:
    """What was kept for a plan, from the disk; `LedgerCorrupt` when the bytes are not those that were signed."""
    row = connection.execute("SELECT sequence, payload FROM releases WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is not None:
        payload = bytes(row[1])
        entry, body = entry_about(connection, plan_id, row[0], kind="released")
        if text_in(body, "release_hash") != release_hash(payload):
            raise LedgerCorrupt(private="a stored release is not the one that was signed")
        return Released(plan_id, payload, entry)
    row = connection.execute("SELECT sequence FROM refusals WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is not None:
        entry, body = entry_about(connection, plan_id, row[0], kind="refused")
        return Declined(plan_id, text_in(body, "code"), entry)
    return None


def is_released(connection: sqlite3.Connection, plan_id: str) -> bool:
    """Whether a release was kept for a plan."""
    return connection.execute("SELECT 1 FROM releases WHERE plan_id = ?", (plan_id,)).fetchone() is not None


def is_refused(connection: sqlite3.Connection, plan_id: str) -> bool:
    """Whether a refusal was kept for a plan."""
    return connection.execute("SELECT 1 FROM refusals WHERE plan_id = ?", (plan_id,)).fetchone() is not None


def undelivered(connection: sqlite3.Connection) -> list[str]:
    """The plans whose release or refusal has no receipt yet, in the order they were kept."""
    rows = connection.execute(
        """
        SELECT plan_id FROM (
            SELECT plan_id, sequence FROM releases UNION ALL SELECT plan_id, sequence FROM refusals
        ) WHERE plan_id NOT IN (SELECT plan_id FROM receipts) ORDER BY sequence
        """
    )
    return [row[0] for row in rows]


def last_arrived(connection: sqlite3.Connection) -> int:
    """The number of the last entry of ours that the coordinator gave a receipt for; 0 before the first."""
    statements = (
        "SELECT sequence FROM releases WHERE plan_id IN (SELECT plan_id FROM receipts) ORDER BY sequence DESC LIMIT 1",
        "SELECT sequence FROM refusals WHERE plan_id IN (SELECT plan_id FROM receipts) ORDER BY sequence DESC LIMIT 1",
    )
    numbers = [connection.execute(statement).fetchone() for statement in statements]
    return max((int(row[0]) for row in numbers if row is not None), default=0)


def newest_receipt(connection: sqlite3.Connection) -> Entry | None:
    """The receipt that the coordinator signed last, as far as one can tell from the last that were stored."""
    rows = connection.execute(
        "SELECT sequence, previous, kind, body, signature FROM receipts ORDER BY rowid DESC LIMIT ?", (_LAST,)
    )
    found: Entry | None = None
    for row in rows:
        found = newer(found, Entry(*row))
    return found


def is_receipt_for(kept: Kept, receipt: Entry, *, site: str, coordinator: PublicIdentity) -> bool:
    """Whether `receipt` is the coordinator's word that exactly this arrived."""
    hashed = release_hash(kept.payload) if isinstance(kept, Released) else None
    return receipt.signed_by(coordinator) and acknowledges(
        receipt, kept.entry.head, plan_id=kept.plan_id, site=site, released=hashed
    )
