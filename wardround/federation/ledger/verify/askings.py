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

Asker = tuple[str, str]
"""An analyst's name and key."""


@dataclass(frozen=True, slots=True)
class StoredAsking:
    """The hashes of both, as entries name them, and who asked if the signature covers the plan.

    `asked` is empty where nobody signed; `asker` is None there too.
    """

    plan_id: str
    asked: str
    asker: Asker | None


def stored_asking(plan: bytes, asked_by: bytes) -> StoredAsking:
    """What these bytes say; nobody asked what is not proved."""
    plan_id = hashlib.sha256(plan).hexdigest()
    asked = hashlib.sha256(asked_by).hexdigest() if asked_by else ""
    return StoredAsking(plan_id, asked, _proved(plan, asked_by) if asked_by else None)


def _proved(plan: bytes, asked_by: bytes) -> Asker | None:
    try:
        word, fields = decode(AskedBy, asked_by), json.loads(plan)["fields"]
        query = json.dumps(fields["query"], sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
        signed = word.covers(study_hash=str(fields["study_hash"]), query=query, nonce=str(fields["nonce"]))
    except (MalformedMessage, ValueError, KeyError, TypeError, RecursionError):
        return None
    return word.asker if signed else None
