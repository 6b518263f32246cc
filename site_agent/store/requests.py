"""Plans that wait for a data steward: held before anything is spent, decided without seeing data.

Every function works inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import Mistaken
from wardround.federation.ledger.rewriting import StoredColumn
from wardround.federation.plan.task import SignedTask

TASKS = StoredColumn(
    others="SELECT plan_id FROM requests WHERE substr(task, 1, 1) <> ?",
    stored="SELECT task FROM requests WHERE plan_id = ?",
    replace="UPDATE requests SET task = ? WHERE plan_id = ?",
)
_SELECT = "SELECT plan_id, summary, state, asked_on, task FROM requests"


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

    def signed(self) -> SignedTask:
        """The task that would run; `MalformedMessage` where only an older version admitted it."""
        return decode(SignedTask, self.task)


def hold(connection: sqlite3.Connection, signed: SignedTask, *, summary: str, asked_on: str) -> RequestState:
    """Keep a task until it is decided; a repeat brings the newest task and changes no decision."""
    plan_id = signed.task.plan.plan_id
    connection.execute(
        """
        INSERT INTO requests (plan_id, task, summary, state, asked_on) VALUES (?, ?, ?, 'pending', ?)
        ON CONFLICT (plan_id) DO UPDATE SET task = excluded.task
        """,
        (plan_id, canonical.encode(signed), summary, asked_on),
    )
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    return RequestState(row[0])


def listed(connection: sqlite3.Connection, where: str = "") -> list[Request]:
    """Every request, or those of a condition, oldest first."""
    rows = connection.execute(f"{_SELECT} {where} ORDER BY rowid")
    return [Request(row[0], row[1], RequestState(row[2]), row[3], bytes(row[4])) for row in rows]


def decide(connection: sqlite3.Connection, plan_id: str, state: RequestState) -> None:
    """Write the decision down; one that was made before is not made again."""
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is None:
        raise Mistaken(f"no request with the plan id {plan_id} is waiting.")
    if row[0] == state.value:
        raise Mistaken(f"plan {plan_id} was already {state.value}; the running agent answers it.")
    connection.execute("UPDATE requests SET state = ? WHERE plan_id = ?", (state.value, plan_id))


def decided(connection: sqlite3.Connection) -> list[Request]:
    """Those approved and not yet answered, or denied and not yet delivered, oldest first."""
    return listed(
        connection,
        """
        WHERE state = 'approved' AND plan_id NOT IN (SELECT plan_id FROM releases UNION SELECT plan_id FROM refusals)
           OR state = 'denied' AND plan_id NOT IN (SELECT plan_id FROM receipts)
        """,
    )
