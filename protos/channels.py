"""How a site or an analyst reaches the coordinator: mutual TLS, also through an HTTP CONNECT proxy.

A channel does not wait for a peer that is away: the call fails with `PeerUnreachable`, and whoever called
knows best when to call again. The caps and heartbeats that both ends agree on stand here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import grpc

from protos.tls import TlsKeys, calling_credentials, pinned_credentials
from protos.turns import CALLS_OF_ONE_NAME
from wardround.federation.errors import ConfigurationMistaken

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# Whoever has no certificate yet can only enrol, and a request to enrol is small.
MAX_STRANGER_MESSAGE_BYTES = 64 * 1024
MAX_METADATA_BYTES = 16 * 1024
# Twice what one name may have under way: a call counts here a moment longer than it takes, and HTTP/2 itself, without a
# sentence, refuses one too many.
MAX_CALLS_PER_CONNECTION = 2 * CALLS_OF_ONE_NAME
# Enrolling is one short call: a stranger's connection ends soon after it.
STRANGER_IDLE_SECONDS = 10
STRANGER_AGE_SECONDS = 60

# A hospital's firewall forgets a silent connection after a minute or so; a heartbeat each half minute keeps
# it, and finds out within ten seconds when it is gone.
KEEPALIVE_MILLISECONDS = 30_000
KEEPALIVE_TIMEOUT_MILLISECONDS = 10_000
_SHORTEST_PING_MILLISECONDS = 10_000
_MILLISECONDS = 1000

# One bit per algorithm; only the first, "identity", is on. A few compressed bytes could otherwise cost the
# reader four megabytes, and the size of a compressed message tells something about its content.
_NO_COMPRESSION = 1

Options = list[tuple[str, int | str]]

_BOTH: Options = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
    # No heartbeat is sent beside a ping that is under way, and gRPC itself would wait a minute for that one.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION),
]

_SERVING: Options = [
    *_BOTH,
    ("grpc.http2.min_ping_interval_without_data_ms", _SHORTEST_PING_MILLISECONDS),
    ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
    # Two coordinators on one port would each see half of the calls.
    ("grpc.so_reuseport", 0),
]

_SERVING_STRANGERS: Options = [
    *((key, value) for key, value in _SERVING if key != "grpc.max_receive_message_length"),
    ("grpc.max_receive_message_length", MAX_STRANGER_MESSAGE_BYTES),
    ("grpc.max_connection_idle_ms", STRANGER_IDLE_SECONDS * _MILLISECONDS),
    ("grpc.max_connection_age_ms", STRANGER_AGE_SECONDS * _MILLISECONDS),
    ("grpc.max_connection_age_grace_ms", STRANGER_AGE_SECONDS * _MILLISECONDS),
]

CALLING: Options = [
    *_BOTH,
    # Whether to call again is decided above, where it is known what has been decided.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # Shorter than the pauses of whoever calls again: a call should find the channel ready to dial.
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Channels with different keys must never share a connection.
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a service listens, for whom, how many connections it has at most, and how soon each must be made.

    Where strangers call, callers show no certificate: messages are small and connections are short.
    """

    address: str
    connections: int
    handshake_seconds: float
    strangers: bool = False


def serving_options(listening: Listening) -> Options:
    """What gRPC is told about a port. A connection too many is accepted and closed: it costs a moment."""
    return [
        *(_SERVING_STRANGERS if listening.strangers else _SERVING),
        ("grpc.max_allowed_incoming_connections", listening.connections),
        ("grpc.server_handshake_timeout_ms", round(listening.handshake_seconds * _MILLISECONDS)),
    ]


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
