"""A plan as the ledger keeps it, so that a restart hands out exactly what was reserved.

The bytes are the plan's canonical ones: its id is their hash.
"""

from __future__ import annotations

import sqlite3
import threading
from functools import lru_cache

from wardround.federation.canonical_reader import decode
from wardround.federation.errors import LedgerCorrupt, MalformedMessage, QueryMistaken
from wardround.federation.plan.plan import Plan

_REMEMBERED = 32


def encode_plan(plan: Plan) -> bytes:
    """The plan's bytes for the ledger; `QueryMistaken` when what it asks could not be read again."""
    try:
        _read(plan.encoding)
    except MalformedMessage as malformed:
        raise QueryMistaken(malformed.message) from None
    return plan.encoding


def decode_plan(stored: bytes, *, plan_id: str) -> Plan:
    """The plan in these bytes; `LedgerCorrupt` unless it is the one that was reserved under `plan_id`."""
    try:
        plan = _read(stored)
    except MalformedMessage:
        raise LedgerCorrupt(private="a stored plan cannot be read") from None
    if plan.plan_id != plan_id:
        raise LedgerCorrupt(private="a stored plan is not the one that was reserved")
    return plan


# A plan is read when it is stored, once for each of its sites, and again for each of their answers.
@lru_cache(maxsize=_REMEMBERED)
def _read(stored: bytes) -> Plan:
    plan = decode(Plan, stored)
    # What was just compared need not be written again.
    vars(plan)["encoding"] = stored
    return plan


class ReservedPlans:
    """Plans of tasks by their ids. An id is the hash of what its plan says, so none is read twice.

    A plan names all its participants and is handed out to each of them, so reading it each time would cost the
    square of their number.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: dict[str, Plan] = {}

    def reserved(self, connection: sqlite3.Connection, plan_id: str) -> Plan:
        """The plan that was reserved under this id; the caller has found a task of it."""
        with self._guard:
            known = self._known.get(plan_id)
        if known is not None:
            return known
        row = connection.execute("SELECT plan FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
        if row is None:
            raise LedgerCorrupt(private="a task belongs to no round")
        plan = decode_plan(row[0], plan_id=plan_id)
        with self._guard:
            self._known[plan_id] = plan
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        return plan
