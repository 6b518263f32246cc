"""What DuckDB sees of a file that is mended while it is read, by several threads, and after the file has changed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from site_agent.reading.batches import stat_text
from site_agent.reading.dataset import Dataset
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb.connection import locked_database
from site_agent.reading.sources.duckdb.mended_filesystem import MendedFiles
from site_agent.reading.sources.files import file_soundness
from site_agent.reading.sources.files.csv_soundness import Header
from site_agent.reading.sources.files.file_readers import csv_reader, parquet_reader
from site_agent.reading.sources.files.file_soundness import Reading
from tests.site_agent.readers.poisoned_sites import differs
from tests.site_agent.readers.poisoned_tables import Kind, Poison, Table, csv_file, parquet_file, rows

CONTROLS = "".join(chr(place) for place in (*range(1, 32), 127) if chr(place) not in "\t\n\r\x1a")


def _poisoned(folder: Path, kind: str) -> Path:
    table = rows()
    table["dx"][17] = b"M\xfcller"
    (csv_file if kind == "csv" else parquet_file)(folder, table)
    return folder / f"visits.{kind}"


def _reading(path: Path) -> tuple[Reading, exp.Select]:
    """How a file is read, and its rows."""
    state = stat_text([path])
    if path.suffix == ".csv":
        header = Header(tuple(rows()), ",")
        reading = file_soundness._csv(str(path), state, header)
    else:
        reading = file_soundness._parquet(str(path), state, None, Limits())
    assert reading.mended is not None
    names = (reading.mended.name,)
    file = csv_reader(names, ",", len(rows())) if path.suffix == ".csv" else parquet_reader(names)
    return reading, exp.select(*reading.values).from_(file)


def _asked(connection: duckdb.DuckDBPyConnection, query: exp.Select) -> int:
    return len(connection.execute(query.sql(dialect="duckdb")).fetchall())


def test_each_thread_reads_where_it_has_sought(tmp_path: Path) -> None:
    path = _poisoned(tmp_path, "parquet")
    (mended,) = [_reading(path)[0].mended]
    assert mended is not None
    opened = MendedFiles([mended]).open(mended.name, "rb")
    opened.seek(0)

    def other() -> None:
        opened.seek(9)
        opened.read(3)

    elsewhere = threading.Thread(target=other)
    elsewhere.start()
    elsewhere.join()
    assert opened.read(4) == b"PAR1"
    opened.close()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_no_file_stays_open(tmp_path: Path, kind: str) -> None:
    path = _poisoned(tmp_path, kind)
    reading, query = _reading(path)
    assert reading.mended is not None
    with locked_database((), Limits(), mended=[reading.mended]) as connection:
        assert {_asked(connection, query) for _ in range(5)} == {len(rows()["dx"])}
    held = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert str(path) not in held


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_has_changed_is_not_read_as_it_was(tmp_path: Path, kind: str) -> None:
    path = _poisoned(tmp_path, kind)
    reading, query = _reading(path)
    assert reading.mended is not None
    with locked_database((), Limits(), mended=[reading.mended]) as connection:
        assert _asked(connection, query)
        path.write_bytes(path.read_bytes())
        with pytest.raises(duckdb.Error):
            _asked(connection, query)


def test_a_database_opens_its_own_mended_files_alone(tmp_path: Path) -> None:
    reading, query = _reading(_poisoned(tmp_path, "csv"))
    (tmp_path / "other").mkdir()
    other, _ = _reading(_poisoned(tmp_path / "other", "csv"))
    assert reading.mended is not None
    assert other.mended is not None
    with locked_database((), Limits(), mended=[other.mended]) as connection, pytest.raises(duckdb.Error):
        _asked(connection, query)


def test_whatever_control_characters_a_file_holds_it_is_mended(tmp_path: Path) -> None:
    def with_controls(folder: Path, table: Table) -> Dataset:
        return csv_file(folder, {**table, "note": [CONTROLS, *table["note"][1:]]})

    assert not differs(tmp_path, Kind(with_controls, {}), [Poison("dx", b"M\xfcller", 17)], snapshots=False)
