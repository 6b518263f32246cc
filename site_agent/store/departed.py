"""What left a site, line by line: facts of the ledger and the plan as it was asked, with no release decoded.

A site may have sent ten thousand releases of a hundred thousand numbers. Of each only the header is read.
Every function works inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from site_agent.store import askers
from site_agent.store.charges import entry_about
from wardround.federation.errors import LedgerCorrupt, MalformedMessage
from wardround.federation.forms.release import read_header
from wardround.federation.ledger.entry_body import cost_in, text_in
from wardround.federation.trust.asked_by import AskedBy
from wardround.privacy.accounting.cost import Cost

# As much as lies in the row's own page; to read more would be one more place of the disk for each release.
_HEADER_BYTES = 256

_RELEASED = """
SELECT releases.plan_id, releases.sequence, releases.rowid, charges.sequence, receipts.sequence IS NOT NULL,
    coalesce(plans.hour, ''), coalesce(plans.plan, x''), coalesce(plans.asked_by, x'')
FROM releases JOIN charges USING (plan_id) LEFT JOIN receipts USING (plan_id) LEFT JOIN plans USING (plan_id)
"""
_REFUSED = """
SELECT refusals.plan_id, refusals.sequence, refusals.date, receipts.sequence IS NOT NULL,
    coalesce(plans.hour, ''), coalesce(plans.plan, x''), coalesce(plans.asked_by, x''), decisions.sequence
FROM refusals LEFT JOIN receipts USING (plan_id) LEFT JOIN plans USING (plan_id) LEFT JOIN decisions USING (plan_id)
"""


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One thing that left: when, about which plan, how many integers, at what cost, and whether it arrived.

    `hour` is local time, `plan` the canonical bytes of what was asked; both empty where an earlier version answered.
    `decided_by` is the account of the steward who decided: None where nobody had to, empty where that was not noted.
    """

    sequence: int
    date: str
    plan_id: str
    kind: str
    values: int
    delivered: bool
    cost: Cost
    hour: str = ""
    plan: bytes = b""
    asked_by: AskedBy | None = None
    decided_by: str | None = None
    code: str = ""


def history(connection: sqlite3.Connection) -> list[HistoryLine]:
    """Everything that was ever kept to be sent, oldest first."""
    lines = [_released(connection, row) for row in connection.execute(_RELEASED)]
    lines += [_refused(connection, row) for row in connection.execute(_REFUSED)]
    return sorted(lines, key=lambda line: line.sequence)


def _released(connection: sqlite3.Connection, row: tuple[str, int, int, int, int, str, bytes, bytes]) -> HistoryLine:
    plan_id, sequence, place, charged, delivered, hour, plan, asked_by = row
    body = entry_about(connection, plan_id, charged, kind="charged")[1]
    try:
        header = read_header(_beginning(connection, place))
    except MalformedMessage:
        raise LedgerCorrupt(private="a stored release does not begin with its header") from None
    return HistoryLine(
        sequence,
        header.date,
        plan_id,
        "released",
        header.values,
        bool(delivered),
        cost_in(body),
        hour,
        plan,
        askers.decoded(asked_by),
        _text(body, "approved_by"),
    )


def _refused(
    connection: sqlite3.Connection, row: tuple[str, int, str, int, str, bytes, bytes, int | None]
) -> HistoryLine:
    plan_id, sequence, date, delivered, hour, plan, asked_by, decision = row
    code = text_in(entry_about(connection, plan_id, sequence, kind="refused")[1], "code")
    said = None if decision is None else entry_about(connection, plan_id, decision, kind="denied")[1]
    return HistoryLine(
        sequence,
        date,
        plan_id,
        "refused",
        0,
        bool(delivered),
        Cost.zero(),
        hour,
        plan,
        askers.decoded(asked_by),
        None if said is None else _text(said, "by"),
        code,
    )


def _beginning(connection: sqlite3.Connection, place: int) -> bytes:
    """The first line of a release; what follows it is not read, unless the line is long."""
    with connection.blobopen("releases", "payload", place, readonly=True) as payload:
        found = payload.read(_HEADER_BYTES)
        while b"\n" not in found and len(found) < len(payload):
            found += payload.read(len(found))
        return found.partition(b"\n")[0]


def _text(body: Mapping[str, object], key: str) -> str | None:
    return text_in(body, key) if key in body else None
