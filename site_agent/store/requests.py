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
    task: bytes


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
    rows = connection.execute("SELECT plan_id, summary, state, asked_on, task FROM requests ORDER BY rowid")
    return [Request(row[0], row[1], RequestState(row[2]), row[3], bytes(row[4])) for row in rows]


def decide(connection: sqlite3.Connection, plan_id: str, state: RequestState) -> None:
    """Write the decision down; one that was made before is not made again."""
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is None:
        raise Mistaken(f"no request waits under plan {plan_id}.")
    if row[0] == state.value:
        raise Mistaken(f"plan {plan_id} was {state.value} before; the running agent answers it.")
    connection.execute("UPDATE requests SET state = ? WHERE plan_id = ?", (state.value, plan_id))


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
