"""Enrolment, certificates and greetings, as messages and back.

A certificate or a request is checked for its length and frame only; what is inside is read by
`wardround.federation.certificates`, which believes nothing but the key.
"""

from __future__ import annotations

from protos import checks
from protos._generated import enrolment_service_pb2 as enrolment_pb
from protos._generated import site_service_pb2 as site_pb
from protos.codec_plan import SIGNATURE_BYTES
from wardround.federation.enrolment import Enrolment, Greeting
from wardround.federation.identity import PublicIdentity

MAX_PEM = 16 * 1024
MAX_DATASET = 256
MAX_PATIENTS = 10**10
SECRET_BYTES = 32


def greeting_to_message(greeting: Greeting) -> site_pb.GreetReply:
    """A greeting as a message."""
    return site_pb.GreetReply(
        site=greeting.site, study_hash=greeting.study_hash, unix_milliseconds=greeting.unix_milliseconds
    )


def greeting_from_message(message: site_pb.GreetReply) -> Greeting:
    """The greeting in a message."""
    return Greeting(
        site=checks.name(message.site, "the site's name"),
        study_hash=checks.digest(message.study_hash, "a study's hash"),
        unix_milliseconds=checks.whole(message.unix_milliseconds, "the time"),
    )


def renewal_to_message(certificate_request: bytes) -> site_pb.RenewCertificateRequest:
    """A request for a new certificate as a message."""
    return site_pb.RenewCertificateRequest(certificate_request=certificate_request)


def renewal_from_message(message: site_pb.RenewCertificateRequest) -> bytes:
    """The certificate request, in PEM, in a message."""
    return _pem(message.certificate_request, "a certificate request")


def renewed_to_message(certificate: bytes) -> site_pb.RenewCertificateReply:
    """A new certificate as a message."""
    return site_pb.RenewCertificateReply(certificate=certificate)


def renewed_from_message(message: site_pb.RenewCertificateReply) -> bytes:
    """The new certificate, in PEM, in a message."""
    return _pem(message.certificate, "a certificate")


def enrolment_to_message(enrolment: Enrolment) -> enrolment_pb.EnrolRequest:
    """A request to enrol as a message."""
    return enrolment_pb.EnrolRequest(
        secret=enrolment.secret,
        site=enrolment.site,
        identity_key=enrolment.identity.key,
        study_hash=enrolment.study_hash,
        study_signature=enrolment.study_signature,
        certificate_request=enrolment.certificate_request,
        patients=enrolment.patients,
        dataset=enrolment.dataset,
    )


def enrolment_from_message(message: enrolment_pb.EnrolRequest) -> Enrolment:
    """The request to enrol in a message; its secret and signature are for the coordinator to judge."""
    return Enrolment(
        secret=checks.size(message.secret, "an invitation's secret", exactly=SECRET_BYTES),
        site=checks.name(message.site, "the site's name"),
        identity=PublicIdentity(checks.digest(message.identity_key, "an identity key")),
        study_hash=checks.digest(message.study_hash, "a study's hash"),
        study_signature=checks.size(message.study_signature, "a signature", exactly=SIGNATURE_BYTES),
        certificate_request=_pem(message.certificate_request, "a certificate request"),
        patients=checks.whole(message.patients, "the number of patients", lower=1, upper=MAX_PATIENTS),
        dataset=checks.text(message.dataset, "a dataset's name", longest=MAX_DATASET),
    )


def enrolled_to_message(certificate: bytes) -> enrolment_pb.EnrolReply:
    """The first certificate of a site as a message."""
    return enrolment_pb.EnrolReply(certificate=certificate)


def enrolled_from_message(message: enrolment_pb.EnrolReply) -> bytes:
    """The site's certificate, in PEM, in a message."""
    return _pem(message.certificate, "a certificate")


def _pem(value: bytes, field: str) -> bytes:
    checks.require(len(value) <= MAX_PEM, f"{field} is too long.")
    checks.require(value.startswith(b"-----BEGIN ") and value.isascii(), f"{field} is not PEM.")
    return value
