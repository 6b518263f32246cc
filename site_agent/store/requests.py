"""Plans that wait for a data steward: held before anything is spent, decided without seeing data.

Every function works inside the caller's transaction.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass, replace
from enum import StrEnum

from site_agent.store import askers
from site_agent.store.askers import Asking
from site_agent.store.charges import entry_about
from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import Mistaken
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import Body, asked_body, text_in
from wardround.federation.ledger.rewriting import StoredColumn
from wardround.federation.plan.task import SignedTask
from wardround.federation.trust.identity import Identity

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


def hold(
    connection: sqlite3.Connection, identity: Identity, signed: SignedTask, *, summary: str, asked_on: str
) -> RequestState:
    """Keep a task until it is decided; a repeat brings the newest task and changes neither who asked nor a decision."""
    plan_id = signed.task.plan.plan_id
    asking = Asking(signed.task.plan, askers.first_asked(connection, plan_id, signed.asked_by))
    connection.execute(
        """
        INSERT INTO requests (plan_id, task, summary, state, asked_on) VALUES (?, ?, ?, 'pending', ?)
        ON CONFLICT (plan_id) DO UPDATE SET task = excluded.task
        """,
        (plan_id, canonical.encode(replace(signed, asked_by=asking.asked_by)), summary, asked_on),
    )
    row = connection.execute("SELECT state, asked_on, summary FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    state = RequestState(row[0])
    # What an earlier version decided was decided without it.
    if state is RequestState.PENDING and not askers.is_shown(connection, plan_id):
        askers.meet(connection, identity, asking.asked_by, date=asked_on)
        askers.note(connection, asking)
        shown = {"plan_id": plan_id, "date": row[1], "summary": hashlib.sha256(row[2].encode()).hexdigest()}
        body: Body = {**shown, **asked_body(asking.asked_by)}
        chain.append(connection, identity, kind="held", body=body)
    return state


def state(connection: sqlite3.Connection, plan_id: str) -> RequestState:
    """What the steward said to a plan; nothing yet where nobody was asked."""
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    return RequestState.PENDING if row is None else RequestState(row[0])


def listed(connection: sqlite3.Connection, where: str = "") -> list[Request]:
    """Every request, or those of a condition, oldest first."""
    rows = connection.execute(f"{_SELECT} {where} ORDER BY rowid")
    return [Request(row[0], row[1], RequestState(row[2]), row[3], bytes(row[4])) for row in rows]


def decide(
    connection: sqlite3.Connection, identity: Identity, plan_id: str, state: RequestState, *, by: str, date: str
) -> None:
    """Write the decision down, signed; one that was made before is not made again."""
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is None:
        raise Mistaken(f"no request with the plan id {plan_id} is waiting.")
    if row[0] == state.value:
        raise Mistaken(f"plan {plan_id} was already {state.value}; the running agent answers it.")
    connection.execute("UPDATE requests SET state = ? WHERE plan_id = ?", (state.value, plan_id))
    askers.note_hour(connection, plan_id)
    _sign(connection, identity, plan_id, state, by=by, date=date)


def approved_by(connection: sqlite3.Connection, identity: Identity, plan_id: str, *, date: str) -> str | None:
    """Who approved a plan, None if nobody did; what was approved under an earlier version is signed now, by nobody."""
    row = connection.execute("SELECT state FROM requests WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is None or row[0] != RequestState.APPROVED:
        return None
    made = connection.execute("SELECT sequence FROM decisions WHERE plan_id = ?", (plan_id,)).fetchone()
    if made is None:
        _sign(connection, identity, plan_id, RequestState.APPROVED, by="", date=date)
        return ""
    return text_in(entry_about(connection, plan_id, made[0], kind="approved")[1], "by")


def _sign(
    connection: sqlite3.Connection, identity: Identity, plan_id: str, state: RequestState, *, by: str, date: str
) -> None:
    body: Body = {"plan_id": plan_id, "by": by, "date": date}
    entry = chain.append(connection, identity, kind=state.value, body=body)
    connection.execute(
        "INSERT INTO decisions (plan_id, sequence) VALUES (?, ?)"
        " ON CONFLICT (plan_id) DO UPDATE SET sequence = excluded.sequence",
        (plan_id, entry.sequence),
    )


def decided(connection: sqlite3.Connection) -> list[Request]:
    """Those approved and not yet answered, or denied and not yet delivered, oldest first."""
    return listed(
        connection,
        """
        WHERE state = 'approved' AND plan_id NOT IN (SELECT plan_id FROM releases UNION SELECT plan_id FROM refusals)
           OR state = 'denied' AND plan_id NOT IN (SELECT plan_id FROM receipts)
        """,
    )
