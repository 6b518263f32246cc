"""A database file handed out for preparation: every row typed, and a fingerprint that sees changes."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from site_agent.reading.batches import Days, Integers, Numbers
from site_agent.reading.dataset import TableSource
from site_agent.reading.sources.duckdb.database import DuckdbTable, open_duckdb
from site_agent.reading.sources.sqlite.table import SqliteTable, open_sqlite
from tests.site_agent.sources.database_files import write_duckdb, write_sqlite
from tests.site_agent.sources.tables import KEY, Row, study

DAY = datetime.date(2024, 3, 1)
TYPES = {"patient_id": pa.string(), "age": pa.int64(), "seen": pa.date32()}
ROWS: list[Row] = [{"patient_id": f"p{place}", "age": place % 90, "seen": DAY} for place in range(500)]


def sqlite_table(path: Path) -> SqliteTable:
    return open_sqlite("visits", str(path), TableSource(str(path)), key=KEY)


def duckdb_table(path: Path) -> DuckdbTable:
    return open_duckdb("visits", str(path), TableSource(str(path)), key=KEY)


@pytest.fixture(params=["sqlite", "duckdb"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteTable | DuckdbTable:
    if request.param == "sqlite":
        return sqlite_table(write_sqlite(tmp_path / "visits.db", ROWS, tuple(TYPES)))
    return duckdb_table(write_duckdb(tmp_path / "visits.duckdb", ROWS, TYPES))


def test_batches_hold_every_row_typed(source: SqliteTable | DuckdbTable) -> None:
    agreed = study(columns='age = { type = "integer" }\nseen = { type = "date" }\n').tables[0]
    (batch,) = source.batches(agreed)
    ages, days = batch.columns["age"], batch.columns["seen"]
    assert isinstance(ages, Integers)
    assert isinstance(days, Days)
    assert sorted(ages.values.tolist()) == sorted(place % 90 for place in range(500))
    assert set(days.values.tolist()) == {DAY.toordinal() - datetime.date(1970, 1, 1).toordinal()}
    assert len(set(batch.units.tolist())) == 500


def test_keys_of_a_batch_are_the_same_bytes_whatever_other_keys_there_are(tmp_path: Path) -> None:
    rows: list[Row] = [{"patient_id": "7", "x": 1.5}, {"patient_id": 8, "x": "?"}]
    path = write_sqlite(tmp_path / "t.db", rows, ("patient_id", "x"))
    (batch,) = sqlite_table(path).batches(study(columns='x = { type = "number" }\n').tables[0])
    values = batch.columns["x"]
    assert isinstance(values, Numbers)
    assert batch.units.tolist() == [b"i7", b"i8"]
    assert np.isnan(values.values).tolist() == [False, True]


def test_a_change_is_another_fingerprint(source: SqliteTable | DuckdbTable) -> None:
    agreed = study().tables[0]
    before = source.fingerprint(agreed)
    assert before == source.fingerprint(agreed)
    if isinstance(source, SqliteTable):
        with contextlib.closing(sqlite3.connect(source.path)) as writer, writer:
            writer.execute("UPDATE visits SET age = age + 1")
    else:
        with duckdb.connect(source.path) as writer:
            writer.execute("UPDATE visits SET age = age + 1")
    assert source.fingerprint(agreed) != before
