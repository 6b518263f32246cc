from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset
from tests.site_agent.sources.conformance.sources import SOURCES
from tests.site_agent.sources.reference_totals import Row
from wardround.federation.study.study import Study

Open = Callable[[Sequence[Row], Study], Dataset]


@pytest.fixture
def opened(source: str, tmp_path: Path) -> Open:
    """The source named by the test, over any rows."""
    if reason := SOURCES[source].absent():
        pytest.skip(reason)
    places = iter(range(1_000_000))

    def _open(rows: Sequence[Row], study: Study) -> Dataset:
        folder = tmp_path / str(next(places))
        folder.mkdir()
        return SOURCES[source].opened(rows, study, folder)

    return _open
