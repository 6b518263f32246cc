"""A category with as many values as a study may list is a question like any other, from every kind of source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from site_agent.reading.dataset import Dataset
from tests.site_agent.sources.database_files import write_duckdb, write_sqlite
from tests.site_agent.sources.postgresql_cluster import absent
from tests.site_agent.sources.tables import Row, dataset, form, study, totals, write_csv, write_parquet
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

NUMBER = 20_000
HOSTILE = ['a"b', "c\\d", "it's", "NULL", "{x,y}", "ü", "%s", "$1", "\\", '"', "a,b", " "]
WORDS = [*HOSTILE, *(f"W{place:05d}" for place in range(NUMBER - len(HOSTILE)))]
TYPES = {"patient_id": pa.string(), "dx": pa.string()}
ROWS: list[Row] = [
    {"patient_id": f"p{place}", "dx": WORDS[place * 7 % NUMBER] if place % 3 else HOSTILE[place % len(HOSTILE)]}
    for place in range(300)
] + [{"patient_id": "q", "dx": "unlisted"}, {"patient_id": "r", "dx": None}]


def opened(kind: str, folder: Path) -> Dataset:
    match kind:
        case "csv":
            return dataset(write_csv(folder / "visits.csv", ROWS, tuple(TYPES)))
        case "parquet":
            return dataset(write_parquet(folder / "visits.parquet", ROWS, TYPES))
        case "duckdb":
            return dataset(write_duckdb(folder / "visits.duckdb", ROWS, TYPES))
        case "sqlite":
            return dataset(write_sqlite(folder / "visits.db", ROWS, tuple(TYPES)))
        case _:
            if reason := absent():
                pytest.skip(reason)
            from tests.site_agent.sources import postgresql_tables

            return postgresql_tables.dataset(postgresql_tables.new_table(ROWS, {"patient_id": "text", "dx": "text"}))


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "sqlite", "postgresql"])
def test_a_count_by_very_many_values(kind: str, tmp_path: Path) -> None:
    listed = ", ".join(f"'''{word}'''" if "'" not in word else f'"{word}"' for word in WORDS)
    agreed = study(rows=3, columns=f'dx = {{ type = "category", values = [{listed}] }}\n')
    asked = form(
        Query("visits", (Aggregate(Statistic.COUNT),), None, (Grouping("dx"),)), agreed, Mechanism.DISCRETE_LAPLACE
    )
    (found,) = totals(opened(kind, tmp_path), asked)
    expected = Counter(str(row["dx"]) for row in ROWS)
    assert found == [expected[word] for word in WORDS]
