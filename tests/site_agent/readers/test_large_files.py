"""A value that cannot be read is absent in a file of any size: no copy of the file has to fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.reading.memory_limits import Limits
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.readers.poisoned_sites import differs
from tests.site_agent.readers.poisoned_tables import Cell, Kind, Poison, Table, csv_file, parquet_file
from tests.site_agent.sources.tables import KEY

LITTLE = Limits(threads=1, memory_mebibytes=256)
TEXT_BYTES = 500_000
NOTE_BYTES, PARQUET_TURNS = 4000, 220
LONG_BYTES, TURNS = 1_700_000, 8


def _in_little_memory(folder: Path, name: str) -> Dataset:
    path = folder / name
    assert path.stat().st_size > LITTLE.database_kibibytes * 1024 // 2, "no copy of it has a place in memory"
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY, limits=LITTLE)


def large_csv(folder: Path, table: Table) -> Dataset:
    csv_file(folder, {**table, "letter": ["x" * TEXT_BYTES] * len(table["note"])})
    return _in_little_memory(folder, "visits.csv")


def large_parquet(folder: Path, table: Table) -> Dataset:
    """One row group of many pages; its texts are in a column that the study names."""
    every: Table = {name: cells * PARQUET_TURNS for name, cells in table.items()}
    turns = [place // len(table["note"]) for place in range(len(every["note"]))]
    every["patient_id"] = [f"{key}-{turn}" for key, turn in zip(every["patient_id"], turns, strict=True)]
    every["note"] = [f"{note}-{turn:05}" + "x" * NOTE_BYTES for note, turn in zip(every["note"], turns, strict=True)]
    options = {"row_group_size": len(turns), "write_batch_size": 64, "use_dictionary": False, "compression": "none"}
    parquet_file(folder, every, **options)
    return _in_little_memory(folder, "visits.parquet")


@pytest.mark.parametrize(
    ("opened", "column", "cell", "snapshots"),
    [
        pytest.param(large_csv, "dx", b"M\xfcller", False, id="csv"),
        pytest.param(large_csv, "dx", b"M\xfcller", True, id="csv, a snapshot"),
        pytest.param(large_parquet, "dx", b"M\xfcller", False, id="parquet"),
        pytest.param(large_parquet, "seen", 2**62, True, id="parquet, a snapshot"),
    ],
)
def test_a_file_larger_than_its_memory_answers_as_without_the_value(
    tmp_path: Path, opened: Callable[[Path, Table], Dataset], column: str, cell: Cell, snapshots: bool
) -> None:
    assert not differs(tmp_path, Kind(opened, {}), [Poison(column, cell, 17)], snapshots=snapshots)


def gigabyte_csv(folder: Path, table: Table) -> Dataset:
    """More than half of the memory that a database has where nobody states any; every patient is there eight times."""
    path = folder / "visits.csv"
    letter = b"x" * LONG_BYTES
    with path.open("wb") as file:
        file.write(",".join([*table, "letter"]).encode() + b"\n")
        for turn in range(TURNS):
            for key, *cells in zip(*table.values(), strict=True):
                written = [
                    b"" if cell is None else cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells
                ]
                file.write(b",".join([f"{key}-{turn}".encode(), *written, letter]) + b"\n")
    assert path.stat().st_size > Limits().database_kibibytes * 1024 // 2
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY)


@pytest.mark.slow
def test_a_gigabyte_answers_as_without_the_value(tmp_path: Path) -> None:
    found = differs(tmp_path, Kind(gigabyte_csv, {}), [Poison("dx", b"M\xfcller", 17)], snapshots=False)
    for path in tmp_path.glob("*/visits.csv"):
        path.unlink()
    assert not found
