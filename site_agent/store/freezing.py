"""Whether a site's ledger is frozen: once it lacks an entry it signed, it signs nothing any more.

Every function works inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from wardround.federation.errors import SiteFrozen
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import Plain, decode_body, text_in
from wardround.federation.trust.entry import Head
from wardround.federation.trust.identity import Identity


def frozen_reason(connection: sqlite3.Connection) -> str | None:
    """Why the ledger is frozen, or None."""
    entry = chain.last(connection, "frozen")
    return None if entry is None else text_in(decode_body(entry.body), "reason")


def refuse_if_frozen(connection: sqlite3.Connection) -> None:
    """`SiteFrozen` where the ledger is."""
    if frozen_reason(connection) is not None:
        raise SiteFrozen


def freeze_unless_contained(connection: sqlite3.Connection, identity: Identity, head: Head) -> bool:
    """Freeze the ledger if its chain lacks `head`; whether it did, which the caller commits before it raises."""
    refuse_if_frozen(connection)
    if chain.contains(connection, head):
        return False
    reason = "the chain does not contain the head that the coordinator holds a receipt for"
    body: dict[str, Plain] = {"reason": reason, "sequence": head.sequence, "digest": head.digest}
    chain.append(connection, identity, kind="frozen", body=body)
    return True
