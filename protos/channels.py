"""How a site or an analyst reaches the coordinator: mutual TLS, also through an HTTP CONNECT proxy.

A channel does not wait for a peer that is away: the call fails with `PeerUnreachable`, and whoever called
knows best when to call again.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import grpc

from protos.channel_limits import CALLING, Options
from protos.tls import TlsKeys, calling_credentials, pinned_credentials
from wardround.federation.errors import ConfigurationMistaken


def channel(address: str, keys: TlsKeys, *, proxy: str | None = None) -> grpc.Channel:
    """A channel over mutual TLS to a `host:port`."""
    return _open(address, calling_credentials(keys), proxy)


def enrolment_channel(address: str, *, authority: bytes, proxy: str | None = None) -> grpc.Channel:
    """A channel for a caller without a certificate, to a peer that `authority` vouches for."""
    return _open(address, pinned_credentials(authority), proxy)


def _open(address: str, credentials: grpc.ChannelCredentials, proxy: str | None) -> grpc.Channel:
    options: Options = list(CALLING)
    if proxy is not None:
        options.append(("grpc.http_proxy", proxy_uri(proxy)))
    # Without a configured proxy gRPC reads https_proxy and no_proxy, as a hospital's machines expect.
    return grpc.secure_channel(address, credentials, options=options, compression=grpc.Compression.NoCompression)


def proxy_uri(proxy: str) -> str:
    """The proxy as gRPC wants it, from `host:port` or `http://user:password@host:port`."""
    uri = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(uri)
        whole = parts.path in ("", "/") and not any(character.isspace() for character in uri)
        sound = whole and parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        sound = False
    if not sound:
        # The proxy may carry a password, so the sentence does not repeat it.
        raise ConfigurationMistaken(
            "the proxy must be host:port or http://host:port; a proxy reached over https is not supported."
        )
    return uri.rstrip("/")
