"""Every kind of source a site can have, each opened over given rows.

A new source is one line in `SOURCES`; the whole suite then holds for it.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.columnstore.prepared_source import prepared
from tests.site_agent.sources.conformance.study_rows import UNIT_KEY
from tests.site_agent.sources.database_files import write_duckdb, write_sqlite
from tests.site_agent.sources.postgresql_cluster import absent as no_postgresql
from tests.site_agent.sources.postgresql_tables import postgresql_table
from tests.site_agent.sources.reference_totals import Cell, Row
from tests.site_agent.sources.tables import write_csv, write_parquet
from wardround.federation.study.study import Column, ColumnType, Study

KEY = hashlib.sha256(b"the site's own key").digest()
Factory = Callable[[Sequence[Row], Study, Path], Dataset]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a source is made of rows; `untyped` says that a number column may hold any text there.

    `absent` is why it cannot be tested here, empty where it can.
    """

    opened: Factory
    untyped: bool = False
    absent: Callable[[], str] = lambda: ""


ARROW = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.CATEGORY: pa.string(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.DATE: pa.date32(),
}
PYTHON = {
    ColumnType.INTEGER: int,
    ColumnType.NUMBER: float,
    ColumnType.CATEGORY: str,
    ColumnType.BOOLEAN: bool,
    ColumnType.DATE: datetime.date,
}


def fitting(value: Cell, column: Column) -> Cell:
    """The value where a typed column can hold it, else nothing."""
    return value if type(value) is PYTHON[column.type] else None


def csv_file(rows: Sequence[Row], study: Study, folder: Path) -> Dataset:
    names = [UNIT_KEY, *(column.name for column in study.tables[0].columns)]
    path = write_csv(folder / "visits.csv", rows, names)
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY)


def parquet_file(rows: Sequence[Row], study: Study, folder: Path) -> Dataset:
    columns = study.tables[0].columns
    typed = [{UNIT_KEY: row.get(UNIT_KEY)} | {c.name: fitting(row.get(c.name), c) for c in columns} for row in rows]
    types = {UNIT_KEY: pa.string()} | {column.name: ARROW[column.type] for column in columns}
    path = write_parquet(folder / "visits.parquet", typed, types)
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY)


def sqlite_file(rows: Sequence[Row], study: Study, folder: Path) -> Dataset:
    names = [UNIT_KEY, *(column.name for column in study.tables[0].columns)]
    path = write_sqlite(folder / "visits.sqlite", rows, names)
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY)


def duckdb_file(rows: Sequence[Row], study: Study, folder: Path) -> Dataset:
    columns = study.tables[0].columns
    typed = [{UNIT_KEY: row.get(UNIT_KEY)} | {c.name: fitting(row.get(c.name), c) for c in columns} for row in rows]
    types = {UNIT_KEY: pa.string()} | {column.name: ARROW[column.type] for column in columns}
    path = write_duckdb(folder / "visits.duckdb", typed, types)
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY)


def prepared_columns(rows: Sequence[Row], study: Study, folder: Path) -> Dataset:
    return prepared(csv_file(rows, study, folder), study, folder, key=KEY)


SOURCES: dict[str, Kind] = {
    "csv": Kind(csv_file, untyped=True),
    "parquet": Kind(parquet_file),
    "sqlite": Kind(sqlite_file, untyped=True),
    "duckdb": Kind(duckdb_file),
    "postgresql": Kind(postgresql_table, absent=no_postgresql),
    "prepared": Kind(prepared_columns, untyped=True),
}
