"""A question is begun only while enough hospitals are there, and keeps no answer of fewer than it requires.

Counts are 1, 10 and 100: 111 is everybody, 101 lacks the second.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.clock import RealClock
from coordinator.members.presence import CALLED, LIVE_SECONDS, POLL_SECONDS, Presence
from coordinator.rounds.coordinator import Coordinator
from coordinator.store.ledger import open_ledger
from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from tests.coordinator.rounds.test_trainings import step
from wardround.federation.errors import BudgetExceeded, SitesAway, TooFewSites
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.plan.task import ALL_SITES, AskRequest
from wardround.federation.question.answer import Answer
from wardround.federation.trust.public_limits import PublicLimits
from wardround.privacy.accounting.cost import Cost


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**changes: object) -> World:
        worlds.append(oracle(tmp_path, counts_calls=True, **changes))
        return worlds[-1]

    yield make
    for world in worlds:
        assert world.verified().problems == ()
        world.close()


def requiring(require: int, *, nonce: str = "") -> AskRequest:
    return dataclasses.replace(ask(nonce=nonce), require=require)


def total(answer: Answer) -> float:
    (estimate,) = answer.estimates
    assert estimate.value is not None
    return estimate.value


def sleeping(world: World, *names: str) -> None:
    """These are away from now on, and everybody else called just now."""
    for name in names:
        world.hospitals[name].mood = "sleep"
    world.clock.pass_seconds(LIVE_SECONDS + POLL_SECONDS)
    world.pump()


def test_fewer_live_sites_than_the_study_needs_are_not_asked_and_nothing_is_charged(
    made: Callable[..., World],
) -> None:
    world = made(min_sites=2)
    sleeping(world, "two", "three")
    before = world.kinds()
    with pytest.raises(SitesAway, match="1 of 3 hospitals are there and the study needs 2; away: three, two") as away:
        world.ask()
    assert away.value.exit_code == 3
    assert (world.kinds(), world.spent()) == (before, Cost.zero())
    world.hospitals["two"].mood = "release"
    world.pump()
    assert total(world.ask()) in (11, 111)


def test_after_a_start_one_poll_is_waited_for_the_first_calls(made: Callable[..., World]) -> None:
    world = made(min_sites=3)
    assert total(world.ask()) == 111
    world.restart()
    world.hospitals["two"].mood = "sleep"
    began = world.clock.now()
    with pytest.raises(SitesAway):
        world.coordinator.ask(ANALYST, ask(nonce="1"))
    assert world.clock.now() - began == pytest.approx(POLL_SECONDS)
    # Later nobody is waited for.
    with pytest.raises(SitesAway):
        world.coordinator.ask(ANALYST, ask(nonce="1"))
    assert world.clock.now() - began == pytest.approx(POLL_SECONDS)


class PatientClock(RealClock):
    """Waits for a site's call as long as it takes, and says that it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def wait(self, key: str, *, seen: int, seconds: float) -> None:
        if key == CALLED:
            self.waits.set()
        super().wait(key, seen=seen, seconds=3600.0 if key == CALLED else seconds)


def test_whoever_waits_after_a_start_is_woken_by_a_call(made: Callable[..., World]) -> None:
    world = made()
    world.coordinator.ledger.close()
    clock = PatientClock()
    ledger = open_ledger(world.folder, study=world.study, identity=world.identity, keeping=Durability.FILE)
    coordinator = Coordinator(ledger, clock=clock, presence=Presence())
    asked: list[str] = []
    asking = threading.Thread(target=lambda: asked.append(coordinator.ask(ANALYST, ask())), daemon=True)
    asking.start()
    assert clock.waits.wait(60.0)
    assert world.hospitals["one"].step(coordinator) is False
    asking.join(timeout=60.0)
    assert len(asked) == 1
    coordinator.close()
    world.restart()


def test_a_site_at_work_on_a_task_is_there(made: Callable[..., World]) -> None:
    world = made(min_sites=3)
    assert total(world.ask()) == 111
    world.hospitals["two"].mood = "sleep"
    world.coordinator.ask(ANALYST, ask(nonce="1"))
    assert world.coordinator.claim("two", wait_seconds=0.0) is not None
    world.clock.pass_seconds(LIVE_SECONDS + 1)
    world.pump()
    assert world.coordinator.ask(ANALYST, ask(nonce="2"))


def test_all_are_required_and_one_is_away_so_nothing_is_begun(made: Callable[..., World]) -> None:
    world = made()
    sleeping(world, "two")
    for require in (3, ALL_SITES):
        with pytest.raises(SitesAway, match="2 of 3 hospitals are there and this question requires 3; away: two"):
            world.ask(requiring(require))
    with pytest.raises(SitesAway, match="requires 4; away: two"):
        world.ask(requiring(4))
    assert world.spent() == Cost.zero()
    assert total(world.ask(requiring(2))) == 101


def test_a_hospital_that_would_refuse_is_none_of_those_required(made: Callable[..., World]) -> None:
    world = made()
    world.pump()
    world.coordinator.note_limits("two", PublicLimits(("sum",), 1.0, 1e-6, by_person=False))
    with pytest.raises(TooFewSites, match="Fewer hospitals would answer than this question requires: two does not"):
        world.ask(requiring(ALL_SITES))
    assert world.spent() == Cost.zero()


def test_what_the_budget_refuses_is_refused_for_that(made: Callable[..., World]) -> None:
    """Whatever limits say: a hospital that would refuse is there all the same."""
    world = made(min_sites=3)
    assert total(world.ask()) == 111
    world.coordinator.note_limits("two", PublicLimits(("count",), 1.0, 1e-6, by_person=False))
    with pytest.raises(BudgetExceeded):
        world.ask(ask(2.99))


def test_an_answer_of_fewer_is_not_kept_and_asking_again_asks_the_missing_for_nothing(
    made: Callable[..., World],
) -> None:
    world = made()
    world.pump()
    two = world.hospitals["two"]
    two.mood = "fail"
    with pytest.raises(SitesAway, match="2 of 3 hospitals answered and this question requires 3; missing: two") as away:
        world.ask(requiring(3))
    assert away.value.exit_code == 3
    spent = world.spent()
    assert "answered" not in world.kinds()
    world.restart()
    # Neither a restart nor whoever watches makes an answer of it.
    assert "answered" not in world.kinds()
    assert len(world.rounds) == 0
    two.mood = "release"
    before = {name: len(hospital.seen) for name, hospital in world.hospitals.items()}
    assert total(world.ask(requiring(3))) == 111
    after = {name: len(hospital.seen) for name, hospital in world.hospitals.items()}
    assert after == {**before, "two": before["two"] + 1}
    assert world.spent() == spent


def test_without_it_the_answer_of_those_who_are_there_is_kept_and_stays(made: Callable[..., World]) -> None:
    world = made()
    world.pump()
    two = world.hospitals["two"]
    two.mood = "fail"
    with pytest.raises(SitesAway):
        world.ask(requiring(ALL_SITES))
    spent = world.spent()
    assert total(world.ask()) == 101
    two.mood = "release"
    with pytest.raises(TooFewSites, match="An answer of 2 of 3 hospitals is kept for this question") as kept:
        world.ask(requiring(3))
    assert kept.value.exit_code == 1
    assert total(world.ask(requiring(2))) == 101
    assert world.spent() == spent
    assert total(world.ask(requiring(3, nonce="1"))) == 111


def test_what_is_required_is_no_part_of_the_plan(made: Callable[..., World]) -> None:
    world = made()
    world.pump()
    plan_id = world.coordinator.ask(ANALYST, requiring(3))
    assert world.coordinator.ask(ANALYST, requiring(2)) == plan_id
    assert world.coordinator.ask(ANALYST, ask()) == plan_id


def test_whoever_requires_less_is_heard_and_nobody_raises_it(made: Callable[..., World]) -> None:
    world = made()
    world.pump()
    world.hospitals["two"].mood = "fail"
    plan_id = world.coordinator.ask(ANALYST, requiring(2))
    assert world.coordinator.ask(ANALYST, requiring(3)) == plan_id
    assert world.coordinator.ledger.rounds.required(plan_id) == 2
    assert total(world.watch(plan_id)) == 101


def test_a_refusal_is_final_so_all_cannot_be_required_any_more(made: Callable[..., World]) -> None:
    world = made()
    world.pump()
    world.hospitals["two"].mood = "refuse"
    with pytest.raises(TooFewSites, match="Ask without --require for the answer of those, or ask again with --fresh"):
        world.ask(requiring(3))
    assert total(world.ask()) == 101


def test_a_training_that_has_begun_goes_on_without_a_site(made: Callable[..., World]) -> None:
    world = made(min_sites=3)
    world.pump()
    world.ask(step(0))
    sleeping(world, "two")
    assert world.coordinator.ask(ANALYST, step(1))


def test_an_answer_that_lacks_a_hospital_says_how_many_patients_are_missing(made: Callable[..., World]) -> None:
    world = made()
    whole = world.ask(requiring(3))
    assert (whole.asked_patients, whole.lacking_patients) == (None, None)
    sleeping(world, "two")
    lacking = world.ask(ask(nonce="1"))
    assert (lacking.asked_patients, lacking.lacking_patients) == (3000, 1000)
