"""The chain of entries in a database: each names the digest of the one before it, and none is ever changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from wardround.federation.ledger.entry_body import Body, encode_body
from wardround.federation.trust.entry import EMPTY, Entry, Head, make_entry
from wardround.federation.trust.identity import Identity

SCHEMA = """
CREATE TABLE entries (
    sequence  INTEGER PRIMARY KEY CHECK (sequence > 0),
    previous  TEXT NOT NULL UNIQUE,
    kind      TEXT NOT NULL,
    body      TEXT NOT NULL,
    signature BLOB NOT NULL,
    digest    TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX entries_by_kind ON entries (kind, sequence);
CREATE TRIGGER entries_are_never_changed BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'an entry is never changed'); END;
CREATE TRIGGER entries_are_never_removed BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'an entry is never removed'); END;
"""

LATER = """
-- the number of the last entry: a chain that lost its end is otherwise a chain of before
CREATE TABLE IF NOT EXISTS chain_end (
    row      INTEGER PRIMARY KEY CHECK (row = 1),
    sequence INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO chain_end (row, sequence) SELECT 1, COALESCE(MAX(sequence), 0) FROM entries;
CREATE TRIGGER IF NOT EXISTS chain_end_follows AFTER INSERT ON entries
BEGIN UPDATE chain_end SET sequence = NEW.sequence; END;
"""

_LARGEST_SEQUENCE = 2**63 - 1


def append(connection: sqlite3.Connection, identity: Identity, *, kind: str, body: Body) -> Entry:
    """Sign and write the next entry. Call it inside a transaction: it is real once that commits."""
    entry = make_entry(identity, after=head(connection), kind=kind, body=encode_body(body))
    connection.execute(
        "INSERT INTO entries (sequence, previous, kind, body, signature, digest) VALUES (?, ?, ?, ?, ?, ?)",
        (entry.sequence, entry.previous, entry.kind, entry.body, entry.signature, entry.digest),
    )
    return entry


def begin(connection: sqlite3.Connection, identity: Identity, body: Body, *, later: Body) -> bool:
    """Open the chain, once; whether this is what it was opened with. An earlier version did not write `later`."""
    opened = entry_at(connection, 1) or append(connection, identity, kind="opened", body={**body, **later})
    return opened.body in (encode_body({**body, **later}), encode_body(body))


def head(connection: sqlite3.Connection) -> Head:
    """Where the chain ends; `EMPTY` before the first entry."""
    row = connection.execute("SELECT sequence, digest FROM entries ORDER BY sequence DESC LIMIT 1").fetchone()
    return EMPTY if row is None else Head(row[0], row[1])


def contains(connection: sqlite3.Connection, place: Head) -> bool:
    """Whether the chain went through `place`; every chain went through `EMPTY`."""
    if place == EMPTY:
        return True
    if not 0 < place.sequence <= _LARGEST_SEQUENCE:
        return False
    row = connection.execute("SELECT digest FROM entries WHERE sequence = ?", (place.sequence,)).fetchone()
    return row is not None and bool(row[0] == place.digest)


def entry_at(connection: sqlite3.Connection, sequence: int) -> Entry | None:
    """The entry with this number, if there is one."""
    row = connection.execute(
        "SELECT sequence, previous, kind, body, signature FROM entries WHERE sequence = ?", (sequence,)
    ).fetchone()
    return None if row is None else Entry(*row)


def entries(connection: sqlite3.Connection, *, after: int = 0, before: int = _LARGEST_SEQUENCE) -> Iterator[Entry]:
    """The entries in order, from the one that follows number `after` to the one before number `before`."""
    for row in connection.execute(
        "SELECT sequence, previous, kind, body, signature FROM entries"
        " WHERE sequence > ? AND sequence < ? ORDER BY sequence",
        (after, before),
    ):
        yield Entry(*row)


def last(connection: sqlite3.Connection, kind: str) -> Entry | None:
    """The latest entry of a kind, if there is one."""
    row = connection.execute(
        "SELECT sequence, previous, kind, body, signature FROM entries WHERE kind = ? ORDER BY sequence DESC LIMIT 1",
        (kind,),
    ).fetchone()
    return None if row is None else Entry(*row)


def of_kind(connection: sqlite3.Connection, kind: str) -> Iterator[Entry]:
    """The entries of a kind, in order."""
    for row in connection.execute(
        "SELECT sequence, previous, kind, body, signature FROM entries WHERE kind = ? ORDER BY sequence", (kind,)
    ):
        yield Entry(*row)
