"""What earlier versions stored as messages of the wire, read once more.

A ledger holds our own canonical form. Folders that were served before it did hold plans and waiting tasks as messages;
whoever serves such a folder hands these functions to its store, which rewrites what it holds. Nothing else of the
program reads a message from a disk, and nothing writes one.
"""

from __future__ import annotations

from protos.words import PLAN, TASK
from wardround.federation import canonical
from wardround.federation.ledger.rewriting import Rewritten


def stored_plan(message: bytes) -> Rewritten:
    """A plan that a coordinator reserved."""
    plan = PLAN.decode(message)
    return Rewritten(plan.plan_id, plan.encoding)


def stored_task(message: bytes) -> Rewritten:
    """A task that waits for a site's steward, or did."""
    signed = TASK.decode(message)
    return Rewritten(signed.task.plan.plan_id, canonical.encode(signed))
