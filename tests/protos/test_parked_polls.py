"""Calls that wait never keep out a call that brings something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from protos.calls import SiteCalls
from protos.channels import channel
from protos.serving import WaitingRoom, waiting_room_for, workers_for
from protos.turns import Turns
from tests.protos.loopback_service import HASH, RECEIPT, Loopback, SiteDesk, listening, sites
from wardround.federation.plan.task import Released
from wardround.federation.trust.entry import GENESIS, Entry

SITES = 64
RELEASE = Released(HASH, b"x", Entry(1, GENESIS, "released", "{}", b"s" * 64))


@contextmanager
def channels(loopback: Loopback, count: int) -> Iterator[list[grpc.Channel]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(channel(loopback.address, loopback.authority.issue(f"site-{number}")))
            for number in range(count)
        ]


def wait_until_taken(room: WaitingRoom, seats: int) -> None:
    for _ in range(12_000):
        if room.taken == seats:
            return
        threading.Event().wait(0.01)
    pytest.fail(f"{room.taken} of {seats} polls are parked")


def test_a_submission_is_served_while_64_sites_wait(tmp_path: Path) -> None:
    desk = SiteDesk(tmp_path)
    with (
        listening(sites(desk), turns=desk.turns) as loopback,
        channels(loopback, SITES) as found,
        ThreadPoolExecutor(SITES) as threads,
    ):
        try:
            polls = [threads.submit(SiteCalls(one).claim, wait_seconds=20) for one in found]
            wait_until_taken(desk.room, SITES)
            assert SiteCalls(found[0]).submit(RELEASE) == RECEIPT
            # Not a matter of seconds: nobody had to leave for the submission to be served.
            assert desk.room.taken == SITES
            assert not any(poll.done() for poll in polls)
        finally:
            desk.opened.set()
        assert [poll.result() for poll in polls] == [None] * SITES


def test_a_poll_that_finds_no_seat_is_answered_at_once_and_asked_to_pause(tmp_path: Path) -> None:
    desk = SiteDesk(tmp_path)
    desk.room = WaitingRoom(seats=4)
    with (
        listening(sites(desk)) as loopback,
        channels(loopback, 5) as found,
        ThreadPoolExecutor(4) as threads,
    ):
        try:
            polls = [threads.submit(SiteCalls(one).claim, wait_seconds=20) for one in found[:4]]
            wait_until_taken(desk.room, 4)
            pauses: list[float] = []
            assert SiteCalls(found[4]).claim(wait_seconds=20, pause=pauses.append) is None
            assert pauses == [0.5]
            assert not any(poll.done() for poll in polls)
        finally:
            desk.opened.set()


@pytest.mark.parametrize("names", [1, 64, 65, 200, 1000])
def test_every_caller_has_a_seat_and_half_of_the_workers_never_wait(names: int) -> None:
    turns = Turns(names=names)
    workers, room = workers_for(turns), waiting_room_for(turns)
    assert workers >= 2 * names + 16
    assert names < room.seats <= workers // 2


def test_one_caller_cannot_take_every_seat() -> None:
    room = WaitingRoom(seats=8)
    with ExitStack() as stack:
        seats = [stack.enter_context(room.seat("greedy", wait_seconds=20)) for _ in range(5)]
        assert [seat.wait_seconds for seat in seats] == [20, 20, 0, 0, 0]
        assert seats[-1].pause_seconds > 0
        with room.seat("modest", wait_seconds=20) as seat:
            assert seat.wait_seconds == 20
    assert room.taken == 0


def test_a_seat_is_free_again_when_its_call_fails() -> None:
    room = WaitingRoom(seats=1)
    with pytest.raises(ZeroDivisionError), room.seat("north", wait_seconds=20):
        raise ZeroDivisionError
    with room.seat("south", wait_seconds=20) as seat:
        assert seat.wait_seconds == 20


def test_a_call_that_does_not_wait_needs_no_seat() -> None:
    room = WaitingRoom(seats=1)
    with room.seat("north", wait_seconds=20), room.seat("north", wait_seconds=0) as seat:
        assert (seat.wait_seconds, seat.pause_seconds) == (0.0, 0.0)
        assert room.taken == 1
