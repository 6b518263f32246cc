"""The same rows as SQLite and DuckDB database files, for the tests of the sources."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from tests.site_agent.sources.tables import Row


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def stored(value: object) -> object:
    """What Python's own driver would store; SQLite has no days."""
    return value.isoformat() if isinstance(value, datetime.date) else value


def write_sqlite(
    path: Path, rows: Sequence[Row], names: Sequence[str], *, table: str = "visits", declared: str = ""
) -> Path:
    """A table whose columns are all declared alike, or not at all."""
    columns = ", ".join(f"{quoted(name)} {declared}" for name in names)
    places = ", ".join("?" * len(names))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {quoted(table)} ({columns})")
        values = [[stored(row.get(name)) for name in names] for row in rows]
        connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({places})", values)
    return path


def write_duckdb(path: Path, rows: Sequence[Row], types: Mapping[str, pa.DataType], *, table: str = "visits") -> Path:
    arrays = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()}
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        connection.register("arrow_rows", pa.table(arrays))
        connection.execute(f"CREATE TABLE {quoted(table)} AS SELECT * FROM arrow_rows")
    return path
