"""X.509 in the few forms wardround uses: P-256 keys, requests, and reading a certificate.

TLS keys are separate from Ed25519 identities (TLS stacks reject Ed25519 certificates) and are bound to
them at enrolment. Who a certificate is for stands in a URI, `wardround:site/NAME` or
`wardround:analyst/NAME`, never in free text.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from wardround.federation.errors import ConfigurationMistaken, MalformedMessage, NotAuthorized


class Role(StrEnum):
    """Whom a certificate speaks for."""

    COORDINATOR = "coordinator"
    SITE = "site"
    ANALYST = "analyst"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a certificate: a role, a name, and the hash of the TLS key it was issued for."""

    role: Role
    name: str
    tls_key: str


def new_tls_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key as PEM; write it with `write_private` only."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_from_pem(pem: bytes, *, name: str) -> ec.EllipticCurvePrivateKey:
    """The P-256 key in a PEM text called `name` in messages."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationMistaken(f"{name} does not hold a P-256 key; restore it from its backup.")
    return key


def tls_key_hash(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of the public key, in hexadecimal: what the roster remembers."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def subject(common_name: str) -> x509.Name:
    """A subject that says only the name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def make_request(key: ec.EllipticCurvePrivateKey, common_name: str) -> bytes:
    """A certificate request, proving possession of the key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(common_name))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What a certificate or a request that others wrote may be instead of one."""


def request_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a sound certificate request; nothing else in it is believed."""
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        sound = request.is_signature_valid
    except _UNREADABLE:
        raise MalformedMessage("a certificate request cannot be read.") from None
    if not sound or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise MalformedMessage("a certificate request must be signed by its own P-256 key.")
    return key


def load_certificate(pem: bytes, *, name: str) -> x509.Certificate:
    """The certificate in a PEM text called `name` in messages."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except _UNREADABLE:
        raise ConfigurationMistaken(f"{name} does not hold a certificate; restore it from its backup.") from None


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether `authority` signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def validity(certificate: x509.Certificate) -> tuple[datetime.datetime, datetime.datetime]:
    """From when until when a certificate holds, in UTC."""
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def holder_uri(role: Role, name: str) -> str:
    """How a certificate names its holder."""
    return f"wardround:{role.value}/{name}"


@functools.lru_cache(maxsize=4096)
def holder(pem: bytes) -> Holder:
    """Whom the certificate of a caller speaks for; `NotAuthorized` when it does not say.

    The same bytes say the same for ever, and are read several times for each call.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        key = certificate.public_key()
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        role, _, name = uri.removeprefix("wardround:").partition("/")
        if uri.startswith("wardround:") and name and isinstance(key, ec.EllipticCurvePublicKey):
            return Holder(Role(role), name, tls_key_hash(key))
    except (ValueError, x509.ExtensionNotFound):
        pass  # Answered below: every way of not saying who one is gets the same sentence.
    raise NotAuthorized("the certificate does not say whom it speaks for.")
