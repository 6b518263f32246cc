"""What goes wrong after the rows of a training were read says nothing about them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.site_agent.answering.test_hostile_training import TRAINED, run, step
from tests.site_agent.lone_site import LoneSite
from wardround.federation.plan.task import Failed, Released
from wardround.privacy.noise.distribution import NoiseDistribution
from wardround.privacy.noise.vectors import IntVector
from wardround.simulation.noise import ZeroNoise


class Crowded(ZeroNoise):
    """Chance in a memory that has no room at first, which numpy says in rows."""

    crowded = True

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        if self.crowded:
            np.empty((1_234_567, 2**30))
        return super().draw(law, size)


def test_a_round_without_room_closes_its_table_like_every_failure_and_keeps_its_charge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Crowded()
    site = LoneSite(tmp_path, study=TRAINED, noise=chance)
    with caplog.at_level(logging.DEBUG):
        assert isinstance(run(site, step()), Failed)
    assert "1234567" not in caplog.text
    spent = site.spent
    chance.crowded = False
    assert isinstance(run(site, step()), Failed), "its table is closed"
    site.ledger.tables.reopen("visits")
    assert isinstance(run(site, step()), Released)
    assert site.spent == spent
    site.ledger.close()
