"""The enrolment port is another process: it forwards, comes back when it is killed, and ends with its coordinator."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from coordinator.serving.enrolment_port import EnrolmentPort
from coordinator.serving.forwarding_service import Orders
from protos._generated import enrolment_service_pb2 as pb
from protos.calls import EnrolmentCalls
from protos.channels import enrolment_channel
from protos.turns import SERVED, Turns
from protos.words import ENROLLED, ENROLMENT
from tests.fixtures.ports import HOST, take_port
from tests.fixtures.processes import children, opened, runs
from tests.protos.certificates import TestAuthority
from tests.protos.test_mutual_tls import ENROLMENT as ASKED
from wardround.federation.errors import (
    ConfigurationMistaken,
    FederationError,
    InvariantBroken,
    LedgerBusy,
    LedgerCorrupt,
    MalformedMessage,
    NotAuthorized,
    PeerUnreachable,
    Unavailable,
)

PATIENCE_SECONDS = 120.0
CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


def eventually(true: Callable[[], object], *, what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until, f"never happened: {what}"
        time.sleep(0.02)


def enrolment_processes() -> list[int]:
    return children(os.getpid(), running="forwarding_service")


@dataclass
class Desk:
    """Enrols everybody, or raises what it is told to."""

    fault: Exception | None = None
    enrolled: list[bytes] = field(default_factory=list)
    broken: list[InvariantBroken] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    authority: TestAuthority = field(default_factory=TestAuthority)
    port: int = field(default_factory=take_port)

    def enrol(self, request: bytes) -> bytes:
        if self.fault is not None:
            raise self.fault
        self.enrolled.append(request)
        return ENROLLED.write(CERTIFICATE).SerializeToString()

    def made(self) -> EnrolmentPort:
        orders = Orders(f"{HOST}:{self.port}", 32, 1.0, self.authority.issue("coordinator"))
        turns = Turns(watch=lambda kind, name: self.events.append((kind, name)))
        return EnrolmentPort(orders, self.enrol, turns=turns, broken=self.broken.append)

    def ask(self, *, authority: bytes | None = None) -> bytes:
        """Enrol as a hospital would."""
        with enrolment_channel(f"{HOST}:{self.port}", authority=authority or self.authority.pem) as opened:
            return EnrolmentCalls(opened).enrol(ASKED)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def served(desk: Desk) -> Iterator[EnrolmentPort]:
    port = desk.made()
    assert port.start() == desk.port
    try:
        yield port
    finally:
        port.stop()


def test_a_request_is_forwarded_as_it_came_and_the_reply_comes_back(desk: Desk, served: EnrolmentPort) -> None:
    assert desk.ask() == CERTIFICATE
    assert [ENROLMENT.read(pb.EnrolRequest.FromString(each)) for each in desk.enrolled] == [ASKED]
    # In turn with everybody else, under a name that no member has.
    assert desk.events == [(SERVED, "")]


@pytest.mark.parametrize(
    "fault",
    [
        NotAuthorized("the invitation was already used; ask the consortium for a new one."),
        ConfigurationMistaken("The site cannot join: δ is too large."),
        LedgerBusy(),
        MalformedMessage("a certificate request cannot be read."),
    ],
    ids=lambda fault: fault.code,
)
def test_a_refusal_is_heard_in_the_words_of_who_decided(
    desk: Desk, served: EnrolmentPort, fault: FederationError
) -> None:
    desk.fault = fault
    with pytest.raises(type(fault)) as caught:
        desk.ask()
    assert caught.value.message == fault.message
    assert desk.broken == []


@pytest.mark.parametrize("fault", [LedgerCorrupt(private="secret"), ZeroDivisionError("secret")])
def test_what_breaks_the_coordinator_is_told_to_it_and_a_fixed_sentence_to_the_stranger(
    desk: Desk, served: EnrolmentPort, fault: Exception
) -> None:
    desk.fault = fault
    with pytest.raises(Unavailable, match="internal error") as caught:
        desk.ask()
    assert "secret" not in caught.value.message
    assert desk.broken == [fault] * isinstance(fault, InvariantBroken)
    desk.fault = None
    assert desk.ask() == CERTIFICATE


def test_a_port_that_is_taken_is_one_sentence(desk: Desk, served: EnrolmentPort) -> None:
    with pytest.raises(ConfigurationMistaken, match="another process"):
        desk.made().start()
    assert desk.ask() == CERTIFICATE


def test_new_keys_are_shown_without_a_restart_and_after_one(desk: Desk, served: EnrolmentPort) -> None:
    renewed = TestAuthority("another")
    served.show(renewed.issue("coordinator"))

    def shows_them() -> bool:
        with contextlib.suppress(NotAuthorized, PeerUnreachable):
            return desk.ask(authority=renewed.pem) == CERTIFICATE
        return False

    eventually(shows_them, what="the new certificate is shown")
    (child,) = enrolment_processes()
    os.kill(child, signal.SIGKILL)
    eventually(lambda: not runs(child), what="the child is gone")
    eventually(shows_them, what="the new certificate is shown again")


def test_a_killed_process_comes_back(desk: Desk, served: EnrolmentPort) -> None:
    for _ in range(2):
        (child,) = enrolment_processes()
        os.kill(child, signal.SIGKILL)
        eventually(lambda child=child: not runs(child), what="the child is gone")  # type: ignore[misc]

        def answers() -> bool:
            with contextlib.suppress(PeerUnreachable):
                return desk.ask() == CERTIFICATE
            return False

        eventually(answers, what="another one answers")


def test_signals_of_the_terminal_do_not_end_it_before_its_coordinator(desk: Desk, served: EnrolmentPort) -> None:
    (child,) = enrolment_processes()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(child, number)
    assert desk.ask() == CERTIFICATE
    assert enrolment_processes() == [child]


def test_it_ends_when_it_is_stopped_and_while_it_waits_to_be_started_again(desk: Desk) -> None:
    port = desk.made()
    port.start()
    (child,) = enrolment_processes()
    port.stop()
    assert not runs(child)
    port = desk.made()
    port.start()
    (child,) = enrolment_processes()
    os.kill(child, signal.SIGKILL)
    port.stop()
    assert enrolment_processes() == []


def test_an_enrolment_under_way_is_finished_before_it_stops(desk: Desk) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(request: bytes) -> bytes:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        return desk.enrol(request)

    orders = Orders(f"{HOST}:{desk.port}", 32, 1.0, desk.authority.issue("coordinator"))
    port = EnrolmentPort(orders, slowly, turns=Turns(), broken=desk.broken.append)
    port.start()
    replies: list[bytes] = []
    asking = threading.Thread(target=lambda: replies.append(desk.ask()), daemon=True)
    asking.start()
    assert begun.wait(PATIENCE_SECONDS)
    stopping = threading.Thread(target=port.stop, daemon=True)
    stopping.start()
    go_on.set()
    stopping.join(PATIENCE_SECONDS)
    asking.join(PATIENCE_SECONDS)
    assert replies == [CERTIFICATE]


def test_a_flood_of_strangers_takes_none_of_the_coordinators_descriptors(desk: Desk, served: EnrolmentPort) -> None:
    (child,) = enrolment_processes()
    desk.ask()
    before = len(opened(child))
    with ExitStack() as stack:
        ours = len(opened(os.getpid()))
        for _ in range(100):
            stack.enter_context(socket.create_connection((HOST, desk.port)))
        # A hundred are ours because we are the flood, too.
        assert len(opened(os.getpid())) <= ours + 100
        eventually(lambda: len(opened(child)) >= before + 20, what="they are accepted")
        assert len(opened(child)) <= before + 32
    eventually(lambda: len(opened(child)) <= before + 1, what="they are gone")
    assert desk.ask() == CERTIFICATE
