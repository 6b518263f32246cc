"""A dry run says beforehand what the budget would refuse a question with, to the last digit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from tests.coordinator.rounds.test_trainings import step, training
from wardround.federation.errors import BudgetExceeded
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Shortfall
from wardround.federation.question.query import Aggregate, Query, Statistic

AVERAGE = Query("encounters", (Aggregate(Statistic.MEAN, "sbp"),))
LATER = {
    "a question": ask(2.0, query=AVERAGE),
    "a question at another δ": ask(2.0, query=AVERAGE, delta=1e-8),
    "a small question": ask(0.3, query=AVERAGE),
    "a training": step(0, of=training(4)),
}


def told(world: World, request: AskRequest) -> Shortfall | None:
    return world.coordinator.preview(ANALYST, request).excess


@pytest.mark.parametrize(("pure_epsilon", "before"), [(0, 2.5), (0.5, 2.2)])
@pytest.mark.parametrize("later", LATER)
def test_a_dry_run_foretells_the_refusal(tmp_path: Path, later: str, pure_epsilon: float, before: float) -> None:
    world = oracle(tmp_path, pure_epsilon=pure_epsilon)
    assert told(world, LATER[later]) is None
    world.ask(ask(before))
    foretold = told(world, LATER[later])
    assert (foretold is None) == (later == "a small question")
    if foretold is None:
        world.ask(LATER[later])
    else:
        with pytest.raises(BudgetExceeded) as refusal:
            world.ask(LATER[later])
        assert foretold == Shortfall(refusal.value.asked, refusal.value.remaining)
        assert foretold.asked > foretold.remaining
    world.close()


def test_what_is_paid_already_is_refused_no_more(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    asked = (ask(2.0), step(0, of=training(3)))
    world.ask(asked[1])
    assert told(world, asked[0]) is not None
    assert told(world, asked[1]) is None
    assert told(world, step(1, of=training(3))) is None, "the whole training is paid"
    world.close()


def test_what_is_left_of_pure_noise_is_not_left_for_a_training(tmp_path: Path) -> None:
    world = oracle(tmp_path, pure_epsilon=2.0)
    foretold = told(world, step(0, of=training(5)))
    assert foretold is not None
    assert 0.9 < foretold.remaining < 1.1 < foretold.asked < 2.0
    with pytest.raises(BudgetExceeded) as refusal:
        world.ask(step(0, of=training(5)))
    assert foretold == Shortfall(refusal.value.asked, refusal.value.remaining)
    world.close()
