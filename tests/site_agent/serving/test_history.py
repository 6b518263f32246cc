"""What a steward reads of what left."""

from __future__ import annotations

import pytest

from site_agent.serving.history import Departure
from site_agent.store.outbox import HistoryLine
from wardround.privacy.accounting.cost import Cost


@pytest.mark.parametrize(
    ("kind", "cost", "end"),
    [
        ("released", Cost.zero(), "received, paid with its training's first round"),
        ("released", Cost(mu_squared=1, pure=0, slack=0), " received"),
        ("refused", Cost.zero(), " received"),
    ],
)
def test_numbers_that_cost_nothing_say_when_they_were_paid(kind: str, cost: Cost, end: str) -> None:
    line = HistoryLine(1, "2026-01-31", "ab" * 32, kind, 5, True, cost)
    assert Departure(line, 0.0, 0.0).text().endswith(f"ε = 0        {end.lstrip()}")
