"""Receipts: the coordinator's signed entry that it holds exactly what a site kept."""

from __future__ import annotations

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import decode_body
from wardround.federation.trust.entry import Entry, Head

RECEIVED = "received"
DECLINED = "declined"


def acknowledges(receipt: Entry, place: Head, *, plan_id: str, site: str, released: str | None) -> bool:
    """Whether `receipt` names the site's entry at `place` for this plan.

    `released` is the hash of the release, or None for a refusal. Who signed it is for the caller to check.
    """
    try:
        body = decode_body(receipt.body)
    except LedgerCorrupt:
        return False
    about = {"plan_id": plan_id, "site": site, "sequence": place.sequence, "digest": place.digest}
    if any(body.get(key) != value for key, value in about.items()):
        return False
    if released is None:
        return receipt.kind == DECLINED
    return receipt.kind == RECEIVED and body.get("release_hash") == released
