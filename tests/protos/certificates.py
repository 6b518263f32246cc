"""Certificates for the tests: one authority of our own, and every way a certificate can be wrong."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from protos.tls import TlsKeys

DAY = datetime.timedelta(days=1)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass
class TestAuthority:
    """Signs P-256 certificates that are valid from one day ago until `days` from now."""

    __test__ = False

    name: str = "authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        builder = self._builder(self.name, self.key.public_key(), days=10)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = builder.add_extension(constraints, critical=True).sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, *, days: float = 1, address: str = "127.0.0.1") -> TlsKeys:
        """Keys for `name`, also usable by whoever listens at `address`."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ipaddress.ip_address(address)),
            x509.UniformResourceIdentifier(f"wardround:site/{name}"),
        ]
        builder = self._builder(name, key.public_key(), days=days)
        certificate = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(
            self.key, hashes.SHA256()
        )
        return TlsKeys(_pem(key), certificate.public_bytes(Encoding.PEM), self.pem)

    def _builder(self, name: str, key: ec.EllipticCurvePublicKey, *, days: float) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_subject(name))
            .issuer_name(_subject(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 5 * DAY)
            .not_valid_after(now + days * DAY)
        )
