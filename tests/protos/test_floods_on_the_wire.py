"""Callers that take all they can: calls at full speed, calls without a request, connections without a word."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from protos.calls import EnrolmentCalls, SiteCalls
from protos.channels import MAX_CALLS_PER_CONNECTION, Listening, channel, enrolment_channel
from protos.statuses import from_rpc_error
from protos.turns import CALLS_OF_ONE_NAME, Turns
from tests.protos.fairness import Event, most_ahead, times_waited
from tests.protos.loopback_service import HASH, HOST, EnrolmentDesk, Loopback, SiteDesk, enrolments, listening, sites
from tests.protos.test_mutual_tls import ENROLMENT
from wardround.federation.errors import (
    DeadlinePassed,
    FederationError,
    NotAuthorized,
    PeerUnreachable,
)
from wardround.federation.plan.task import Pending

PATIENCE_SECONDS = 60.0
STREAMS = 40
OTHER_HASH = "cd" * 32


def eventually(true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until, "never happened"
        time.sleep(0.01)


def wait_until_closed(connection: socket.socket) -> None:
    """Wait until the other side has ended the connection, whatever it said before."""
    connection.settimeout(PATIENCE_SECONDS)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


@contextlib.contextmanager
def silent(loopback: Loopback, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        address = (HOST, loopback.serving.port)
        yield [stack.enter_context(socket.create_connection(address)) for _ in range(count)]


def test_a_caller_waits_for_one_call_of_each_flooder_at_most(tmp_path: Path) -> None:
    events: list[Event] = []
    turns = Turns(at_once=2, watch=lambda kind, name: events.append((kind, name)))
    flooders = ("mallory", "oscar", "trudy")
    done = threading.Event()
    with (
        listening(sites(SiteDesk(tmp_path)), turns=turns) as loopback,
        ExitStack() as channels,
        ThreadPoolExecutor(STREAMS * len(flooders)) as threads,
    ):
        victim, *others = (
            SiteCalls(channels.enter_context(channel(loopback.address, loopback.authority.issue(name))))
            for name in ("victim", *flooders)
        )

        def flood(calls: SiteCalls) -> None:
            while not done.is_set():
                with contextlib.suppress(FederationError):
                    calls.greet()

        for calls in others:
            for _ in range(STREAMS):
                threads.submit(flood, calls)
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            while times_waited(events, "victim") < 20 and time.monotonic() < until:
                assert victim.greet().site == "victim"
        finally:
            done.set()
    assert times_waited(events, "victim") >= 20
    ahead = most_ahead(events, "victim")
    assert set(ahead) == set(flooders)
    assert set(ahead.values()) == {1}


def test_calls_that_never_send_their_request_hold_only_their_own_callers_slots(tmp_path: Path) -> None:
    hung_up = threading.Event()

    def nothing() -> Iterator[bytes]:
        hung_up.wait(PATIENCE_SECONDS)
        yield from ()

    with listening(sites(SiteDesk(tmp_path))) as loopback, ExitStack() as channels:
        begun = []
        try:
            # Two, because one may have half of the turns.
            for name in ("mallory", "oscar"):
                for method in ("Greet", "ClaimTask", "SubmitRelease"):
                    calls = channels.enter_context(channel(loopback.address, loopback.authority.issue(name)))
                    begin = calls.stream_unary(f"/wardround.v1.SiteService/{method}")
                    begun += [begin.future(nothing()) for _ in range(CALLS_OF_ONE_NAME)]
            eventually(lambda: sum(call.done() for call in begun) >= 4 * CALLS_OF_ONE_NAME)
            victim = channels.enter_context(channel(loopback.address, loopback.authority.issue("victim")))
            assert SiteCalls(victim).greet().site == "victim"
            turned_away = [from_rpc_error(call.exception()) for call in begun if call.done()]
            assert len(turned_away) == 4 * CALLS_OF_ONE_NAME
            assert {type(error) for error in turned_away} == {PeerUnreachable}
            assert all("ask again" in error.message for error in turned_away)
        finally:
            hung_up.set()
            for call in begun:
                call.cancel()


class Refusing(SiteDesk):
    """Refuses every call."""

    def admit(self, context: grpc.ServicerContext) -> str:
        super().admit(context)
        raise self.refusal()

    def refusal(self) -> FederationError:
        return NotAuthorized()


class Remembering(Refusing):
    """Refuses every call, and keeps why, as the coordinator keeps what its rounds ended with."""

    def refusal(self) -> FederationError:
        self.kept = [*getattr(self, "kept", []), NotAuthorized()]
        return self.kept[-1]


@pytest.mark.parametrize("desk", [SiteDesk, Refusing, Remembering])
def test_a_call_leaves_nothing_behind_however_it_ends(tmp_path: Path, desk: type[SiteDesk]) -> None:
    outcomes = []
    with (
        listening(sites(desk(tmp_path))) as loopback,
        channel(loopback.address, loopback.authority.issue("north")) as north,
    ):
        # A call that only a collector would find is still open, and so many may not be.
        gc.disable()
        try:
            for _ in range(2 * MAX_CALLS_PER_CONNECTION):
                try:
                    outcomes.append(SiteCalls(north).greet().site)
                except FederationError as error:
                    outcomes.append(error.code)
        finally:
            gc.enable()
    assert set(outcomes) == {"north" if desk is SiteDesk else "NotAuthorized"}


def test_whoever_hung_up_before_its_turn_is_not_worked_for(tmp_path: Path) -> None:
    desk, turns = SiteDesk(tmp_path), Turns(at_once=1)
    with (
        listening(sites(desk), turns=turns) as loopback,
        channel(loopback.address, loopback.authority.issue("north")) as north,
    ):
        with turns.turn("another"), pytest.raises(DeadlinePassed):
            SiteCalls(north, deadline_seconds=0.5).submit(Pending(HASH))
        SiteCalls(north).submit(Pending(OTHER_HASH))
    assert desk.submitted == [("north", Pending(OTHER_HASH))]


PORTS = pytest.mark.parametrize("strangers", [False, True])


@PORTS
def test_a_connection_that_says_nothing_is_ended(tmp_path: Path, *, strangers: bool) -> None:
    at = Listening("", connections=20, handshake_seconds=1.0, strangers=strangers)
    with port(tmp_path, at) as (loopback, call), silent(loopback, 20) as connections:
        # All connections are theirs, and then none is.
        for connection in connections:
            wait_until_closed(connection)
        call()


@PORTS
def test_a_connection_too_many_is_ended_at_once_and_whoever_was_there_goes_on(
    tmp_path: Path, *, strangers: bool
) -> None:
    at = Listening("", connections=21, handshake_seconds=PATIENCE_SECONDS, strangers=strangers)
    with port(tmp_path, at) as (loopback, call):
        call()
        with silent(loopback, 60) as connections:
            eventually(lambda: sum(map(is_closed, connections)) == 40)
            call()
            assert sum(map(is_closed, connections)) == 40


@contextlib.contextmanager
def port(folder: Path, at: Listening) -> Iterator[tuple[Loopback, Callable[[], object]]]:
    """A port for members or for strangers, and a call to it over one connection."""
    with ExitStack() as stack:
        if at.strangers:
            loopback = stack.enter_context(listening(enrolments(EnrolmentDesk()), at=at))
            new = stack.enter_context(enrolment_channel(loopback.address, authority=loopback.authority.pem))
            yield loopback, lambda: EnrolmentCalls(new).enrol(ENROLMENT)
        else:
            loopback = stack.enter_context(listening(sites(SiteDesk(folder)), at=at))
            north = stack.enter_context(channel(loopback.address, loopback.authority.issue("north")))
            yield loopback, SiteCalls(north).greet


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
