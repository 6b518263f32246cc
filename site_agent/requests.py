"""Plans that wait for a data steward: held before anything is spent, decided without seeing data.

Every function works inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.errors import Mistaken

DENIED = "ApprovalDenied"
"""The code of the refusal that a steward's `deny` becomes."""


class RequestState(StrEnum):
    """What the steward said."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Request:
    """A plan as the steward sees it."""

    plan_id: str
    summary: str
    state: RequestState
    asked_on: str


def hold(connection: sqlite3.Connection, *, task: bytes, plan_id: str, summary: str, asked_on: str) -> RequestState:
    """Keep a task until it is decided; a repeat brings the newest task and changes no decision."""
    connection.execute(
        """
        INSERT INTO requests (plan_id, task, summary, state, asked_on) VALUES (?, ?, ?, 'pending', ?)
        ON CONFLICT (plan_id) DO UPDATE SET task = excluded.task
        """,
        (plan_id, task, summary, asked_on),
    )
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    return RequestState(row[0])


def listed(connection: sqlite3.Connection) -> list[Request]:
    """Every request, oldest first."""
    rows = connection.execute("SELECT plan_id, summary, state, asked_on FROM requests ORDER BY rowid")
    return [Request(row[0], row[1], RequestState(row[2]), row[3]) for row in rows]


def decide(connection: sqlite3.Connection, plan_id: str, state: RequestState) -> None:
    """Write the decision down."""
    changed = connection.execute("UPDATE requests SET state = ? WHERE plan_id = ?", (state.value, plan_id))
    if changed.rowcount == 0:
        raise Mistaken(f"no request waits under plan {plan_id}.")


def decided(connection: sqlite3.Connection) -> list[bytes]:
    """The tasks approved and not yet answered, or denied and not yet delivered, oldest first."""
    rows = connection.execute(
        """
        SELECT task FROM requests
        WHERE state = 'approved' AND plan_id NOT IN (SELECT plan_id FROM releases UNION SELECT plan_id FROM refusals)
           OR state = 'denied' AND plan_id NOT IN (SELECT plan_id FROM receipts)
        ORDER BY rowid
        """
    )
    return [bytes(row[0]) for row in rows]
