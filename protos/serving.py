"""How the coordinator serves: mutual TLS, bounded messages, and workers that waiting calls cannot use up.

`Translating` stands before every servicer method and turns whatever it raises into a status of the table.

A long poll holds a worker while it waits. The room has fewer seats than there are workers, so some are
always free for a submission; a poll that finds no seat is answered at once and asked to pause.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message

from protos.channels import SERVING, SERVING_STRANGERS
from protos.statuses import abort
from protos.tls import Presented, serving_credentials
from wardround.federation.errors import ConfigurationMistaken, FederationError, InvariantBroken, MalformedMessage

PAUSE_SECONDS = 0.5
# The share of the seats that one caller may take, whatever it sends.
_CALLER_SHARE = 4
log = logging.getLogger("wardround.wire")
_Method: TypeAlias = "grpc.RpcMethodHandler[Message, Message]"
_SPARE_WORKERS = 16
# Threads are made when they are needed, so room for a consortium that grows while it serves costs nothing.
_FEWEST_CALLERS = 64
_QUEUE_PER_WORKER = 2


@dataclass(frozen=True, slots=True)
class Seat:
    """How long a poll may wait, and how long its caller should stay away when it may not."""

    wait_seconds: float
    pause_seconds: float


class WaitingRoom:
    """Seats for waiting calls."""

    def __init__(self, *, seats: int) -> None:
        self.seats = seats
        self._per_caller = max(1, seats // _CALLER_SHARE)
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """How many calls wait now."""
        with self._lock:
            return self._taken.total()

    @contextmanager
    def seat(self, caller: str, *, wait_seconds: float) -> Iterator[Seat]:
        """A seat for `wait_seconds`, or one on which nobody waits when the room is full."""
        if wait_seconds <= 0.0:
            yield Seat(0.0, 0.0)
            return
        if not self._take(caller):
            yield Seat(0.0, PAUSE_SECONDS)
            return
        try:
            yield Seat(wait_seconds, 0.0)
        finally:
            self._leave(caller)

    def _take(self, caller: str) -> bool:
        with self._lock:
            if self._taken.total() >= self.seats or self._taken[caller] >= self._per_caller:
                return False
            self._taken[caller] += 1
            return True

    def _leave(self, caller: str) -> None:
        with self._lock:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


def workers_for(callers: int) -> int:
    """How many workers serve this many sites and analysts: each may wait and act at once, and some to spare."""
    return 2 * max(callers, _FEWEST_CALLERS) + _SPARE_WORKERS


def waiting_room_for(callers: int) -> WaitingRoom:
    """A room with a seat for each caller, and as many workers outside it."""
    return WaitingRoom(seats=workers_for(callers) // 2)


@dataclass(frozen=True, slots=True)
class Serving:
    """A service that is listening; `port` is the one chosen when the address asked for any."""

    port: int
    _grpc: grpc.Server

    def stop(self, *, grace_seconds: float) -> None:
        """Take no new calls, let running ones finish for `grace_seconds`, then end them."""
        self._grpc.stop(grace_seconds).wait()

    def wait(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until the service has stopped; True when the time passed first."""
        return self._grpc.wait_for_termination(timeout_seconds)


def serve(
    address: str,
    presented: Presented,
    register: Callable[[grpc.Server], None],
    *,
    callers: int,
    callers_have_certificates: bool = True,
    broken: Callable[[InvariantBroken], None],
) -> Serving:
    """Listen at `host:port` with the services that `register` adds.

    Where callers have no certificates anybody may call, so there are few workers and messages are small.
    """
    workers = workers_for(callers) if callers_have_certificates else _SPARE_WORKERS
    service = grpc.server(
        ThreadPoolExecutor(max_workers=workers, thread_name_prefix="wire"),
        interceptors=[Translating(broken)],
        options=SERVING if callers_have_certificates else SERVING_STRANGERS,
        maximum_concurrent_rpcs=_QUEUE_PER_WORKER * workers,
        compression=grpc.Compression.NoCompression,
    )
    register(service)
    credentials = serving_credentials(presented, callers_have_certificates=callers_have_certificates)
    try:
        port = service.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise ConfigurationMistaken(f"cannot listen on {address}; is another process using the port?")
    service.start()
    return Serving(port, service)


@dataclass(frozen=True, slots=True)
class Translating(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Turns every exception of a servicer into a status of the table.

    `broken` is told of a broken invariant, so that the process can stop; the caller hears a fixed sentence.
    """

    broken: Callable[[InvariantBroken], None]

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], _Method | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Method | None:
        """The same method, guarded."""
        method = continuation(handler_call_details)
        if method is None or method.unary_unary is None or method.request_deserializer is None:
            return method
        behaviour, parse, name = method.unary_unary, method.request_deserializer, handler_call_details.method

        def answer(request: bytes, context: grpc.ServicerContext) -> Message:
            try:
                return behaviour(_parsed(parse, request), context)
            except InvariantBroken as error:
                log.critical("%s: %s %s", name, error.code, error.private)
                self.broken(error)
                abort(context, error)
            except FederationError as error:
                log.info("%s: %s %s", name, error.code, error.private)
                abort(context, error)
            except Exception:
                log.exception("%s: unexpected", name)
                abort(context, FederationError())

        # gRPC would answer bytes it cannot parse by itself, with a traceback in the log and an opaque
        # status; so the bytes come here as they are.
        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=None, response_serializer=method.response_serializer
        )


def _parsed(parse: Callable[[bytes], Message], request: bytes) -> Message:
    try:
        return parse(request)
    except DecodeError:
        raise MalformedMessage(private="not the request of this call") from None
