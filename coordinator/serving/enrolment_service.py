"""The one call a hospital makes before it has a certificate, on a port of its own."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import grpc

from coordinator.members.authority import Authority
from coordinator.members.enrolment import enrol_site
from coordinator.store.ledger import Ledger
from protos._generated import enrolment_service_pb2 as pb
from protos._generated.enrolment_service_pb2_grpc import EnrolmentServiceServicer
from protos.words import ENROLLED, ENROLMENT


@dataclass(frozen=True, slots=True)
class EnrolmentService(EnrolmentServiceServicer):
    """Invitations into places on the roster."""

    ledger: Ledger
    authority: Authority
    certificate_life: datetime.timedelta

    def Enrol(self, request: pb.EnrolRequest, context: grpc.ServicerContext) -> pb.EnrolReply:
        """Use an invitation, once."""
        enrolment = ENROLMENT.read(request)
        now = datetime.datetime.now(datetime.UTC)
        return ENROLLED.write(enrol_site(self.ledger, self.authority, enrolment, life=self.certificate_life, now=now))
