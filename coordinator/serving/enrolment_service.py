"""Who decides about enrolment: here, beside the ledger, and never in the process that strangers reach."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from coordinator.members.authority import Authority
from coordinator.members.enrolment import enrol_site
from coordinator.store.ledger import Ledger
from protos._generated.enrolment_service_pb2 import EnrolRequest
from protos.words import ENROLLED, ENROLMENT
from wardround.federation.errors import MalformedMessage


@dataclass(frozen=True, slots=True)
class EnrolmentService:
    """Invitations into places on the roster."""

    ledger: Ledger
    authority: Authority
    certificate_life: datetime.timedelta

    def enrol(self, request: bytes) -> bytes:
        """Use the invitation in a forwarded request, once, and write the reply."""
        try:
            enrolment = ENROLMENT.read(EnrolRequest.FromString(request))
        except DecodeError:
            raise MalformedMessage(private="not a request to enrol") from None
        now = datetime.datetime.now(datetime.UTC)
        certificate = enrol_site(self.ledger, self.authority, enrolment, life=self.certificate_life, now=now)
        return ENROLLED.write(certificate).SerializeToString()
