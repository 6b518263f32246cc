"""Whatever happened, from whichever copy: recovered, nothing is forgotten, nobody is frozen and questions go on."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from coordinator.members.recovering import members
from tests.simulation.histories import STEWARD, History
from tests.simulation.recovering import Restored
from wardround.federation.errors import AwaitingApproval, NotAuthorized

PARTS = 10
STEPS = 6


def history(folder: Path, seed: int, steps: int) -> History:
    stage = Restored(folder, stewards={STEWARD})
    made = History(stage, random.Random(seed))
    made.run(steps)
    stage.close()
    print(f"seed {seed}:", *made.log, sep="\n  ")
    return made


def go_on(stage: Restored, made: History) -> None:
    """Ask some more, decide some more, and look at everything."""
    after = History(stage, made.chance, newcomer="mallory")
    after.run(2)
    # The steward may have yet to decide.
    with contextlib.suppress(AwaitingApproval):
        stage.ask(fresh=True, epsilon=0.5)
    stage.settle()
    stage.check()


def coordinator_from(made: History, number: int, folder: Path) -> None:
    stage = made.stage.clone(folder)
    answers = dict(stage.rows("consortium", "SELECT plan_id, answer FROM answers"))
    stage.restore("consortium", made.copies[number]["consortium"])
    known = members(stage.folder / "consortium").analysts
    stage.recover(analysts=tuple(name for name in known if name not in made.revoked))
    try:
        for name in made.revoked:
            with pytest.raises(NotAuthorized):
                stage.ask(analyst=name)
        # What was told before is told again, or lost; never something else.
        stage.conclude()
        told = dict(stage.rows("consortium", "SELECT plan_id, answer FROM answers"))
        lost = {plan for (plan,) in stage.rows("consortium", "SELECT plan_id FROM lost")}
        assert {plan: text for plan, text in told.items() if plan in answers}.items() <= answers.items()
        assert answers.keys() <= told.keys() | lost
        stage.check()
        go_on(stage, made)
    finally:
        stage.close()


@pytest.mark.parametrize("seed", [1])
def test_a_coordinator_comes_back_from_some_copies(seed: int, tmp_path: Path) -> None:
    made = history(tmp_path / "first", seed, 4)
    for number in (0, 2):
        coordinator_from(made, number, tmp_path / str(number))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + PARTS))
def test_a_coordinator_comes_back_from_every_copy(seed: int, tmp_path: Path) -> None:
    made = history(tmp_path / "first", seed, STEPS)
    for number in range(STEPS):
        coordinator_from(made, number, tmp_path / str(number))
