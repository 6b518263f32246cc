"""Whether this ledger is an older copy of itself: sites show the newest receipt that they hold.

A coordinator that came back from a backup has forgotten charges, and its chain still verifies. What it cannot forget is
what it signed for others. A receipt under its own key that its chain lacks is the proof; it is written down, so that
the folder is not served again before it is recovered. A receipt under another key proves nothing and stops nothing.
After a recovery, receipts from before it are expected to be lacking: whoever holds one is to rejoin.
"""

from __future__ import annotations

import logging

from coordinator.store.ledger import Ledger
from wardround.federation.errors import LedgerBehind
from wardround.federation.ledger.entry_body import incarnation_in
from wardround.federation.trust.entry import Entry

log = logging.getLogger("wardround.coordinator")


def refuse_if_older(ledger: Ledger, site: str, receipt: Entry | None) -> None:
    """Stop if a site holds a receipt of ours that our chain lacks.

    Raises:
        LedgerBehind: it does.
    """
    if receipt is None or ledger.members.knows(receipt.head):
        return
    if not receipt.signed_by(ledger.identity.public):
        log.warning("%s shows a receipt that this coordinator did not sign; it is ignored", site)
        return
    if incarnation_in(receipt) < ledger.recovery.incarnation():
        ledger.recovery.await_later(site)
        return
    ledger.members.note_lacking(site, receipt)
    raise behind(site, receipt.sequence)


def refuse_to_serve_older(ledger: Ledger) -> None:
    """Stop at the start if it was found before.

    Raises:
        LedgerBehind: it was.
    """
    if (lacking := ledger.members.lacking()) is not None:
        raise behind(*lacking)


def behind(site: str, sequence: int) -> LedgerBehind:
    """The one sentence that the operator reads."""
    return LedgerBehind(
        f"This ledger is an older copy: {site} holds its receipt {sequence}, which it lacks. Nothing is served and "
        "nothing was charged; run: wardround coordinator recover (see docs/deploy.md)"
    )
