from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset
from tests.site_agent.sources.tables import Row, dataset, write_csv, write_parquet

Writer = Callable[[Path, Sequence[Row]], Path]


@pytest.fixture(params=["csv", "parquet"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Sequence[Row]], Dataset]:
    """The same rows as either format; every statement about a source is made twice."""
    write: Writer = write_csv if request.param == "csv" else write_parquet

    def _open(rows: Sequence[Row]) -> Dataset:
        return dataset(write(tmp_path / f"visits.{request.param}", rows))

    return _open
