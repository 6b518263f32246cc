"""What the tests of the wire share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protos.loopback_service import Loopback, SiteDesk, listening, sites


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[SiteDesk]:
    made = SiteDesk(tmp_path)
    yield made
    made.opened.set()


@pytest.fixture
def loopback(desk: SiteDesk) -> Iterator[Loopback]:
    with listening(sites(desk)) as found:
        yield found
