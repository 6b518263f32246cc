"""The consortium's certificate authority: short-lived certificates for sites, analysts and itself.

Revocation does not wait for a certificate to expire: every call is checked against the roster. Short
lives only bound how long a key stolen together with its place on the roster would serve.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from wardround.federation.private_files import make_private_folder, write_private
from wardround.federation.strict_toml import read_text
from wardround.federation.trust.certificates import (
    Role,
    holder_uri,
    key_from_pem,
    key_to_pem,
    load_certificate,
    new_tls_key,
    subject,
)

# A certificate begins a little before now, so that a hospital whose clock lags can use it at once.
CLOCK_LAG = datetime.timedelta(minutes=10)
AUTHORITY_LIFE = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True, repr=False)
class Authority:
    """The authority's key and certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, folder: Path, *, name: str, now: datetime.datetime) -> Authority:
        """A new authority, written to `folder`."""
        key = new_tls_key()
        certificate = (
            _builder(subject(f"wardround authority {name}"), key.public_key(), now, AUTHORITY_LIFE)
            .issuer_name(subject(f"wardround authority {name}"))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        make_private_folder(folder)
        write_private(folder / "key.pem", key_to_pem(key))
        write_private(folder / "certificate.pem", certificate.public_bytes(Encoding.PEM))
        return cls(key, certificate)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """The authority in `folder`."""
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        return cls(
            key_from_pem(read_text(key).encode(), name=str(key)),
            load_certificate(read_text(certificate).encode(), name=str(certificate)),
        )

    @property
    def pem(self) -> str:
        """The authority's certificate, which every peer pins."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        key: ec.EllipticCurvePublicKey,
        *,
        role: Role,
        name: str,
        life: datetime.timedelta,
        now: datetime.datetime,
        hosts: Iterable[str] = (),
    ) -> bytes:
        """A certificate for `key` that speaks for `name`, as PEM."""
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(holder_uri(role, name))]
        names.extend(_host(host) for host in hosts)
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if role is Role.COORDINATOR else ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = (
            _builder(subject(name), key, now, life)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM)


def _builder(
    name: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_LAG)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
