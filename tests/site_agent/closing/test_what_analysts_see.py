"""To analysts a site whose table is closed is a site that was never started: every document, every state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.rounds.coordinator import Coordinator
from coordinator.rounds.open_rounds import LONGEST_RETRY_SECONDS
from coordinator.store.ledger import open_ledger
from site_agent.reading.dataset import Tables
from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from tests.site_agent.closing.failing_sources import BAD, COHORTS, STUDY, asking, sqlite_that_raises
from wardround.federation.plan.task import Failed
from wardround.federation.question.answer import Progress, SiteState
from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import ZeroNoise

QUESTIONS = (BAD, *map(asking, COHORTS))


def federation(folder: Path) -> SimulatedFederation:
    """Three hospitals of the same rows; those of the second have a bad one."""

    def tables(name: str) -> Tables:
        (folder / "rows" / name).mkdir(parents=True)
        return sqlite_that_raises(folder / "rows" / name, bad=name == "two")

    sites = {name: SimulatedSite(tables(name), 100, noise=ZeroNoise()) for name in ("one", "two", "three")}
    return SimulatedFederation(parse_study(STUDY), sites, folder=folder, noiseless=True)


def documents(simulated: SimulatedFederation) -> list[str]:
    """Everything an analyst is told, as JSON: each answer, and the budget after it."""
    told = []
    for sql in QUESTIONS:
        told.append(simulated.client.ask(sql, epsilon=1.0).document())
        told.append(simulated.client.budget().document())
    return [json.dumps(document, sort_keys=True) for document in told]


def test_every_document_is_that_of_a_site_that_was_never_started(tmp_path: Path) -> None:
    closed, away = federation(tmp_path / "closed"), federation(tmp_path / "away")
    never_started = away.agents.pop("two")
    told = documents(closed)
    assert told == documents(away)
    assert all('"missing": ["two"]' in document for document in told[::2])
    # It was there all the time, and said nothing but that.
    ledger = closed.agents["two"].ledger
    assert [turn.kind for turn in ledger.tables.turns()] == ["closed"]
    assert ledger.history() == []
    never_started.ledger.close()
    closed.close()
    away.close()


# --- while a question is on its way ---------------------------------------------------------------------------


class Threaded(World):
    """A world whose rounds run in threads, so that somebody can watch them; its hospitals move when they are told."""

    def opened(self) -> Coordinator:
        ledger = open_ledger(self.folder, study=self.study, identity=self.identity)
        return Coordinator(ledger, rounds=self.rounds, noiseless=True)


def two_worlds(folder: Path) -> list[Threaded]:
    """Two worlds of one and two: in the first, two is there and fails; in the second it never comes."""
    made = []
    for name in ("failing", "away"):
        (folder / name).mkdir()
        world = Threaded(folder / name, deadline_seconds=600)
        world.enrol("one", count=1)
        world.enrol("two", count=10)
        made.append(world)
    return made


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[list[Threaded]]:
    made = two_worlds(tmp_path)
    yield made
    for world in made:
        world.close()


def watched(world: Threaded, *, comes: bool) -> list[Progress]:
    """What an analyst sees while two takes the task up, and fails, or does not come at all."""
    plan_id, told = world.coordinator.ask(ANALYST, ask()), list[Progress]()

    def look() -> None:
        seen = told[-1].seen if told else 0
        found = world.coordinator.watch(ANALYST, plan_id, seen=seen, wait_seconds=0.05)
        assert isinstance(found, Progress)
        told.append(found)

    look()
    taken = world.coordinator.claim("two", wait_seconds=0.0) if comes else None
    look()
    if taken is not None:
        world.coordinator.submit("two", Failed(plan_id))
    look()
    world.hospitals["one"].step(world.coordinator)
    look()
    return told


def test_every_state_is_that_of_a_site_that_was_never_started(worlds: list[Threaded]) -> None:
    failing, away = worlds
    told = watched(failing, comes=True)
    assert told == watched(away, comes=False)
    assert [dict(progress.sites)["two"] for progress in told] == [SiteState.OPEN] * 4
    assert [dict(progress.sites)["one"] for progress in told][-1] is SiteState.RELEASED
    (plan,) = (signed.task.plan for signed in failing.hospitals["one"].seen)
    assert failing.states(plan)["two"] is SiteState.FAILED, "the coordinator knows"


# --- how often such a site is asked ---------------------------------------------------------------------------


def test_a_site_that_fails_is_asked_again_after_twice_as_long_each_time(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "fail"}, deadline_seconds=600)
    assert world.ask().missing == ("two",)
    # At 0, 1, 3, 7, 15 and 31 seconds, and then every half minute.
    assert len(world.hospitals["two"].seen) == 6 + (600 - 31) // LONGEST_RETRY_SECONDS
    world.close()


def test_what_never_failed_is_handed_out_before_what_did(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    failing = [world.coordinator.ask(ANALYST, ask(nonce=f"{number:02x}", epsilon=0.05)) for number in range(20)]
    for plan_id in failing:
        assert world.coordinator.claim("two", wait_seconds=0.0) is not None
        world.coordinator.submit("two", Failed(plan_id))
    world.clock.pass_seconds(10 * LONGEST_RETRY_SECONDS)
    other = world.coordinator.ask(ANALYST, ask(epsilon=0.1))
    claimed = world.coordinator.claim("two", wait_seconds=0.0)
    assert claimed is not None
    assert claimed.task.plan.plan_id == other
    world.close()
