"""One table in every kind of source, with one value that cannot be read, made below the checks of any writer.

The other world is the same table with nothing in that place. `QUESTIONS` and `STEP` are the twelve cohorts.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.learning.plain_steps import SCALE
from tests.site_agent.sources.postgresql_cluster import cluster
from tests.site_agent.sources.tables import KEY
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.question.cohort import Comparison, Expression, IsNull, Not, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic

STUDY = """\
name = "trial"
unit = "patient"
overlap = 1
min_sites = 1
deadline_seconds = 60
[budget]
epsilon = 500.0
delta = 1e-6
pure_epsilon = 0
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 2
max_groups_per_unit = 2
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
dx = { type = "category", values = ["E11", "M?ller", "Mller"] }
note = { type = "category" }
seen = { type = "date" }
"""
NAMES = ("patient_id", "age", "sbp", "dx", "note", "seen")
PATIENTS = 40
Cell = str | int | float | bytes | None
Table = dict[str, list[Cell]]


def rows() -> Table:
    """Forty patients, two rows each."""
    day = datetime.date(2024, 1, 1)
    places = range(2 * PATIENTS)
    return {
        "patient_id": [f"p{place % PATIENTS}" for place in places],
        "age": [20 + place for place in places],
        "sbp": [90.0 + place for place in places],
        "dx": [("E11", "M?ller", "Mller")[place % 3] for place in places],
        "note": [("x", "y", "M?ller")[place % 3] for place in places],
        "seen": [(day + datetime.timedelta(days=place)).isoformat() for place in places],
    }


# --- Questions --------------------------------------------------------------------------------------------

_COUNT = Aggregate(Statistic.COUNT)


def _at(column: str, operator: Operator, value: float | str) -> Expression:
    return Comparison(column, operator, value)


QUESTIONS: tuple[Query, ...] = (
    Query("visits", (_COUNT,)),
    Query("visits", (Aggregate(Statistic.COUNT, "patient_id"),), _at("age", Operator.EQUAL, 57)),
    Query("visits", (_COUNT,), _at("age", Operator.LESS, 57)),
    Query("visits", (_COUNT,), _at("dx", Operator.EQUAL, "M?ller")),
    Query("visits", (_COUNT,), _at("dx", Operator.EQUAL, "Mller"), (Grouping("dx"),)),
    Query("visits", (_COUNT,), None, (Grouping("dx"),)),
    Query("visits", (_COUNT,), _at("seen", Operator.GREATER_OR_EQUAL, "2024-02-01")),
    Query("visits", (_COUNT,), IsNull("dx")),
    Query("visits", (Aggregate(Statistic.MEAN, "sbp"),), _at("seen", Operator.LESS, "2024-03-01")),
    Query("visits", (Aggregate(Statistic.SUM, "age"), Aggregate(Statistic.VARIANCE, "sbp")), IsNull("note")),
    Query("visits", (Aggregate(Statistic.KEYS, "note"),), _at("age", Operator.GREATER, 30)),
)
STEP = Step(
    Training(
        Model(ModelKind.LINEAR, "visits", "sbp", ("age", "dx"), Not(IsNull("seen"))),
        (Stage(StageKind.MOMENTS, SCALE, 3),),
        Fraction(1, 4),
    ),
    0,
    0,
)


# --- Sources ----------------------------------------------------------------------------------------------


def _opened(path: Path) -> Dataset:
    return open_dataset({"visits": TableSource(str(path))}, folder=path.parent, key=KEY)


def csv_file(folder: Path, table: Table) -> Dataset:
    def written(cell: Cell) -> bytes:
        return cell if isinstance(cell, bytes) else b"" if cell is None else str(cell).encode()

    lines = [b",".join(written(cell) for cell in line) for line in zip(*table.values(), strict=True)]
    path = folder / "visits.csv"
    path.write_bytes(b"\n".join([",".join(table).encode(), *lines, b""]))
    return _opened(path)


def texts(cells: list[Cell]) -> pa.Array:
    """Text that nobody has looked at."""
    found = pa.array([cell.encode() if isinstance(cell, str) else cell for cell in cells], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(found), found.buffers(), found.null_count)


def milliseconds(cells: list[Cell]) -> pa.Array:
    """Days as text, and anything else as the number of milliseconds that it is."""
    day = datetime.date(1970, 1, 1)
    numbers = [
        (datetime.date.fromisoformat(cell) - day).days * 86_400_000 if isinstance(cell, str) else cell for cell in cells
    ]
    return pa.array(numbers, pa.int64()).view(pa.timestamp("ms"))


def parquet_file(folder: Path, table: Table, **options: object) -> Dataset:
    arrays = {name: texts(table[name]) for name in ("patient_id", "dx", "note")}
    arrays |= {"age": pa.array(table["age"], pa.int64()), "sbp": pa.array(table["sbp"], pa.float64())}
    pq.write_table(
        pa.table({**arrays, "seen": milliseconds(table["seen"])}),
        folder / "visits.parquet",
        **{"row_group_size": 16, **options},
    )
    return _opened(folder / "visits.parquet")


def plain_parquet(folder: Path, table: Table) -> Dataset:
    return parquet_file(folder, table, use_dictionary=False, write_statistics=False)


def nested_parquet(folder: Path, table: Table) -> Dataset:
    """The same, beside columns that hold lists and records."""
    parquet_file(folder, table)
    path = folder / "visits.parquet"
    plain = pq.read_table(path)
    tags = pa.array([["a", "b"] if place % 2 else [] for place in range(len(plain))])
    parts = pa.array([{"ward": {"name": "x", "beds": [place, None]}} for place in range(len(plain))])
    columns = {"tags": tags, **{name: plain[name] for name in plain.column_names[:3]}, "parts": parts}
    columns |= {name: plain[name] for name in plain.column_names[3:]}
    pq.write_table(pa.table(columns), path, row_group_size=16)
    source = TableSource(str(path), "SELECT * FROM this")
    return open_dataset({"visits": source}, folder=folder, key=KEY)


def selected_parquet(folder: Path, table: Table) -> Dataset:
    """The hospital's own SELECT over the file."""
    parquet_file(folder, table)
    source = TableSource(str(folder / "visits.parquet"), "SELECT * FROM this")
    return open_dataset({"visits": source}, folder=folder, key=KEY)


def sqlite_file(folder: Path, table: Table) -> Dataset:
    with contextlib.closing(sqlite3.connect(folder / "visits.sqlite")) as connection, connection:
        connection.execute("DROP TABLE IF EXISTS visits")
        connection.execute(f"CREATE TABLE visits ({', '.join(NAMES)})")
        for line in zip(*(table[name] for name in NAMES), strict=True):
            places = ", ".join("CAST(? AS TEXT)" if isinstance(cell, bytes) else "?" for cell in line)
            connection.execute(f"INSERT INTO visits VALUES ({places})", line)
    return _opened(folder / "visits.sqlite")


def _sql(cell: Cell, *, moment: bool = False) -> str:
    match cell:
        case None:
            return "NULL"
        case int() if moment:
            return f"make_timestamp(CAST({cell} AS BIGINT))"
        case _:
            return "'" + str(cell).replace("'", "''") + "'"


def _lines(table: Table, *moments: str) -> str:
    """The rows as SQL; in the columns `moments` a number is so many microseconds."""
    lines = zip(*([_sql(cell, moment=name in moments) for cell in table[name]] for name in NAMES), strict=True)
    return ", ".join(f"({', '.join(line)})" for line in lines)


def _duckdb(folder: Path, types: str, lines: str) -> Dataset:
    (folder / "visits.duckdb").unlink(missing_ok=True)
    with duckdb.connect(str(folder / "visits.duckdb"), config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE visits ({types})")
        connection.execute(f"INSERT INTO visits VALUES {lines}")
    return _opened(folder / "visits.duckdb")


def duckdb_file(folder: Path, table: Table) -> Dataset:
    types = "patient_id TEXT, age BIGINT, sbp DOUBLE, dx TEXT, note TEXT, seen TIMESTAMP"
    return _duckdb(folder, types, _lines(table, "seen"))


def duckdb_of_times(folder: Path, table: Table) -> Dataset:
    """Patients are told apart by a time."""
    keys: list[Cell] = [int(key[1:]) if isinstance(key, str) else key for key in table["patient_id"]]
    types = "patient_id TIMESTAMP, age BIGINT, sbp DOUBLE, dx TEXT, note TEXT, seen DATE"
    return _duckdb(folder, types, _lines({**table, "patient_id": keys}, "patient_id"))


def postgresql_table(folder: Path, table: Table) -> Dataset:
    types = "patient_id text, age numeric, sbp numeric, dx text, note text, seen date"
    cluster().run(
        "DROP TABLE IF EXISTS poisoned",
        f"CREATE TABLE poisoned ({types})",
        f"INSERT INTO poisoned VALUES {_lines(table)}",
        "GRANT SELECT ON poisoned TO reader",
    )
    source = TableSource(cluster().address("reader"), "poisoned")
    return open_dataset({"visits": source}, folder=folder, key=KEY)


@dataclass(frozen=True, slots=True)
class Kind:
    """A source, and what may be put into each of its columns that is no value there."""

    opened: Callable[[Path, Table], Dataset]
    poisons: Mapping[str, tuple[Cell, ...]]


_NO_TEXT = (b"M\xfcller", b"\xff", b"\xc3", b"\xed\xa0\x80", b"E11\xf4\x90\x80\x80")
_TEXTS: Mapping[str, tuple[Cell, ...]] = dict.fromkeys(("patient_id", "dx", "note"), _NO_TEXT)
_NO_MILLISECOND = (2**62, -(2**62), 2**63 - 1, -(2**63), -9_223_372_036_854_775)
_NO_MICROSECOND = (-(2**63), -(2**63) + 2, -9_223_372_022_400_000_001)
_PARQUET = {**_TEXTS, "seen": _NO_MILLISECOND}
KINDS: Mapping[str, Kind] = {
    "csv": Kind(csv_file, {**_TEXTS, "age": (b"4\xff", "1e400", "nan"), "seen": (b"\xff", "infinity", "2024-02-30")}),
    "parquet": Kind(parquet_file, _PARQUET),
    "parquet, plain": Kind(plain_parquet, _PARQUET),
    "parquet, a SELECT": Kind(selected_parquet, _PARQUET),
    "parquet, nested": Kind(nested_parquet, _PARQUET),
    "sqlite": Kind(
        sqlite_file, {**_TEXTS, "age": (b"\xff", float("inf"), "x"), "seen": (b"\xff", "infinity", b"2024-03-01\0\xff")}
    ),
    "duckdb": Kind(
        duckdb_file, {"sbp": (float("nan"), float("-inf")), "seen": ("infinity", "-infinity", *_NO_MICROSECOND)}
    ),
    "duckdb, keys of times": Kind(duckdb_of_times, {"patient_id": _NO_MICROSECOND}),
    "postgresql": Kind(
        postgresql_table,
        {"sbp": ("NaN", "Infinity"), "age": ("NaN", "-Infinity", "1e300"), "seen": ("infinity", "-infinity")},
    ),
}


@dataclass(frozen=True, slots=True)
class Poison:
    """What stands in one place instead of a value."""

    column: str
    cell: Cell
    place: int


def worlds(poisons: Sequence[Poison]) -> Mapping[str, Table]:
    """The table with the poisons, and with nothing in their places."""
    with_them, without = rows(), rows()
    for poison in poisons:
        with_them[poison.column][poison.place], without[poison.column][poison.place] = poison.cell, None
    return {"with": with_them, "without": without}


def drawn(kind: Kind, draw: random.Random, number: int) -> list[Poison]:
    """Poisons at `number` different places."""
    every = [(column, place) for column in sorted(kind.poisons) for place in range(2 * PATIENTS)]
    return [Poison(column, draw.choice(kind.poisons[column]), place) for column, place in draw.sample(every, number)]
