"""Folders of tables as `simulate` takes them, and the same rows in a plain DuckDB table to compare with."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.cli.calling import call

Cell = str | int | bool | Decimal | datetime.date | None
Row = Mapping[str, Cell]
Answer = dict[str, Any]

# The type of each column: in DuckDB, where decimals are exact, and in a Parquet file, where hospitals keep doubles.
TYPES = {
    "patient_id": ("VARCHAR", pa.string()),
    "age": ("BIGINT", pa.int64()),
    "sbp": ("DECIMAL(18, 1)", pa.float64()),
    "cost": ("DECIMAL(18, 2)", pa.float64()),
    "diagnosis": ("VARCHAR", pa.string()),
    "urgent": ("BOOLEAN", pa.bool_()),
    "seen": ("DATE", pa.date32()),
}
BOUNDS = {"age": (0, 110), "sbp": (80, 200), "cost": (0, 20000), "urgent": (0, 1)}
DIAGNOSES = ("E11", "I10", "C50", "I25")
DEFAULT_COST = Decimal("12.50")


def study_text(*, unit: object = "patient", rows: object = 4, groups: object = None, **changes: object) -> str:
    """The study; `changes` go to the top of the file."""
    top = "".join(f"{key} = {value}\n" for key, value in ({"overlap": 1} | changes).items())
    most = "" if groups is None else f"max_groups_per_unit = {groups}\n"
    return f"""\
name = "trial"
unit = "{unit}"
{top}
[budget]
epsilon = 10.0
delta = 1e-6
pure_epsilon = 4.0

[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = {rows}
{most}
[tables.encounters.columns]
age       = {{ type = "integer", lower = 0, upper = 110 }}
sbp       = {{ type = "number", lower = 80, upper = 200, step = 0.1 }}
cost      = {{ type = "number", lower = 0, upper = 20000, step = 0.01, default = {DEFAULT_COST} }}
diagnosis = {{ type = "category", values = ["E11", "I10", "C50", "I25"] }}
urgent    = {{ type = "boolean" }}
seen      = {{ type = "date" }}
"""


def write_site(folder: Path, rows: Sequence[Row], *, form: str = "csv") -> None:
    """One site's encounters."""
    folder.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        arrays = {
            name: pa.array([float(c) if isinstance(c := row[name], Decimal) else c for row in rows], kind)
            for name, (_, kind) in TYPES.items()
        }
        pq.write_table(pa.table(arrays), folder / "encounters.parquet")
        return
    with (folder / "encounters.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(TYPES)
        table.writerows([["" if row[name] is None else str(row[name]) for name in TYPES] for row in rows])


def random_rows(seed: int, *, patients: int = 40, most: int = 4) -> list[Row]:
    """Patients with one to `most` encounters, some values absent, all within the public bounds."""
    draw = np.random.default_rng(seed)
    rows: list[Row] = []
    for patient in range(patients):
        rows.extend(
            {
                "patient_id": f"p{patient}",
                "age": None if draw.random() < 0.05 else int(draw.integers(0, 111)),
                "sbp": None if draw.random() < 0.1 else Decimal(int(draw.integers(800, 2001))) / 10,
                "cost": None if draw.random() < 0.2 else Decimal(int(draw.integers(0, 2_000_001))) / 100,
                "diagnosis": [*DIAGNOSES, "Z99", None][draw.integers(6)],
                "urgent": [True, False, None][draw.integers(3)],
                "seen": datetime.date(2026, 1, 1) + datetime.timedelta(days=int(draw.integers(180))),
            }
            for _ in range(int(draw.integers(1, most + 1)))
        )
    # A row that belongs to nobody is nobody's.
    rows.append({**rows[0], "patient_id": None})
    return rows


def simulate(folder: Path, sql: str, *options: object, **study: object) -> Answer:
    """The document of `simulate --json`."""
    (folder / "study.toml").write_text(study_text(**study), encoding="utf-8")
    done = call("simulate", "--study", folder / "study.toml", "--tables", folder / "sites", sql, "--json", *options)
    assert done.code == 0, done.err
    return done.document()


class Plain:
    """The same rows in one DuckDB table, with exact decimals, asked in plain SQL."""

    def __init__(self, sites: Mapping[str, Sequence[Row]]) -> None:
        self.table = duckdb.connect()
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
        self.table.execute(f"CREATE TABLE everything (site VARCHAR, {columns})")
        for site, rows in sites.items():
            marks = ", ".join("?" * (len(TYPES) + 1))
            self.table.executemany(
                f"INSERT INTO everything VALUES ({marks})", [[site, *(row[name] for name in TYPES)] for row in rows]
            )
        self.table.execute(
            f"CREATE VIEW encounters AS SELECT * REPLACE (coalesce(cost, {DEFAULT_COST}) AS cost) "
            "FROM everything WHERE patient_id IS NOT NULL"
        )

    def numbers(
        self,
        aggregate: str,
        *,
        where: str = "true",
        by: Sequence[str] = (),
        clip: bool = False,
        unit: object = "patient",
    ) -> dict[tuple[Any, ...], float]:
        """One aggregate for each group; absent groups are absent."""
        keys = ", ".join(["'all'", *by])
        column = aggregate.partition("(")[2].rstrip(")")
        value = f"CAST({column} AS INTEGER)" if column == "urgent" else column
        if clip:
            value = f"greatest(least({value}, {BOUNDS[column][1]}), {BOUNDS[column][0]})"
        match aggregate.partition("(")[0], column:
            case "COUNT", "*":
                asked = f"SELECT count(*), 1, {keys} FROM encounters WHERE ({where}) GROUP BY ALL"
            case "COUNT", _:
                asked = (
                    f"SELECT count(DISTINCT (site, patient_id)), 1, {keys} FROM encounters WHERE ({where}) GROUP BY ALL"
                )
            case "SUM", _:
                some = f"({where}) AND {column} IS NOT NULL"
                asked = f"SELECT coalesce(sum({value}), 0), 1, {keys} FROM encounters WHERE {some} GROUP BY ALL"
            case _:
                one = "site, patient_id" if unit == "patient" else "rowid"
                source = (
                    "encounters" if unit == "patient" else "(SELECT row_number() OVER () AS rowid, * FROM encounters)"
                )
                asked = (
                    f"SELECT sum({value}), count(*), {keys} FROM {source} "
                    f"WHERE ({where}) AND {column} IS NOT NULL GROUP BY {one}, {keys}"
                )
        means: dict[tuple[Any, ...], list[Fraction]] = {}
        for top, bottom, _, *key in self.table.execute(asked).fetchall():
            means.setdefault(tuple(key), []).append(Fraction(top) / bottom)
        return {key: float(sum(found) / len(found)) for key, found in means.items() if None not in key}


def table_of(answer: Answer, aggregate: str) -> dict[tuple[Any, ...], float]:
    """The values of one aggregate of an answer, by group."""
    name, _, column = aggregate.rstrip(")").partition("(")
    statistic = {"COUNT": "count", "SUM": "sum", "AVG": "mean"}[name]
    wanted = None if column == "*" else column.removeprefix("DISTINCT ")
    return {
        tuple(found["group"].values()): found["value"]
        for found in answer["estimates"]
        if (found["statistic"], found["column"]) == (statistic, wanted)
    }
