"""The coordinator as it is served: a few threads for all rounds, long polls, and a clean end."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from coordinator.clock import RealClock
from coordinator.rounds.coordinator import Coordinator
from coordinator.rounds.dispatch import round_key
from coordinator.rounds.round import Round
from coordinator.store.ledger import open_ledger
from tests.coordinator.hospitals import ANALYST, Hospital, World, ask, oracle
from wardround.federation.errors import AwaitingApproval, InvariantBroken, LedgerFull, PeerUnreachable, TooFewSites
from wardround.federation.forms.release import Release
from wardround.federation.ledger.connections import MOST_READERS
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.plan.task import SignedTask
from wardround.federation.question.answer import Answer, Progress, SiteState

LONG_SECONDS = 120.0
# Far more than anything takes that waits for nobody, on whatever machine; far less than a whole wait.
SOON_SECONDS = 60.0


class Served(World):
    """The same world with threads: every hospital runs in its own, claiming with a long poll."""

    def opened(self) -> Coordinator:
        ledger = open_ledger(self.folder, study=self.study, identity=self.identity, keeping=Durability.FILE)
        return Coordinator(ledger, noiseless=True)

    def run(self, *names: str) -> None:
        for name in names:
            threading.Thread(target=self._serve, args=(self.hospitals[name],), daemon=True).start()

    def _serve(self, hospital: Hospital) -> None:
        coordinator = self.coordinator
        with contextlib.suppress(PeerUnreachable):
            while True:
                signed = coordinator.claim(hospital.name, wait_seconds=LONG_SECONDS)
                if signed is not None:
                    coordinator.submit(hospital.name, hospital.answer(signed.task.plan))

    def until_told(self, plan_id: str) -> Answer:
        """Watch as an analyst does: again and again with what was seen last."""
        seen = 0
        while True:
            told = self.coordinator.watch(ANALYST, plan_id, seen=seen, wait_seconds=LONG_SECONDS)
            if isinstance(told, Answer):
                return told
            assert told.seen != seen
            seen = told.seen


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    world = Served(tmp_path, deadline_seconds=300)
    for name, count in (("one", 1), ("two", 10), ("three", 100)):
        world.enrol(name, count=count)
    before = threading.active_count()
    yield world
    world.close()
    deadline = time.monotonic() + SOON_SECONDS
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before, "a closed coordinator leaves no thread behind"


def test_a_served_round_answers_without_anybody_waiting_for_a_fixed_time(served: Served) -> None:
    served.run("one", "two", "three")
    began = time.monotonic()
    answer = served.until_told(served.coordinator.ask(ANALYST, ask()))
    assert answer.estimates[0].value == 111
    assert time.monotonic() - began < SOON_SECONDS
    assert served.coordinator.fault() is None


def test_many_rounds_at_once_are_each_answered_once(served: Served) -> None:
    served.run("one", "two", "three")
    plans = [served.coordinator.ask(ANALYST, ask(0.05, nonce=f"{number:02x}")) for number in range(12)]
    assert [served.until_told(plan_id).estimates[0].value for plan_id in plans] == [111] * 12
    assert served.kinds().count("answered") == 12
    assert served.verified().valid


def test_watching_returns_at_once_when_there_is_news_and_waits_when_there_is_none(served: Served) -> None:
    plan_id = served.coordinator.ask(ANALYST, ask())
    first = served.coordinator.watch(ANALYST, plan_id, seen=0, wait_seconds=LONG_SECONDS)
    assert isinstance(first, Progress)
    assert {state for _, state in first.sites} == {SiteState.OPEN}
    began = time.monotonic()
    again = served.coordinator.watch(ANALYST, plan_id, seen=first.seen, wait_seconds=0.1)
    assert isinstance(again, Progress)
    assert again.seen == first.seen
    assert time.monotonic() - began >= 0.1


def test_a_parked_claim_wakes_for_a_new_task(served: Served) -> None:
    claimed: list[SignedTask | None] = []
    parked = threading.Thread(target=lambda: claimed.append(served.coordinator.claim("one", wait_seconds=LONG_SECONDS)))
    parked.start()
    began = time.monotonic()
    plan_id = served.coordinator.ask(ANALYST, ask())
    parked.join()
    assert time.monotonic() - began < SOON_SECONDS
    assert claimed[0] is not None
    assert claimed[0].task.plan.plan_id == plan_id


def test_an_approval_days_later_finishes_the_round_by_itself(served: Served) -> None:
    served.hospitals["two"].mood = "hold"
    served.run("one", "two", "three")
    plan_id = served.coordinator.ask(ANALYST, ask())
    with pytest.raises(AwaitingApproval):
        served.until_told(plan_id)
    served.hospitals["two"].approve(served.coordinator)
    assert served.until_told(plan_id).estimates[0].value == 111


def test_an_approval_in_the_instant_a_round_is_looked_at_is_taken_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.hospitals["two"].mood = "hold"
    looked = Round.due_seconds
    approvals: list[str] = []

    def approved_meanwhile(line: Round, plan_id: str) -> float | None:
        """The round was looked at and waits for the steward; only now the approval arrives."""
        found = looked(line, plan_id)
        if line.awaited_stewards(plan_id) and not approvals:
            approvals.append(plan_id)
            served.hospitals["two"].approve(served.coordinator)
        return found

    monkeypatch.setattr(Round, "due_seconds", approved_meanwhile)
    plan_id = served.coordinator.ask(ANALYST, ask())
    for name in ("one", "three", "two"):
        signed = served.coordinator.claim(name, wait_seconds=LONG_SECONDS)
        assert signed is not None
        served.coordinator.submit(name, served.hospitals[name].answer(signed.task.plan))
    assert served.until_told(plan_id).estimates[0].value == 111
    assert approvals == [plan_id]
    assert served.kinds().count("answered") == 1


def test_open_rounds_have_no_threads_and_no_connections_of_their_own(served: Served) -> None:
    served.coordinator.ask(ANALYST, ask(0.001, nonce="ffff"))
    threads = threading.active_count()
    for number in range(60):
        served.coordinator.ask(ANALYST, ask(0.001, nonce=f"{number:04x}"))
    assert served.coordinator._line.open_rounds == 61
    assert threading.active_count() == threads
    assert served.coordinator.ledger.database._connections.opened <= MOST_READERS + 1


def test_a_full_ledger_delays_a_round_and_ends_none(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.run("one", "two", "three")
    answered, full = Round._answer, [1, 2, 3]

    def answer(line: Round, *words: object) -> object:
        if full:
            raise LedgerFull(private=f"{full.pop()}")
        return answered(line, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Round, "_answer", answer)
    monkeypatch.setattr("coordinator.rounds.attending.RETRY_SECONDS", 0.01)
    assert served.until_told(served.coordinator.ask(ANALYST, ask())).estimates[0].value == 111
    assert full == []
    assert served.coordinator.fault() is None
    assert served.kinds().count("settled") == 1


def test_too_few_sites_reach_whoever_watches(tmp_path: Path) -> None:
    world = Served(tmp_path, deadline_seconds=0.1, min_sites=2)
    world.enrol("one", count=1)
    world.enrol("two", count=10)
    world.run("one")
    plan_id = world.coordinator.ask(ANALYST, ask())
    for _ in range(2):
        with pytest.raises(TooFewSites):
            world.until_told(plan_id)
    world.run("two")
    assert answered_at_last(world).estimates[0].value == 11
    world.close()


def answered_at_last(world: Served) -> Answer:
    """Ask as often as it takes: a tenth of a second may be too short for both sites."""
    until = time.monotonic() + LONG_SECONDS
    while True:
        try:
            return world.until_told(world.coordinator.ask(ANALYST, ask()))
        except TooFewSites:
            if time.monotonic() > until:
                raise


def test_closing_wakes_every_waiting_call_and_the_round_goes_on_after_a_restart(tmp_path: Path) -> None:
    world = Served(tmp_path, deadline_seconds=300)
    for name, count in (("one", 1), ("two", 10), ("three", 100)):
        world.enrol(name, count=count)
    plan_id = world.coordinator.ask(ANALYST, ask())
    seen = world.coordinator._clock.changes(round_key(plan_id))
    ends: list[object] = []

    def watch() -> None:
        try:
            ends.append(world.coordinator.watch(ANALYST, plan_id, seen=seen, wait_seconds=LONG_SECONDS))
        except PeerUnreachable as stopping:
            ends.append(stopping.message)

    watching = threading.Thread(target=watch)
    watching.start()
    # Most likely it waits by then; if it does not yet, it hears the same.
    time.sleep(0.05)
    began = time.monotonic()
    world.coordinator.stop()
    watching.join()
    world.close()
    assert time.monotonic() - began < SOON_SECONDS
    assert ends == ["The coordinator is stopping; ask again."]
    with pytest.raises(PeerUnreachable):
        world.coordinator.ask(ANALYST, ask(nonce="01"))
    assert world.verified().valid
    world.coordinator = world.opened()
    world.coordinator.resume()
    world.run("one", "two", "three")
    assert world.until_told(plan_id).estimates[0].value == 111
    assert world.kinds().count("reserved") == 1
    world.close()


def test_what_a_round_dies_of_is_told_and_never_swallowed(served: Served) -> None:
    plan_id = served.coordinator.ask(ANALYST, ask())
    assert served.hospitals["one"].step(served.coordinator)
    plan = served.hospitals["one"].seen[0].task.plan
    shortened = Release(plan_id, "one", "2026-01-31", np.zeros(0, dtype=np.int64)).encode()
    with served.coordinator.ledger.database.transaction() as connection:
        connection.execute("DROP TRIGGER submissions_are_never_changed")
        connection.execute("UPDATE submissions SET payload = ? WHERE plan_id = ?", (shortened, plan.plan_id))
    served.run("two", "three")
    with pytest.raises(InvariantBroken):
        served.until_told(plan_id)
    assert isinstance(served.coordinator.fault(), InvariantBroken)


def test_a_ledger_is_not_closed_under_a_call(served: Served) -> None:
    served.run("one", "two", "three")
    errors: list[str] = []

    def analyse(number: int) -> None:
        try:
            for turn in itertools.count():
                served.until_told(served.coordinator.ask(ANALYST, ask(0.01, nonce=f"{number:02x}{turn:06x}")))
        except PeerUnreachable:
            errors.append("stopping")

    analysts = [threading.Thread(target=analyse, args=(number,)) for number in range(4)]
    for analyst in analysts:
        analyst.start()
    until = time.monotonic() + LONG_SECONDS
    while served.kinds().count("answered") < 20 and time.monotonic() < until:
        time.sleep(0.01)
    served.coordinator.close()
    for analyst in analysts:
        analyst.join()
    assert errors == ["stopping"] * 4
    assert served.coordinator.fault() is None
    assert served.verified().valid


def test_a_change_between_looking_and_waiting_is_not_missed() -> None:
    clock = RealClock()
    seen = clock.changes("key")
    clock.announce("key")
    began = time.monotonic()
    clock.wait("key", seen=seen, seconds=LONG_SECONDS)
    assert time.monotonic() - began < SOON_SECONDS


def test_a_change_wakes_only_who_waits_for_it() -> None:
    clock = RealClock()
    woken = threading.Event()

    def wait() -> None:
        clock.wait("other", seen=0, seconds=LONG_SECONDS)
        woken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    for _ in range(100):
        clock.announce("key")
    assert not woken.wait(0.05)
    clock.announce("other")
    waiting.join()


def test_without_threads_and_with_threads_the_answer_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    driven = oracle(tmp_path / "a")
    world = Served(tmp_path / "b")
    for name, count in (("one", 1), ("two", 10), ("three", 100)):
        world.enrol(name, count=count)
    world.run("one", "two", "three")
    plan_id = world.coordinator.ask(ANALYST, ask())
    assert world.until_told(plan_id) == driven.ask()
    world.close()
