"""One table in every kind of source, with one row that makes some questions fail once they have read it.

Sixty patients of ages 20 to 79, one row each; the row of age 57 is the bad one. Whether a question fails depends on
what it looks at: `BAD` does, and fails, in every source; the table without the bad row answers everything.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from site_agent.reading.batches import Fingerprint, Preparable
from site_agent.reading.dataset import Dataset, Tables, TableSource
from site_agent.reading.examples import Examples
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.postgresql_cluster import absent, cluster
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Table
from wardround.privacy.noise.vectors import Bounded

STUDY = """\
name = "trial"
overlap = 1
min_sites = 1
deadline_seconds = 60
[budget]
epsilon = 200.0
delta = 1e-6
pure_epsilon = 0
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
dx = { type = "category", values = ["E11", "I10"] }
"""
KEY = bytes(range(32))
AGES = range(20, 80)
BAD_AGE = 57
BAD = "SELECT dx, COUNT(*) FROM visits GROUP BY dx"
COHORTS = (
    "age = 57",
    "age <> 57",
    "age < 57",
    "age > 57",
    "age >= 57",
    "age <= 57",
    "age BETWEEN 50 AND 60",
    "age BETWEEN 20 AND 30",
    "dx = 'E11'",
    "dx = 'I10' AND age < 40",
    "dx IN ('E11', 'I10') AND age >= 40",
    "age IS NULL",
)
"""Some match the bad row, some do not, some need the column in which it is bad."""


def asking(cohort: str) -> str:
    return f"SELECT COUNT(*) FROM visits WHERE {cohort}"


def rows(*, bad: bool) -> list[tuple[int, int, str]]:
    return [(age, age, ("E11", "I10")[age % 2]) for age in AGES if bad or age != BAD_AGE]


@dataclass(frozen=True, slots=True)
class Failing:
    """A source, with its bad row or without it."""

    write: Callable[..., Tables]
    sees_changes: bool = True

    def opened(self, folder: Path, *, bad: bool) -> Tables:
        return self.write(folder, bad=bad)


def _tables(source: str, folder: Path, relation: str | None = None, *, timeout_seconds: float = 600.0) -> Tables:
    found = TableSource(source, relation, timeout_seconds=timeout_seconds)
    return open_dataset({"visits": found}, folder=folder, key=KEY)


@dataclass(frozen=True, slots=True)
class Hasty:
    """A source that looks at its schema in its own time, and has half a second to read."""

    patient: Dataset
    hasty: Dataset

    def check(self, form: AnswerLayout) -> None:
        self.patient.check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self.hasty.bounded(form)

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        return self.hasty.keys(form)

    def examples(self, form: StepLayout) -> Examples:
        return self.hasty.examples(form)

    def fingerprint(self, table: Table) -> Fingerprint:
        assert isinstance(self.patient, Preparable)
        return self.patient.fingerprint(table)


def _in_haste(bad: bool, opened: Callable[..., Tables]) -> Tables:
    hasty = opened(timeout_seconds=0.5)
    patient = opened()
    return Tables({"visits": Hasty(patient.sources["visits"], hasty.sources["visits"])}) if bad else patient


def _sqlite(folder: Path, *, bad: bool, dx: str, timeout_seconds: float = 600.0) -> Tables:
    path = folder / "visits.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE kept (patient_id, age, dx)")
        connection.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows(bad=bad))
        connection.execute(f"CREATE VIEW visits AS SELECT patient_id, age, {dx} AS dx FROM kept")
    return _tables("visits.db", folder, timeout_seconds=timeout_seconds)


def sqlite_that_raises(folder: Path, *, bad: bool) -> Tables:
    # The lowest number has no absolute value.
    return _sqlite(folder, bad=bad, dx="CASE WHEN abs(-9223372036854775751 - age) = 1 THEN 'E11' ELSE dx END")


def sqlite_that_takes_too_long(folder: Path, *, bad: bool) -> Tables:
    long = (
        "(WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < CASE age WHEN 57 "
        "THEN 1000000000000 ELSE 1 END) SELECT max(n) FROM c)"
    )
    return _in_haste(
        bad, lambda **hurry: _sqlite(folder, bad=bad, dx=f"CASE {long} WHEN 0 THEN '' ELSE dx END", **hurry)
    )


def duckdb_that_raises(folder: Path, *, bad: bool) -> Tables:
    path = folder / "visits.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE kept (patient_id BIGINT, age BIGINT, dx VARCHAR)")
        connection.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows(bad=bad))
        connection.execute(
            "CREATE VIEW visits AS SELECT patient_id, age, "
            "CASE WHEN age = 57 THEN CAST(error('canary') AS VARCHAR) ELSE dx END AS dx FROM kept"
        )
    return _tables("visits.duckdb", folder)


def duckdb_with_a_damaged_block(folder: Path, *, bad: bool) -> Tables:
    path = folder / "visits.duckdb"
    path.unlink(missing_ok=True)
    marks = "E11-" + "canary" * 2000
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE visits (patient_id BIGINT, age BIGINT, dx VARCHAR)")
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows(bad=bad))
        # Texts too long for one block: the catalogue is elsewhere, and stays whole.
        connection.execute("INSERT INTO visits SELECT n, 90, $1 || n FROM range(900, 1000) AS numbers (n)", [marks])
    if bad:
        whole = bytearray(path.read_bytes())
        at = whole.rindex(b"canarycanary")
        whole[at : at + 6] = b"CANARY"
        path.write_bytes(whole)
    return _tables("visits.duckdb", folder)


def parquet_with_a_damaged_page(folder: Path, *, bad: bool) -> Tables:
    path = folder / "visits.parquet"
    found = rows(bad=True)
    texts = [dx if age != BAD_AGE else "canary" * 500 for _, age, dx in found]
    table = pa.table({"patient_id": [r[0] for r in found], "age": [r[1] for r in found], "dx": texts})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    if bad:
        whole = path.read_bytes()
        at = whole.index(b"canary")
        # The length of a text that the page cannot hold.
        path.write_bytes(whole[: at - 4] + b"\xff\xff\xff\x7f" + whole[at:])
    return _tables("visits.parquet", folder)


def _postgresql(name: str, *, bad: bool, dx: str, timeout_seconds: float = 600.0) -> Tables:
    cluster().run(
        f"DROP TABLE IF EXISTS {name} CASCADE", f"CREATE TABLE {name} (patient_id bigint, age bigint, dx text)"
    )
    listed = ", ".join(f"({unit}, {age}, '{dx}')" for unit, age, dx in rows(bad=bad))
    cluster().run(f"INSERT INTO {name} VALUES {listed}")
    cluster().run(f"CREATE VIEW {name}_seen AS SELECT patient_id, age, {dx} AS dx FROM {name}")
    return _tables(cluster().address(), Path("/"), f"{name}_seen", timeout_seconds=timeout_seconds)


def postgresql_that_divides_by_zero(folder: Path, *, bad: bool) -> Tables:
    return _postgresql("divided", bad=bad, dx="CASE WHEN 1 / (age - 57) = 9 THEN 'E11' ELSE dx END")


def postgresql_that_takes_too_long(folder: Path, *, bad: bool) -> Tables:
    slow = "CASE WHEN age = 57 AND pg_sleep(600) IS NULL THEN 'E11' ELSE dx END"
    return _in_haste(bad, lambda **hurry: _postgresql("slowed", bad=bad, dx=slow, **hurry))


NO_POSTGRESQL = pytest.mark.skipif(bool(absent()), reason=absent() or "PostgreSQL is there")
SOURCES = {
    "SQLite, a function that raises": Failing(sqlite_that_raises),
    "SQLite, out of time": Failing(sqlite_that_takes_too_long),
    "DuckDB, a function that raises": Failing(duckdb_that_raises),
    "DuckDB, a damaged block": Failing(duckdb_with_a_damaged_block),
    "PostgreSQL, a division by zero": Failing(postgresql_that_divides_by_zero, sees_changes=False),
    "PostgreSQL, out of time": Failing(postgresql_that_takes_too_long, sees_changes=False),
}
EVERY_SOURCE = [pytest.param(name, marks=[NO_POSTGRESQL] if name.startswith("PostgreSQL") else []) for name in SOURCES]
