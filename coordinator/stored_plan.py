"""A plan as the ledger keeps it, so that a restart hands out exactly what was reserved."""

from __future__ import annotations

from functools import lru_cache

from protos import codec_plan
from wardround.federation.errors import LedgerCorrupt, MalformedMessage
from wardround.federation.plan import Plan


def encode_plan(plan: Plan) -> bytes:
    """The plan's bytes for the ledger."""
    return codec_plan.encode_plan(plan)


# A plan is read once for each of its sites, and again for each of their answers.
@lru_cache(maxsize=32)
def decode_plan(stored: bytes, *, plan_id: str) -> Plan:
    """The plan in these bytes; `LedgerCorrupt` unless it is the one that was reserved under `plan_id`."""
    try:
        plan = codec_plan.decode_plan(stored)
    except MalformedMessage:
        raise LedgerCorrupt(private="a stored plan cannot be read") from None
    if plan.plan_id != plan_id:
        raise LedgerCorrupt(private="a stored plan is not the one that was reserved")
    return plan
