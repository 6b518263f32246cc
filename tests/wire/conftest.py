"""What the tests of the wire share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.loopback_service import Loopback, SiteDesk, listening, sites


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proxy is not part of these tests."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[SiteDesk]:
    made = SiteDesk(tmp_path)
    yield made
    made.opened.set()


@pytest.fixture
def loopback(desk: SiteDesk) -> Iterator[Loopback]:
    with listening(sites(desk)) as found:
        yield found
