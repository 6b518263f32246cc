"""What a process shows and whom it believes on a TLS connection, and who called.

Only TLS keys and certificates are here; who may do what is for the coordinator's roster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from wardround.federation.errors import NotAuthorized


@dataclass(frozen=True, slots=True, repr=False)
class TlsKeys:
    """A private key, its certificate (with any chain) and the authority that is believed, all PEM."""

    key: bytes
    certificate: bytes
    authority: bytes


class Presented:
    """The keys a serving process shows now; they can be replaced while it serves."""

    def __init__(self, keys: TlsKeys) -> None:
        # One reference, replaced as a whole: a handshake sees the old keys or the new ones, never a mixture.
        self._keys = keys

    def replace(self, keys: TlsKeys) -> None:
        """Show these keys from the next connection on."""
        self._keys = keys

    @property
    def keys(self) -> TlsKeys:
        """The keys shown now."""
        return self._keys


def serving_credentials(presented: Presented, *, callers_have_certificates: bool) -> grpc.ServerCredentials:
    """Credentials that follow `presented`; with certificates, a caller without one is turned away by TLS."""
    renewed = renewals(presented)

    def latest() -> grpc.ServerCertificateConfiguration | None:
        keys = renewed()
        return None if keys is None else _configuration(keys, callers_have_certificates=callers_have_certificates)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(presented.keys, callers_have_certificates=callers_have_certificates),
        latest,  # type: ignore[arg-type]  # None is allowed; the stubs forget it
        require_client_authentication=callers_have_certificates,
    )


def renewals(presented: Presented) -> Callable[[], TlsKeys | None]:
    """What gRPC asks at every handshake: the new keys, once, or None as long as they are the same.

    What gRPC is given replaces what handshakes on its other threads are using at that moment, and it does
    not survive that when many begin at once. So it is told of new keys only.
    """
    shown = presented.keys

    def renewed() -> TlsKeys | None:
        nonlocal shown
        if presented.keys is shown:
            return None
        shown = presented.keys
        return shown

    return renewed


def _configuration(keys: TlsKeys, *, callers_have_certificates: bool) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(keys.key, keys.certificate)],
        root_certificates=keys.authority if callers_have_certificates else None,
    )


def calling_credentials(keys: TlsKeys) -> grpc.ChannelCredentials:
    """Mutual TLS: believe the authority, show the certificate."""
    return grpc.ssl_channel_credentials(
        root_certificates=keys.authority, private_key=keys.key, certificate_chain=keys.certificate
    )


def pinned_credentials(authority: bytes) -> grpc.ChannelCredentials:
    """TLS for a caller that has no certificate yet and believes one authority only."""
    return grpc.ssl_channel_credentials(root_certificates=authority)


def caller_certificate(context: grpc.ServicerContext) -> bytes:
    """The certificate, in PEM, that the caller proved to hold; `certificates.holder` says whose it is."""
    found = context.auth_context().get("x509_pem_cert")
    if not found:
        raise NotAuthorized(private="no x509_pem_cert")
    return bytes(found[0])
