"""Calls take turns by name: how many of them a name sends decides nothing about the others."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from protos.turns import CALLS_OF_ONE_NAME, OWN_SLOTS, SERVED, SHARED_SLOTS, WAITS, Turns
from tests.protos.fairness import Event, most_ahead, times_waited
from wardround.federation.errors import PeerUnreachable

PATIENCE_SECONDS = 60.0


class Recorded(Turns):
    """Turns that remember what happened."""

    def __init__(self, *, at_once: int) -> None:
        self.events: list[Event] = []
        super().__init__(at_once=at_once, watch=lambda kind, name: self.events.append((kind, name)))


@contextlib.contextmanager
def threads(work: list[Callable[[], None]]) -> Iterator[None]:
    begun = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in begun:
        thread.start()
    try:
        yield
    finally:
        for thread in begun:
            thread.join(PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in begun)


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if true():
            return
        threading.Event().wait(0.01)
    pytest.fail("never happened")


class Caller:
    """A thread that has calls of one name, each until it is told to end."""

    def __init__(self, turns: Turns, name: str) -> None:
        self._turns, self._name = turns, name
        self._orders: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with self._turns.turn(self._name):
            while self._orders.get() == "aside":
                with self._turns.aside():
                    self._orders.get()

    def order(self, word: str) -> None:
        self._orders.put(word)

    def end(self) -> None:
        self.order("end")
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_of_each_other_name_one_call_at_most_is_taken_up_ahead(at_once: int) -> None:
    turns, done = Recorded(at_once=at_once), threading.Event()
    names = [f"flooder-{number % 4}" for number in range(40)]
    all_here = threading.Barrier(len(names) + 1)

    def flood(name: str) -> None:
        all_here.wait(PATIENCE_SECONDS)
        # An end of its own, for a victim that starves.
        while not done.is_set() and len(turns.events) < 50_000:
            with turns.turn(name):
                time.sleep(0.0001)

    def behave() -> None:
        all_here.wait(PATIENCE_SECONDS)
        while times_waited(turns.events, "victim") < 100:
            with turns.turn("victim"):
                time.sleep(0.0001)
        done.set()

    with threads([lambda name=name: flood(name) for name in names] + [behave]):  # type: ignore[misc]
        pass
    ahead = most_ahead(turns.events, "victim")
    # Where one call is worked on at once, the name that was served last is in line behind the victim each time.
    assert len(ahead) >= len(set(names)) - 1
    assert set(ahead.values()) == {1}


def test_names_take_turns_and_a_name_keeps_its_order() -> None:
    turns = Recorded(at_once=1)
    first = Caller(turns, "a")
    wait_until(lambda: turns.events == [(SERVED, "a")])
    waiting = []
    for number, name in enumerate(("a", "a", "a", "b", "b", "c"), start=1):
        waiting.append((name, Caller(turns, name)))
        wait_until(lambda number=number: len(turns.events) == 1 + number)  # type: ignore[misc]
    first.end()
    order = []
    while waiting:
        served = [name for kind, name in turns.events if kind == SERVED][1:]
        order.append(served[-1])
        # Within a name it is the one that came first.
        following = next(pair for pair in waiting if pair[0] == served[-1])
        waiting.remove(following)
        before = len(turns.events)
        following[1].end()
        wait_until(lambda before=before: not waiting or len(turns.events) > before)  # type: ignore[misc]
    # Whoever was served last is last in line.
    assert order == ["b", "c", "a", "b", "a", "a"]


def test_a_call_that_waits_for_news_lets_others_work_and_comes_back_in_turn() -> None:
    turns = Recorded(at_once=1)
    poll = Caller(turns, "poll")
    wait_until(lambda: turns.events == [(SERVED, "poll")])
    other = Caller(turns, "other")
    wait_until(lambda: (WAITS, "other") in turns.events)
    poll.order("aside")
    wait_until(lambda: turns.events[-1] == (SERVED, "other"))
    poll.order("wake")
    wait_until(lambda: turns.events[-1] == (WAITS, "poll"))
    other.end()
    poll.end()
    assert turns.events[-1] == (SERVED, "poll")


def test_whoever_has_no_turn_waits_without_one() -> None:
    turns = Recorded(at_once=1)
    with turns.aside(), turns.turn("a"), turns.aside(), turns.aside():
        pass
    # Aside within aside gives nothing back that it does not have: there is still one turn, and only one.
    assert turns.events == [(SERVED, "a"), (SERVED, "a")]
    with turns.turn("a"):
        second = Caller(turns, "b")
        wait_until(lambda: turns.events[-1] == (WAITS, "b"))
    second.end()


def test_a_call_keeps_its_turn_while_it_reads_and_loses_it_when_that_takes_long() -> None:
    turns = Recorded(at_once=1)
    with turns.turn("quick"):
        with turns.reading():
            pass
        waiting = Caller(turns, "other")
        wait_until(lambda: turns.events[-1] == (WAITS, "other"))
        # It keeps the turn while it works, however long that takes.
        assert turns.events == [(SERVED, "quick"), (WAITS, "other")]
        with turns.reading():
            wait_until(lambda: turns.events[-1] == (SERVED, "other"))
            waiting.order("end")
        assert turns.events[-1] == (SERVED, "quick")


def test_slow_calls_of_one_name_leave_turns_to_the_others() -> None:
    turns = Recorded(at_once=8)
    slow = [Caller(turns, "slow") for _ in range(10)]
    wait_until(lambda: len(turns.events) == 10)
    assert Counter(kind for kind, _ in turns.events) == {SERVED: 4, WAITS: 6}
    with turns.turn("victim"):
        assert turns.events[-1] == (SERVED, "victim")
    for each in slow:
        each.order("end")
    wait_until(lambda: turns.events.count((SERVED, "slow")) == 10)


def test_a_turn_is_given_back_when_its_call_fails() -> None:
    turns = Recorded(at_once=1)
    with pytest.raises(ZeroDivisionError), turns.turn("a"), turns.aside():
        raise ZeroDivisionError
    with turns.turn("b"):
        assert turns.events[-1] == (SERVED, "b")


def test_a_name_has_only_so_many_slots_and_is_told_at_once() -> None:
    turns = Turns()
    with contextlib.ExitStack() as inside:
        for _ in range(CALLS_OF_ONE_NAME):
            inside.enter_context(turns.slot("greedy"))
        with pytest.raises(PeerUnreachable, match="ask again"), turns.slot("greedy"):
            pass
        with turns.slot("modest"):
            pass
    with turns.slot("greedy"):
        pass


def test_nobody_can_take_the_slots_that_are_another_names_own() -> None:
    turns = Turns(names=64)
    with contextlib.ExitStack() as inside:
        for number in range(8):
            with contextlib.suppress(PeerUnreachable):
                for _ in range(CALLS_OF_ONE_NAME):
                    inside.enter_context(turns.slot(f"greedy-{number}"))
        # What is shared is gone, and what is a name's own is not.
        for number in range(64 - 8):
            for _ in range(OWN_SLOTS):
                inside.enter_context(turns.slot(f"modest-{number}"))
            with pytest.raises(PeerUnreachable), turns.slot(f"modest-{number}"):
                pass
    with contextlib.ExitStack() as inside:
        for number in range(SHARED_SLOTS // (CALLS_OF_ONE_NAME - OWN_SLOTS)):
            for _ in range(CALLS_OF_ONE_NAME):
                inside.enter_context(turns.slot(f"late-{number}"))


def test_more_names_than_expected_never_hold_more_threads_than_there_are() -> None:
    turns = Turns(names=2, shared_slots=1)
    with contextlib.ExitStack() as inside:
        for number in range(turns.slots):
            inside.enter_context(turns.slot(f"name-{number}"))
        with pytest.raises(PeerUnreachable), turns.slot("one more"):
            pass


def test_who_finds_no_slot_is_logged_once_and_not_for_each_call(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(names=1, of_one_name=2)
    with turns.slot("greedy"), turns.slot("greedy"):
        for _ in range(1000):
            with pytest.raises(PeerUnreachable), turns.slot("greedy"):
                pass
    assert [record.getMessage() for record in caplog.records] == [
        "too many calls at once, told to ask again: greedy (1)"
    ]
