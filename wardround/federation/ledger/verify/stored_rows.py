"""The rows beside a chain that are compared as they are, by table: the columns of the key, then the others.

What is large is not held: of a plan stands what it says of itself, of bytes their length.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from wardround.federation.ledger.verify.askings import planned

Row = tuple[object, ...]
Rows = Mapping[str, Mapping[Row, Row]]

# By table: how many columns are the key, and which columns there are.
_COLUMNS: Mapping[str, tuple[int, str]] = {
    "chain_end": (1, "row, sequence"),
    # a coordinator's
    "sites": (1, "name, key, patients, dataset, state, head_sequence, head_digest, study_signature"),
    "places": (2, "site, sequence, digest"),
    "analysts": (1, "name, state"),
    "rounds": (1, "plan_id, number, mu_squared, pure, slack, state, outcome, plan"),
    "sqlite_sequence": (1, "rowid, name, seq"),
    "tasks": (2, "plan_id, site, number, state, opened_after"),
    "submissions": (2, "plan_id, site, entry, code, receipt, CASE code WHEN '' THEN 0 ELSE length(payload) END"),
    "tls_keys": (1, "name, key_hash"),
    "invitations": (1, "secret_hash, site, expires, used_by"),
    "trainings": (1, "lineage, block, participants"),
    "left_out": (2, "plan_id, site, code"),
    "site_entries": (2, "site, sequence, previous, kind, body, signature, digest"),
    "lacking": (2, "site, sequence, previous, kind, body, signature"),
    "rejoins": (1, "site, state, sequence, digest"),
    "imports": (2, "plan_id, site, sequence, charged, asks, block"),
    "lost": (1, "plan_id, sequence, block"),
    # a site's
    "requests": (1, "plan_id, summary, state, asked_on, task"),
    "readings": (1, "plan_id, name"),
}


def read_rows(connection: sqlite3.Connection, tables: set[str]) -> Rows:
    """The rows of every one of these tables that there is."""
    found: dict[str, Mapping[Row, Row]] = {}
    for table, (width, columns) in _COLUMNS.items():
        if table in tables:
            rows = connection.execute(f"SELECT {columns} FROM {table}")  # noqa: S608
            if table == "rounds":
                found[table] = {row[:width]: (*row[width:-1], planned(bytes(row[-1]))) for row in rows}
            else:
                found[table] = {row[:width]: row[width:] for row in rows}
    return found
