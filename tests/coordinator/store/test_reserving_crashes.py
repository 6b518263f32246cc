"""kill −9 of a coordinator before any statement of reserving a training: charged once, and the rounds go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coordinator.rounds.open_rounds import OpenRounds
from tests.coordinator.hospitals import ANALYST, World, study
from tests.coordinator.rounds.test_trainings import step
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan, price
from wardround.federation.trust.identity import Identity
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.pumped import PumpedClock


def restarted(folder: Path) -> World:
    """The coordinator of a folder, after a death; its hospitals lost nothing that matters here."""
    world = World.__new__(World)
    world.folder, world.study, world.noiseless = folder, study(), True
    world.identity, world.hospitals = Identity.load(folder / "identity.pem"), {}
    world.clock = PumpedClock(world.pump, date=2000.0)
    world.rounds, world.counts_calls = OpenRounds(), False
    world.coordinator = world.opened()
    world.coordinator.resume()
    return world


def test_a_death_before_any_statement_of_reserving_charges_a_training_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.coordinator.store.reserving_process", str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    deaths = int(done.stdout)
    assert deaths > 40
    query = step(0).query
    plan = Plan(study().study_hash, query, Mechanism.DISCRETE_GAUSSIAN, (query.training.stages[0].scale,), ("one",))  # type: ignore[union-attr]
    whole = price(plan, study()).cost
    for number in range(1, deaths + 1):
        folder = tmp_path / str(number)
        before = verify(folder)
        assert before.problems == ()
        assert before.spent.mu_squared in (0, whole.mu_squared)
        world = restarted(folder)
        for turn in (1, 0):
            world.coordinator.ask(ANALYST, step(turn))
        assert world.spent() == whole
        assert world.kinds().count("reserved") == 2
        world.close()
        assert verify(folder).problems == ()
