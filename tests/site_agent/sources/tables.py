"""A study, a table and its two files, for the tests of the sources."""

from __future__ import annotations

import csv
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Query
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

KEY = hashlib.sha256(b"the site's own key").digest()

COLUMNS = """
age  = { type = "integer", lower = 0, upper = 110 }
sbp  = { type = "number", lower = 80, upper = 200, step = 0.1 }
gain = { type = "number", lower = -50, upper = 20 }
dx   = { type = "category", values = ["E11", "I10", "it's", "ü"] }
sex  = { type = "boolean" }
ward = { type = "integer", lower = 1, upper = 3 }
seen = { type = "date" }
cost = { type = "number", lower = 0, upper = 1000, step = 1, default = 7 }
dose = { type = "integer" }
"""

ARROW = {
    "patient_id": pa.string(),
    "age": pa.int64(),
    "sbp": pa.float64(),
    "gain": pa.float64(),
    "dx": pa.string(),
    "sex": pa.bool_(),
    "ward": pa.int64(),
    "seen": pa.date32(),
    "cost": pa.float64(),
    "dose": pa.int64(),
}

Cell = str | int | float | bool | datetime.date | None
Row = Mapping[str, Cell]


def study(*, unit: str = "patient", rows: int = 3, groups: int = 2, columns: str = COLUMNS) -> Study:
    return parse_study(
        f'name = "trial"\nunit = "{unit}"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n'
        f'[tables.visits]\nunit_key = "patient_id"\nmax_rows_per_unit = {rows}\n'
        f"max_groups_per_unit = {groups}\n[tables.visits.columns]\n{columns}"
    )


def form(query: Query, agreed: Study, mechanism: Mechanism = Mechanism.DISCRETE_GAUSSIAN) -> AnswerLayout:
    return shape(query, agreed, mechanism)


def _written(value: Cell) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime.date():
            return value.isoformat()
        case float():
            return repr(value)
        case _:
            return str(value)


def write_csv(path: Path, rows: Sequence[Row], names: Sequence[str] = tuple(ARROW), *, errors: str = "strict") -> Path:
    with path.open("w", newline="", encoding="utf-8", errors=errors) as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            writer.writerow([_written(row.get(name)) for name in names])
    return path


def write_parquet(path: Path, rows: Sequence[Row], types: Mapping[str, pa.DataType] = ARROW) -> Path:
    arrays = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()}
    pq.write_table(pa.table(arrays), path)
    return path


def dataset(path: Path | str, *, key: bytes = KEY) -> Dataset:
    return open_dataset({"visits": TableSource(str(path))}, folder=Path("/"), key=key)


def totals(source: Dataset, asked: AnswerLayout) -> list[list[int]]:
    source.check(asked)
    return [part.total.tolist() for part in source.bounded(asked)]


def natural(source: Dataset, asked: AnswerLayout) -> list[list[float]]:
    """The totals in the units of the statistic."""
    return [[float(value * part.grid) for value in part.total.tolist()] for part in source.bounded(asked)]


def random_rows(*, patients: int, rows: int, seed: int) -> list[Row]:
    draw = np.random.default_rng(seed)
    dx = ["E11", "I10", "it's", "ü", "Z99", None]
    return [
        {
            "patient_id": f"p{draw.integers(patients)}",
            "age": int(draw.integers(-5, 130)),
            "sbp": round(float(draw.normal(130, 40)), 1),
            "gain": float(draw.normal(0, 60)),
            "dx": dx[draw.integers(len(dx))],
            "sex": [True, False, None][draw.integers(3)],
            "ward": int(draw.integers(0, 5)),
            "seen": datetime.date(2024, 1, 1) + datetime.timedelta(days=int(draw.integers(700))),
            "cost": None if draw.random() < 0.2 else float(draw.integers(0, 1500)),
            "dose": int(draw.integers(0, 100)),
        }
        for _ in range(rows)
    ]
