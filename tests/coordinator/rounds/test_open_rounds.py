"""How many rounds may be open, and in which order a site is handed its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from coordinator.rounds.open_rounds import OpenRounds
from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from wardround.federation.errors import Unavailable
from wardround.federation.question.answer import Answer

OTHERS = ("bob", "cleo")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = oracle(tmp_path)
    for name in OTHERS:
        made.coordinator.roster.add_analyst(name)
    yield made
    made.close()


def asked(world: World, analyst: str, number: int) -> str:
    """One more question of an analyst, that nobody has asked."""
    nonce = f"{ord(analyst[0]):02x}{number:06x}"
    return world.coordinator.ask(analyst, ask(0.0005, nonce=nonce))


def limit(world: World, **limits: int) -> None:
    world.coordinator.ledger.close()
    world.rounds = OpenRounds(**limits)
    world.coordinator = world.opened()


def test_an_analyst_may_have_so_many_open_questions_and_others_are_not_held_up(world: World) -> None:
    limit(world, most_of_one=3)
    first = [asked(world, ANALYST, number) for number in range(3)]
    before = world.spent()
    with pytest.raises(Unavailable, match=r"3 of your questions are not answered yet.* Nothing was charged"):
        asked(world, ANALYST, 3)
    assert world.spent() == before
    assert world.kinds().count("reserved") == 3
    # One of them again is none more, and another analyst is not concerned.
    assert asked(world, ANALYST, 2) == first[2]
    asked(world, "bob", 0)
    world.watch(first[0])
    assert asked(world, ANALYST, 3) not in first


def test_all_analysts_together_may_have_so_many(world: World) -> None:
    limit(world, most=4)
    for number in range(2):
        asked(world, ANALYST, number)
        asked(world, "bob", number)
    with pytest.raises(Unavailable, match="4 questions of all analysts are open"):
        asked(world, "cleo", 0)
    assert world.kinds().count("reserved") == 4


def test_a_place_is_free_again_when_a_question_could_not_be_begun(world: World) -> None:
    limit(world, most_of_one=1)
    for _ in range(3):
        with pytest.raises(Exception, match="remains"):
            world.coordinator.ask(ANALYST, ask(1e6))
    asked(world, ANALYST, 0)


def test_a_restart_counts_what_is_open(world: World) -> None:
    limit(world, most_of_one=2)
    plans = [asked(world, ANALYST, number) for number in range(2)]
    world.restart()
    limit(world, most_of_one=2)
    world.coordinator.resume()
    assert world.coordinator._rounds.plans() == tuple(plans)
    with pytest.raises(Unavailable):
        asked(world, ANALYST, 2)


def test_analysts_take_turns_at_every_site_however_much_one_of_them_asks(world: World) -> None:
    many = [asked(world, ANALYST, number) for number in range(20)]
    few = [asked(world, "bob", number) for number in range(3)]
    handed: list[str] = []
    while (signed := world.coordinator.claim("one", wait_seconds=0.0)) is not None:
        handed.append(signed.task.plan.plan_id)
        world.coordinator.submit("one", world.hospitals["one"].answer(signed.task.plan))
    assert sorted(handed) == sorted([*many, *few])
    places = [handed.index(plan_id) for plan_id in few]
    assert all(later - earlier <= 2 for earlier, later in pairwise([-1, *places]))
    # Each one's own questions stay in order.
    assert [plan_id for plan_id in handed if plan_id in many] == many
    assert [plan_id for plan_id in handed if plan_id in few] == few


def test_a_plan_whose_table_fails_waits_behind_those_that_never_failed(world: World) -> None:
    first, second = asked(world, ANALYST, 0), asked(world, ANALYST, 1)
    hospital = world.hospitals["one"]
    hospital.mood = "fail"
    hospital.step(world.coordinator)
    hospital.mood = "release"
    handed = []
    for _ in range(2):
        signed = world.coordinator.claim("one", wait_seconds=2.0)
        assert signed is not None
        handed.append(signed.task.plan.plan_id)
        world.coordinator.submit("one", hospital.answer(signed.task.plan))
    assert handed == [second, first]


def test_a_steward_who_never_decides_does_not_hold_a_round_beyond_the_study_s_patience(world: World) -> None:
    two = world.hospitals["two"]
    two.mood = "hold"
    plan_id = asked(world, ANALYST, 0)
    with pytest.raises(Unavailable, match="waiting for approval at two"):
        world.watch(plan_id)
    world.clock.pass_seconds(world.study.approval_seconds)
    told = world.coordinator.watch("bob", plan_id, seen=0, wait_seconds=0.0)
    assert isinstance(told, Answer)
    assert told.missing == ("two",)
