"""Recovery is to call the round again: whatever was lost in memory, the ledger goes on from where it was."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.accounts.accounting import question_of
from coordinator.planning.plans import planned_again, plans_for
from coordinator.rounds import round as line
from coordinator.store.kept_answers import AnswerStore
from coordinator.store.rounds import Question
from coordinator.store.trainings import Due
from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from wardround.federation.errors import PlanRefused
from wardround.federation.plan.plan import price
from wardround.federation.question.answer import Answer


class Crash(BaseException):
    """The process is gone; nothing may catch this."""


def crash(*_: object) -> None:
    raise Crash


class Plug:
    """Pulls the plug at one transaction of the coordinator: before it begins, or right after it is on disk."""

    def __init__(self, world: World, *, at: int, after: bool) -> None:
        self._database = world.coordinator.ledger.database
        self._real = self._database.transaction
        self._left = at
        self._after = after
        self._database.transaction = self.transaction  # type: ignore[method-assign]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash
        with self._real() as connection:
            yield connection
        if self._left == 0:
            raise Crash


# reserve and open, three receipts, settle and answer
TRANSACTIONS = 5


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, TRANSACTIONS + 1))
def test_a_crash_at_any_step_changes_neither_answer_nor_charge(tmp_path: Path, at: int, after: bool) -> None:
    world = oracle(tmp_path)
    Plug(world, at=at, after=after)
    with pytest.raises(Crash):
        world.ask()
    world.restart()
    answer = world.ask()
    assert answer.estimates[0].value == 111
    assert answer.missing == ()
    kinds = world.kinds()
    assert [kinds.count(kind) for kind in ("reserved", "received", "settled", "answered")] == [1, 3, 1, 1]
    assert world.verified().valid
    assert all(len(hospital.kept) == 1 for hospital in world.hospitals.values())


def test_the_crash_test_covers_every_transaction(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    Plug(world, at=TRANSACTIONS + 1, after=False)
    assert world.ask().estimates[0].value == 111


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, TRANSACTIONS + 2))
def test_a_crash_around_a_refusal_gives_back_exactly_one_charge(tmp_path: Path, at: int, after: bool) -> None:
    world = oracle(tmp_path, moods={"two": "refuse"})
    Plug(world, at=at, after=after)
    with contextlib.suppress(Crash):
        world.ask()
    world.restart()
    assert world.ask().estimates[0].value == 101
    assert world.kinds().count("voided") == 1
    assert world.verified().valid


def test_who_answered_is_settled_once_also_if_another_answer_comes_before_theirs_are_combined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "FEW_NUMBERS", -1)
    world = oracle(tmp_path, moods={"two": "sleep"})
    original = AnswerStore.keep
    monkeypatch.setattr(AnswerStore, "keep", crash)
    with pytest.raises(Crash):
        world.ask()
    assert world.kinds()[-1] == "settled"
    monkeypatch.setattr(AnswerStore, "keep", original)
    world.restart()
    plan = world.hospitals["one"].seen[0].task.plan
    assert world.coordinator.submit("two", world.hospitals["two"].release(plan)) is not None
    answer = world.watch(plan.plan_id)
    assert (answer.estimates[0].value, answer.missing) == (101, ("two",))
    assert world.kinds().count("settled") == 1
    assert world.verified().valid


def test_resume_finishes_a_round_that_nobody_asks_about_again(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    plan_id = world.coordinator.ask(ANALYST, ask())
    world.restart()
    told = world.coordinator.watch(ANALYST, plan_id, seen=0, wait_seconds=0)
    assert isinstance(told, Answer)
    assert told.estimates[0].value == 111
    assert not told.replayed, "the analyst who asked first is not told of a replay"


@pytest.mark.parametrize(("served", "left"), [(0.0, 60.0), (59.0, 1.0), (61.0, 0.0), (10_000.0, 0.0)])
def test_a_restart_gives_the_sites_what_was_left_of_their_time(tmp_path: Path, served: float, left: float) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    for name in ("one", "three"):
        world.hospitals[name].step(world.coordinator)
    world.clock.pass_seconds(served)
    world.coordinator._line.note_served()
    # Time in which nobody serves is nobody's.
    world.clock.pass_seconds(5000.0)
    world.restart()
    before = world.clock.now()
    assert world.watch(plan_id).missing == ("two",)
    assert world.clock.now() - before == pytest.approx(left)


def test_restarts_without_end_come_to_an_end(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    for name in ("one", "three"):
        world.hospitals[name].step(world.coordinator)
    for _ in range(70):
        world.clock.pass_seconds(1.0)
        world.coordinator._line.note_served()
        world.restart()
    before = world.clock.now()
    world.watch(plan_id)
    assert world.clock.now() == before


def test_a_round_that_an_earlier_version_opened_is_not_given_a_whole_new_window(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    with world.coordinator.ledger.database.transaction() as connection:
        connection.execute("DELETE FROM windows")
    world.clock.pass_seconds(40.0)
    world.restart()
    before = world.clock.now()
    world.watch(plan_id)
    assert world.clock.now() - before == pytest.approx(20.0)


def test_a_plan_read_back_from_disk_is_handed_out_unchanged(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    world.coordinator.ask(ANALYST, ask())
    first = world.coordinator.claim("one", wait_seconds=0)
    world.restart()
    assert world.coordinator.claim("one", wait_seconds=0) == first


def test_running_an_answered_round_again_changes_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    plan_id = world.ask().plan_id
    entries, now = world.kinds(), world.clock.now()
    asked = planned_again(question_of(world.coordinator.ledger, plan_id), world.study)
    world.coordinator._line.begin(asked)
    world.coordinator._line.take_up()
    assert world.coordinator._rounds.plans() == ()
    assert (world.kinds(), world.clock.now()) == (entries, now)
    assert world.ask().estimates[0].value == 101


def test_a_stored_plan_that_is_no_longer_admitted_ends_its_own_round_and_no_other(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    known = plans_for(ask(0.1), world.study, dict.fromkeys(world.hospitals, 1000))[0]
    charge = price(known, world.study)
    # As another version may have planned it: a scale that no part has.
    plan = dataclasses.replace(known, scales=(*known.scales, *known.scales))
    with world.coordinator.ledger.rounds.reserving(plan.plan_id, charge) as round_:
        round_.charge(Question(plan, ANALYST, 0.1, 1e-6), Due(charge, plan.participants), at=0.0, now=0.0)
    world.restart()
    assert world.ask().estimates[0].value == 111
    with pytest.raises(PlanRefused):
        world.watch(plan.plan_id)
