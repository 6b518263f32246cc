"""A site that is away costs a training one deadline, not one for each round, and is counted again once it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.planning.plans import plans_for
from coordinator.rounds.open_rounds import SHARE_FOR_THE_AWAY, OpenRound, Window
from coordinator.store.rounds import Question
from tests.coordinator.hospitals import ANALYST, Hospital, World, ask, oracle
from tests.coordinator.rounds.test_trainings import numbers, step, training
from wardround.federation.errors import AwaitingApproval, TooFewSites
from wardround.federation.models.training import Training
from wardround.federation.question.answer import SiteState

DEADLINE = 60.0
SHORT = DEADLINE * SHARE_FOR_THE_AWAY
ALL, WITHOUT_TWO = {"": [111] * 3}, {"": [101] * 3}


def nine_rounds() -> Training:
    whole = training()
    (stage,) = whole.stages
    return Training(whole.model, (type(stage)(stage.kind, 3 * stage.scale, rounds=9),))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = oracle(tmp_path)
    yield made
    made.close()


def took(world: World, turn: int, **changes: object) -> tuple[dict[str, list[int]], float]:
    """The sums of a round, and how long it took."""
    began = world.clock.now()
    answer = world.ask(step(turn, **changes))  # type: ignore[arg-type]
    return numbers(answer), world.clock.now() - began


def test_nine_rounds_without_one_site_take_little_more_than_one_deadline(world: World) -> None:
    world.hospitals["two"].mood = "sleep"
    rounds = [took(world, turn, of=nine_rounds()) for turn in range(9)]
    assert [sums for sums, _ in rounds] == [WITHOUT_TWO] * 9
    assert [seconds for _, seconds in rounds] == pytest.approx([DEADLINE, *[SHORT] * 8])
    assert world.clock.now() < 1.3 * DEADLINE
    assert world.verified().problems == ()


def test_a_site_that_is_back_is_counted_in_the_next_round_and_waited_for_in_the_one_after(world: World) -> None:
    two = world.hospitals["two"]
    for mood, turn in (("sleep", 0), ("sleep", 1), ("release", 2)):
        two.mood = mood
        sums, _ = took(world, turn, of=nine_rounds())
    assert sums == ALL
    two.mood = "sleep"
    assert took(world, 3, of=nine_rounds()) == (WITHOUT_TWO, pytest.approx(DEADLINE))
    assert took(world, 4, of=nine_rounds()) == (WITHOUT_TWO, pytest.approx(SHORT))


def slow(world: World, hospital: Hospital, *, seconds: float) -> None:
    """Have a hospital take its tasks up at once, and answer each only after so long."""
    began: dict[str, float] = {}

    def step_of_the_slow() -> bool:
        for signed in hospital.seen:
            plan = signed.task.plan
            if plan.plan_id not in hospital.kept and world.clock.now() - began[plan.plan_id] >= seconds:
                world.coordinator.submit(hospital.name, hospital.answer(plan))
                return True
        if all(signed.task.plan.plan_id in hospital.kept for signed in hospital.seen):
            signed = world.coordinator.claim(hospital.name, wait_seconds=0.0)
            if signed is not None:
                hospital.seen.append(signed)
                began[signed.task.plan.plan_id] = world.clock.now()
                return True
        return False

    others = [each for each in world.hospitals.values() if each is not hospital]
    world.clock._pump = lambda: any([step_of_the_slow(), *(each.step(world.coordinator) for each in others)])


def test_a_site_that_takes_its_task_up_again_has_the_whole_deadline_to_compute(world: World) -> None:
    two = world.hospitals["two"]
    two.mood = "sleep"
    took(world, 0)
    two.mood = "release"
    slow(world, two, seconds=0.5 * DEADLINE)
    assert took(world, 1) == (ALL, pytest.approx(0.5 * DEADLINE))


def test_a_site_that_computes_for_longer_than_a_deadline_holds_up_one_round(world: World) -> None:
    slow(world, world.hospitals["two"], seconds=1000 * DEADLINE)
    assert [took(world, turn)[1] for turn in range(3)] == pytest.approx([DEADLINE, SHORT, SHORT])


def test_a_source_that_keeps_failing_holds_up_one_round(world: World) -> None:
    world.hospitals["two"].mood = "fail"
    assert took(world, 0) == (WITHOUT_TWO, pytest.approx(DEADLINE))
    assert took(world, 1)[1] < 2 * SHORT
    world.hospitals["two"].mood = "release"
    assert took(world, 2)[0] == ALL


def test_a_late_answer_changes_no_round_but_brings_its_site_back(world: World) -> None:
    two = world.hospitals["two"]
    two.mood = "sleep"
    first = world.ask(step(0))
    world.coordinator.submit("two", two.release(world.hospitals["one"].seen[0].task.plan))
    assert took(world, 1) == (WITHOUT_TWO, pytest.approx(DEADLINE)), "it is waited for again"
    assert world.ask(step(0)).updates == first.updates
    assert world.verified().problems == ()


def test_where_the_others_are_too_few_a_site_that_was_away_has_the_whole_deadline(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2, moods={"two": "sleep"})
    took(world, 0)
    world.hospitals["one"].mood = "refuse"
    began = world.clock.now()
    with pytest.raises(TooFewSites):
        world.ask(step(1))
    assert world.clock.now() - began == pytest.approx(DEADLINE)
    world.hospitals["two"].mood = "release"
    assert numbers(world.ask(step(1))) == {"": [110] * 3}, "asked again, the same round goes on"
    world.close()


def test_while_somebody_else_is_waited_for_a_site_may_still_come_back(world: World) -> None:
    for name in ("one", "two"):
        world.hospitals[name].mood = "sleep"
    took(world, 0)
    world.hospitals["one"].mood = "release"
    slow(world, world.hospitals["three"], seconds=0.25 * DEADLINE)
    assert took(world, 1) == ({"": [101] * 3}, pytest.approx(0.25 * DEADLINE + SHORT))


def test_after_a_restart_it_is_still_known_who_was_away(world: World) -> None:
    world.hospitals["two"].mood = "sleep"
    took(world, 0)
    plan_id = world.coordinator.ask(ANALYST, step(1))
    world.restart()
    began = world.clock.now()
    assert numbers(world.watch(plan_id)) == WITHOUT_TWO
    assert world.clock.now() - began == pytest.approx(SHORT)


def test_questions_and_other_trainings_wait_their_whole_deadline(world: World) -> None:
    world.hospitals["two"].mood = "sleep"
    took(world, 0)
    assert took(world, 0, nonce="01")[1] == pytest.approx(DEADLINE)
    began = world.clock.now()
    world.ask(ask())
    assert world.clock.now() - began == pytest.approx(DEADLINE)


def test_a_steward_s_patience_counts_once_for_a_training(world: World) -> None:
    world.hospitals["two"].mood = "hold"
    with pytest.raises(AwaitingApproval):
        world.ask(step(0))
    world.clock.pass_seconds(3600)
    assert took(world, 0)[0] == WITHOUT_TWO
    assert took(world, 1) == (WITHOUT_TWO, 0.0), "no second week for the same decision"
    world.hospitals["two"].approve(world.coordinator)
    assert took(world, 2)[0] == ALL


# --- the rule by itself ---------------------------------------------------------------------------------------


def test_what_is_short_begins_when_the_others_have_answered_and_ends_no_later_than_the_deadline(world: World) -> None:
    plan = plans_for(ask(0.1), world.study, {"one": 1000, "two": 1000})[0]
    question = Question(plan, ANALYST, 0.1, 1e-6)
    open_, released, claimed = SiteState.OPEN, SiteState.RELEASED, SiteState.CLAIMED

    def begun() -> OpenRound:
        window = Window(DEADLINE, SHORT, frozenset({"two"}), needed=1)
        round_ = OpenRound(question, window, {"one": open_, "two": open_})
        round_.begin(0.0)
        return round_

    round_ = begun()
    ends = []
    for site, state, now in (
        ("one", claimed, 5.0),
        ("one", released, 10.0),
        ("two", SiteState.FAILED, 11.0),
        ("two", claimed, 11.5),
        ("two", released, 12.0),
    ):
        round_.move(site, state, now)
        ends.append(round_.ends)
    assert ends == [DEADLINE, 10.0 + SHORT, 10.0 + SHORT, DEADLINE, 12.0]
    late = begun()
    late.move("one", released, DEADLINE - 0.5)
    assert late.ends == DEADLINE
