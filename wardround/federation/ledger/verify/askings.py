"""What a plan was asked with, as it lies beside a chain: the plan's bytes, and who asked it in the analyst's own words.

A ledger knows no plans, but a plan's canonical bytes say themselves what was signed: study, query and nonce.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from wardround.federation.canonical import decode
from wardround.federation.errors import MalformedMessage
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.identity import PublicIdentity, Purpose

Asker = tuple[str, str]
"""An analyst's name and key."""


@dataclass(frozen=True, slots=True)
class StoredAsking:
    """The hashes of both, as entries name them, and who asked if the signature covers the plan.

    `asked` is empty where nobody signed; `asker` is None there too. `table` is the one that the plan reads.
    """

    plan_id: str
    asked: str
    asker: Asker | None
    table: str


@dataclass(frozen=True, slots=True)
class PlanWords:
    """What a plan's canonical bytes say of themselves: their hash, who takes part, which table is read.

    `lineage` is what the rounds of a training have in common; the hash is empty for a message of an earlier version.
    """

    plan_id: str
    participants: tuple[str, ...] = ()
    table: str = ""
    lineage: str = ""


def planned(plan: bytes) -> PlanWords:
    """What the bytes of a stored plan say."""
    if not plan.startswith(b"{"):
        return PlanWords("")
    plan_id = hashlib.sha256(plan).hexdigest()
    try:
        fields = json.loads(plan)["fields"]
        participants, query = tuple(map(str, fields["participants"])), fields["query"]["fields"]
        if "training" not in query:
            return PlanWords(plan_id, participants, str(query["table"]))
        training = query["training"]
        table = str(training["fields"]["model"]["fields"]["table"])
        lineage = hashlib.sha256(_canonical([fields["study_hash"], training, fields["nonce"]])).hexdigest()
        return PlanWords(plan_id, participants, table, lineage)
    except (ValueError, KeyError, TypeError, RecursionError):
        return PlanWords(plan_id)


def shows_task(task: bytes, plan_id: str, asked: str | None, coordinator: PublicIdentity) -> bool:
    """Whether these are the canonical bytes of a task with this plan that the coordinator signed.

    `asked` is the hash of who asked it, empty where nobody did, and None where that is not known.
    """
    try:
        fields = json.loads(task)["fields"]
        signature = bytes.fromhex(fields["signature"]["bytes"])
        inner = _canonical(fields["task"])
        plan = hashlib.sha256(_canonical(fields["task"]["fields"]["plan"])).hexdigest()
        by = hashlib.sha256(_canonical(fields["asked_by"])).hexdigest() if "asked_by" in fields else ""
        whole = _canonical({"fields": fields, "word": "SignedTask"})
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    same = (whole, plan) == (task, plan_id) and asked in (by, None)
    return same and coordinator.verifies(Purpose.TASK, inner, signature)


def _canonical(word: object) -> bytes:
    """A word's bytes, from what was read of them."""
    return json.dumps(word, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def stored_asking(plan: bytes, asked_by: bytes) -> StoredAsking:
    """What these bytes say; nobody asked what is not proved."""
    plan_id = hashlib.sha256(plan).hexdigest()
    asked = hashlib.sha256(asked_by).hexdigest() if asked_by else ""
    return StoredAsking(plan_id, asked, _proved(plan, asked_by) if asked_by else None, planned(plan).table)


def _proved(plan: bytes, asked_by: bytes) -> Asker | None:
    try:
        word, fields = decode(AskedBy, asked_by), json.loads(plan)["fields"]
        signed = word.covers(
            study_hash=str(fields["study_hash"]), query=_canonical(fields["query"]), nonce=str(fields["nonce"])
        )
    except (MalformedMessage, ValueError, KeyError, TypeError, RecursionError):
        return None
    return word.asker if signed else None
