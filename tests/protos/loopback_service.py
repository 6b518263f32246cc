"""A coordinator's wire on a loopback port of this process, with desks that are small enough to read."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from protos import words
from protos._generated import analyst_service_pb2_grpc, enrolment_service_pb2_grpc, site_service_pb2_grpc
from protos._generated import site_service_pb2 as pb
from protos.channels import Listening
from protos.chunked_release import CHUNK, read_submission
from protos.pages import write_watched
from protos.pieces import PieceStore
from protos.serving import Serving, serve, waiting_room_for
from protos.tls import Presented, caller_certificate
from protos.turns import Turns
from protos.words import ASKED, CLAIM, ENROLLED, ENROLMENT, GREETING, POLL, RENEWED, SHOWN, WATCH, Claim, read_question
from tests.fixtures.ports import HOST, take_port
from tests.protos.certificates import TestAuthority
from wardround.federation.errors import InvariantBroken
from wardround.federation.plan.task import AskRequest, SignedTask, Submission
from wardround.federation.question.answer import Answer, Progress
from wardround.federation.trust.certificates import holder
from wardround.federation.trust.enrolment import Enrolment, Greeting
from wardround.federation.trust.entry import GENESIS, Entry

HASH = "ab" * 32
PATIENCE_SECONDS = 120.0
# A port of this process is chosen when the service begins to listen.
ANYWHERE = Listening("", connections=256, handshake_seconds=5.0)
RECEIPT = Entry(1, GENESIS, "received", "{}", b"s" * 64)


@dataclass
class SiteDesk(site_service_pb2_grpc.SiteServiceServicer):
    """Parks polls until `opened`, keeps what is submitted, and raises `fault` when it has one."""

    folder: Path
    turns: Turns = field(default_factory=Turns)
    fault: Exception | None = None
    task: SignedTask | None = None
    submitted: list[tuple[str, Submission]] = field(default_factory=list)
    shown: list[tuple[Entry, ...]] = field(default_factory=list)
    opened: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.pieces = PieceStore(self.folder / "pieces")
        self.room = waiting_room_for(self.turns)

    def admit(self, context: grpc.ServicerContext) -> str:
        if self.fault is not None:
            raise self.fault
        return holder(caller_certificate(context)).name

    def Greet(self, request: pb.GreetRequest, context: grpc.ServicerContext) -> pb.GreetReply:
        site = self.admit(context)
        return GREETING.write(Greeting(site, HASH, 1_700_000_000_000))

    def ClaimTask(self, request: pb.ClaimTaskRequest, context: grpc.ServicerContext) -> pb.ClaimTaskReply:
        with self.room.seat(self.admit(context), wait_seconds=POLL.read(request).wait_seconds) as seat:
            # Until the test says so, or its caller hangs up: a parked poll must not leave while others still connect.
            with self.turns.aside():
                self.opened.wait(PATIENCE_SECONDS if seat.wait_seconds else 0.0)
            return CLAIM.write(Claim(self.task, seat.pause_seconds))

    def ShowChain(self, request: pb.ShowChainRequest, context: grpc.ServicerContext) -> pb.ShowChainReply:
        self.admit(context)
        self.shown.append(SHOWN.read(request))
        return pb.ShowChainReply()

    def PutChunk(self, request: pb.PutChunkRequest, context: grpc.ServicerContext) -> pb.PutChunkReply:
        self.pieces.of(self.admit(context)).put(CHUNK.read(request))
        return pb.PutChunkReply()

    def SubmitRelease(self, request: pb.SubmitReleaseRequest, context: grpc.ServicerContext) -> pb.SubmitReleaseReply:
        site = self.admit(context)
        self.submitted.append((site, read_submission(request.submission, self.pieces.of(site))))
        return words.RECEIPT.write(RECEIPT)

    def RenewCertificate(
        self, request: pb.RenewCertificateRequest, context: grpc.ServicerContext
    ) -> pb.RenewCertificateReply:
        return RENEWED.write(caller_certificate(context))


@dataclass
class AnalystDesk(analyst_service_pb2_grpc.AnalystServiceServicer):
    """Answers every question with the same plan, and every poll with `outcome`."""

    outcome: Progress | Answer
    asked: list[AskRequest] = field(default_factory=list)

    def Ask(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self.asked.append(read_question(request.question))
        return ASKED.write(HASH)

    def Await(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        watch = WATCH.read(request)
        return write_watched(
            self.outcome, first_estimate=watch.first_estimate, first_update_byte=watch.first_update_byte
        )


@dataclass
class EnrolmentDesk(enrolment_service_pb2_grpc.EnrolmentServiceServicer):
    """Enrols everybody."""

    enrolled: list[Enrolment] = field(default_factory=list)

    def Enrol(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self.enrolled.append(ENROLMENT.read(request))
        return ENROLLED.write(b"-----BEGIN CERTIFICATE-----")


@dataclass
class Loopback:
    """A service that is listening, and what a test needs to reach it."""

    authority: TestAuthority
    presented: Presented
    serving: Serving
    broken: list[InvariantBroken]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.serving.port}"


@contextmanager
def listening(
    register: Callable[[grpc.Server], None], *, turns: Turns | None = None, at: Listening = ANYWHERE
) -> Iterator[Loopback]:
    authority = TestAuthority()
    presented = Presented(authority.issue("coordinator"))
    broken: list[InvariantBroken] = []
    address = dataclasses.replace(at, address=f"{HOST}:{take_port()}")
    serving = serve(address, presented, register, turns=turns or Turns(), broken=broken.append)
    try:
        yield Loopback(authority, presented, serving, broken)
    finally:
        serving.stop(grace_seconds=0)


def sites(desk: SiteDesk) -> Callable[[grpc.Server], None]:
    return lambda service: site_service_pb2_grpc.add_SiteServiceServicer_to_server(desk, service)


def analysts(desk: AnalystDesk) -> Callable[[grpc.Server], None]:
    return lambda service: analyst_service_pb2_grpc.add_AnalystServiceServicer_to_server(desk, service)


def enrolments(desk: EnrolmentDesk) -> Callable[[grpc.Server], None]:
    return lambda service: enrolment_service_pb2_grpc.add_EnrolmentServiceServicer_to_server(desk, service)
