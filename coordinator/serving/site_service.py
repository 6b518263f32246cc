"""What sites may call: each method decodes, calls one function, encodes. The caller is checked every time."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import grpc

from coordinator.members.authority import Authority
from coordinator.members.presence import Presence
from coordinator.members.roster import authorize
from coordinator.rounds.coordinator import Coordinator
from protos._generated import site_service_pb2 as pb
from protos._generated.site_service_pb2_grpc import SiteServiceServicer
from protos.calls import pages_of
from protos.chunked_release import CHUNK, read_recalled, read_submission
from protos.pieces import PieceStore
from protos.serving import WaitingRoom
from protos.tls import caller_certificate
from protos.words import (
    CLAIM,
    GREETING,
    LIST_AFTER,
    MAX_SHOWN,
    PIECE_BYTES,
    POLL,
    PRESENTING,
    RECEIPT,
    REJOINING,
    RENEWAL,
    RENEWED,
    RESERVED,
    RETURN_AFTER,
    RETURNED,
    RETURNED_CHAIN,
    SHOWN,
    WANTED,
    Claim,
    Returned,
)
from wardround.federation.errors import NotAuthorized
from wardround.federation.trust.certificates import Role, holder, load_certificate, request_key, tls_key_hash, validity
from wardround.federation.trust.enrolment import Greeting

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class SiteService(SiteServiceServicer):
    """The site's conversation, over a coordinator."""

    coordinator: Coordinator
    authority: Authority
    pieces: PieceStore
    room: WaitingRoom
    certificate_life: datetime.timedelta
    presence: Presence

    def _site(self, context: grpc.ServicerContext) -> str:
        return authorize(self.coordinator.ledger, caller_certificate(context), Role.SITE)

    def Greet(self, request: pb.GreetRequest, context: grpc.ServicerContext) -> pb.GreetReply:
        """Hear what the caller says of itself; say who it is here, which study this is, and what time it is."""
        site = self._site(context)
        standing = self.coordinator.greet(site, PRESENTING.read(request))
        self._note_certificate(site, caller_certificate(context))
        now = round(_now().timestamp() * MILLISECONDS)
        return GREETING.write(Greeting(site, self.coordinator.study.study_hash, now, standing))

    def ShowChain(self, request: pb.ShowChainRequest, context: grpc.ServicerContext) -> pb.ShowChainReply:
        """Keep what the caller shows of its own ledger."""
        self.coordinator.show(self._site(context), SHOWN.read(request))
        return pb.ShowChainReply()

    def Recall(self, request: pb.RecallRequest, context: grpc.ServicerContext) -> pb.RecallReply:
        """Import what the caller knows of a plan."""
        site = self._site(context)
        self.coordinator.recall(site, read_recalled(request, self.pieces.of(site)))
        return pb.RecallReply()

    def Rejoin(self, request: pb.RejoinRequest, context: grpc.ServicerContext) -> pb.RejoinReply:
        """Take the caller back, who has shown all of its ledger."""
        self.coordinator.rejoin(self._site(context), REJOINING.read(request))
        return pb.RejoinReply()

    def ReturnChain(self, request: pb.ReturnChainRequest, context: grpc.ServicerContext) -> pb.ReturnChainReply:
        """Give back entries of the caller's own ledger."""
        after = RETURN_AFTER.read(request)
        chain = self.coordinator.returning.chain(self._site(context), after=after, most=MAX_SHOWN)
        return RETURNED_CHAIN.write(next(pages_of(chain), ()))

    def ReturnPlan(self, request: pb.ReturnPlanRequest, context: grpc.ServicerContext) -> pb.ReturnPlanReply:
        """Give back a plan and a piece of its release."""
        wanted, returning = WANTED.read(request), self.coordinator.returning
        task, piece = returning.plan(
            self._site(context), wanted.plan_id, first_byte=wanted.first_byte, most=PIECE_BYTES
        )
        return RETURNED.write(Returned(task, piece))

    def ListReserved(self, request: pb.ListReservedRequest, context: grpc.ServicerContext) -> pb.ListReservedReply:
        """List what was charged at the caller."""
        after = LIST_AFTER.read(request)
        return RESERVED.write(self.coordinator.returning.reserved(self._site(context), after=after, most=MAX_SHOWN))

    def ClaimTask(self, request: pb.ClaimTaskRequest, context: grpc.ServicerContext) -> pb.ClaimTaskReply:
        """Wait for an open task of the caller and hand it out."""
        site = self._site(context)
        poll = POLL.read(request)
        with self.room.seat(site, wait_seconds=poll.wait_seconds) as seat:
            task = self.coordinator.claim(site, wait_seconds=seat.wait_seconds, receipt=poll.receipt)
        return CLAIM.write(Claim(task, seat.pause_seconds))

    def PutChunk(self, request: pb.PutChunkRequest, context: grpc.ServicerContext) -> pb.PutChunkReply:
        """Hold a piece of a large release."""
        self.pieces.put(self._site(context), CHUNK.read(request))
        return pb.PutChunkReply()

    def SubmitRelease(self, request: pb.SubmitReleaseRequest, context: grpc.ServicerContext) -> pb.SubmitReleaseReply:
        """Take the caller's answer and give a receipt."""
        site = self._site(context)
        submission = read_submission(request.submission, self.pieces.of(site))
        return RECEIPT.write(self.coordinator.submit(site, submission))

    def RenewCertificate(
        self, request: pb.RenewCertificateRequest, context: grpc.ServicerContext
    ) -> pb.RenewCertificateReply:
        """A new certificate for the key the caller enrolled with, and for no other."""
        site = self._site(context)
        key = request_key(RENEWAL.read(request))
        if tls_key_hash(key) != holder(caller_certificate(context)).tls_key:
            raise NotAuthorized("a certificate is renewed for the key it was issued for.")
        renewed = self.authority.issue(key, role=Role.SITE, name=site, life=self.certificate_life, now=_now())
        self._note_certificate(site, renewed)
        return RENEWED.write(renewed)

    def _note_certificate(self, site: str, certificate: bytes) -> None:
        ends = validity(load_certificate(certificate, name="the certificate of a caller"))[1]
        self.presence.note_certificate(site, ends.timestamp())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
