"""The tables of a file: made once, known by a number in its header, and added to when a role gains some."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from functools import lru_cache


@lru_cache(maxsize=16)
def template(schema: str, later: str) -> bytes:
    """A file with the tables and nothing in them: a simulation of a thousand sites makes it once."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make(connection, schema, mark="user_version")
        make(connection, later, mark="application_id")
        return connection.serialize()


def make(connection: sqlite3.Connection, schema: str, *, mark: str) -> None:
    """Make tables, and note in the file's header which they are."""
    for statement in _statements(schema):
        connection.execute(statement)
    connection.execute(f"PRAGMA {mark} = {fingerprint(schema)}")


def fingerprint(schema: str) -> int:
    """The number by which a file is known that was made with these tables."""
    return (zlib.crc32(schema.encode()) & 0x7FFF_FFFF or 1) if schema else 0


def versions(connection: sqlite3.Connection) -> tuple[int, int]:
    """Which tables the file was made with, and which later ones it has."""
    made, grown = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    return int(made), int(grown)


@lru_cache(maxsize=16)
def _statements(schema: str) -> tuple[str, ...]:
    found, statement = [], ""
    for line in schema.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return (*found, statement) if statement.strip() else tuple(found)
