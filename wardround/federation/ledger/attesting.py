"""Rows that entries of earlier versions say nothing of: taken over once, in signed entries, when a folder is served.

Since then every row is what some entry says. A ledger that this version begins says so in its first entry; one of
before says it in an `attested` entry with no table, which follows those with its rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import Body, Plain, decode_body
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.trust.identity import Identity

FROM_THE_BEGINNING: Mapping[str, Plain] = {"attests": 1}
"""What the first entry of a ledger says of which every row is attested."""

ATTESTED = "attested"

_ROWS_OF_AN_ENTRY = 250


def attest_rows(database: Database, identity: Identity, statements: Mapping[str, str]) -> None:
    """Sign what each statement finds, by its table; nothing where that was done, or where the ledger is frozen."""
    with database.reading() as connection:
        if _is_done(connection):
            return
    with database.transaction() as connection:
        if _is_done(connection):
            return
        for table, statement in statements.items():
            rows = connection.execute(statement).fetchall()
            for start in range(0, len(rows), _ROWS_OF_AN_ENTRY):
                body: Body = {"table": table, "rows": [list(row) for row in rows[start : start + _ROWS_OF_AN_ENTRY]]}
                chain.append(connection, identity, kind=ATTESTED, body=body)
        chain.append(connection, identity, kind=ATTESTED, body={"table": "", "rows": []})


def _is_done(connection: sqlite3.Connection) -> bool:
    first = chain.entry_at(connection, 1)
    opened = {} if first is None else decode_body(first.body)
    # A frozen site signs nothing any more; a coordinator's entry of that kind is about one of its sites.
    frozen = opened.get("role") == "site" and chain.last(connection, "frozen") is not None
    return "attests" in opened or frozen or chain.last(connection, ATTESTED) is not None
