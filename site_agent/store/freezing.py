"""Whether a site's ledger is frozen: once it lacks an entry it signed, it signs nothing any more.

Every function works inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from wardround.federation.errors import SiteFrozen
from wardround.federation.ledger import chain
from wardround.federation.ledger.body import decode_body, text_in


def frozen_reason(connection: sqlite3.Connection) -> str | None:
    """Why the ledger is frozen, or None."""
    entry = chain.last(connection, "frozen")
    return None if entry is None else text_in(decode_body(entry.body), "reason")


def refuse_if_frozen(connection: sqlite3.Connection) -> None:
    """`SiteFrozen` where the ledger is."""
    if frozen_reason(connection) is not None:
        raise SiteFrozen
