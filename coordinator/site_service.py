"""What sites may call: each method decodes, calls one function, encodes. The caller is checked every time."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import grpc

from coordinator.authority import Authority
from coordinator.authorization import authorize
from coordinator.federation import Coordinator
from protos._generated import site_service_pb2 as pb
from protos._generated.site_service_pb2_grpc import SiteServiceServicer
from protos.codec_site import (
    Claim,
    chunk_from_message,
    claim_request_from_message,
    claim_to_message,
    receipt_to_message,
    submit_from_message,
)
from protos.codec_trust import greeting_to_message, renewal_from_message, renewed_to_message
from protos.pieces import PieceStore
from protos.tls import caller_certificate
from protos.waiting import WaitingRoom
from wardround.federation.certificates import Role, holder, request_key, tls_key_hash
from wardround.federation.enrolment import Greeting
from wardround.federation.errors import NotAuthorized

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class SiteService(SiteServiceServicer):
    """The site's conversation, over a coordinator."""

    coordinator: Coordinator
    authority: Authority
    pieces: PieceStore
    room: WaitingRoom
    certificate_life: datetime.timedelta

    def _site(self, context: grpc.ServicerContext) -> str:
        return authorize(self.coordinator.ledger, caller_certificate(context), Role.SITE)

    def Greet(self, request: pb.GreetRequest, context: grpc.ServicerContext) -> pb.GreetReply:
        """Say who the caller is here, which study this is, and what time it is."""
        site = self._site(context)
        now = round(_now().timestamp() * MILLISECONDS)
        return greeting_to_message(Greeting(site, self.coordinator.study.study_hash, now))

    def ClaimTask(self, request: pb.ClaimTaskRequest, context: grpc.ServicerContext) -> pb.ClaimTaskReply:
        """Wait for an open task of the caller and hand it out."""
        site = self._site(context)
        with self.room.seat(site, wait_seconds=claim_request_from_message(request)) as seat:
            task = self.coordinator.claim(site, wait_seconds=seat.wait_seconds)
        return claim_to_message(Claim(task, seat.pause_seconds))

    def PutChunk(self, request: pb.PutChunkRequest, context: grpc.ServicerContext) -> pb.PutChunkReply:
        """Hold a piece of a large release."""
        self.pieces.put(self._site(context), chunk_from_message(request))
        return pb.PutChunkReply()

    def SubmitRelease(self, request: pb.SubmitReleaseRequest, context: grpc.ServicerContext) -> pb.SubmitReleaseReply:
        """Take the caller's answer and give a receipt."""
        site = self._site(context)
        submission = submit_from_message(request, self.pieces.of(site))
        return receipt_to_message(self.coordinator.submit(site, submission))

    def RenewCertificate(
        self, request: pb.RenewCertificateRequest, context: grpc.ServicerContext
    ) -> pb.RenewCertificateReply:
        """A new certificate for the key the caller enrolled with, and for no other."""
        site = self._site(context)
        key = request_key(renewal_from_message(request))
        if tls_key_hash(key) != holder(caller_certificate(context)).tls_key:
            msg = "a certificate is renewed for the key it was issued for."
            raise NotAuthorized(msg)
        renewed = self.authority.issue(key, role=Role.SITE, name=site, life=self.certificate_life, now=_now())
        return renewed_to_message(renewed)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
