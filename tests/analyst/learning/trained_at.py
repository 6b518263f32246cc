"""The clinics as fixtures, for everybody who trains at them: tables for a module, a federation for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset
from tests.analyst.learning.clinics import SIZES, federation, seeded, study, write
from wardround.federation.ledger.verify.verify import verify
from wardround.simulation.federation import SimulatedFederation
from wardround.simulation.sites import find_sites


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    return find_sites(write(tmp_path_factory.mktemp("tables")), study())


@pytest.fixture
def clinics(tmp_path: Path, datasets: dict[str, Dataset]) -> Iterator[SimulatedFederation]:
    found = federation(tmp_path / "federation", datasets, noise=seeded)
    yield found
    found.close()
    for folder in (tmp_path / "federation", *(tmp_path / "federation" / site for site in SIZES)):
        assert verify(folder).problems == ()
