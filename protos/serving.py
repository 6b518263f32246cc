"""How the coordinator serves: mutual TLS, bounded messages and connections, and workers that nobody can use up.

`Translating` stands before every servicer method: it finds out who calls, gives the call a slot and a turn, and turns
whatever is raised into a status of the table.

A long poll holds a worker while it waits, and no turn. The room has fewer seats than there are workers, so some are
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
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from protos.channels import Listening, serving_options
from protos.statuses import Told, abort, told_of
from protos.tls import Presented, caller_certificate, serving_credentials
from protos.turns import CALLS_OF_ONE_NAME, OWN_SLOTS, Turns
from wardround.federation.errors import (
    ConfigurationMistaken,
    FederationError,
    InvariantBroken,
    MalformedMessage,
    PeerUnreachable,
)
from wardround.federation.trust.certificates import holder

PAUSE_SECONDS = 0.5
# The share of the seats that one caller may take, whatever it sends; never so many that it could do nothing but wait.
_CALLER_SHARE = 4
_MOST_SEATS_OF_ONE_CALLER = CALLS_OF_ONE_NAME // 2
log = logging.getLogger("wardround.wire")
_Method: TypeAlias = "grpc.RpcMethodHandler[Message, Message]"
_Outcome = TypeVar("_Outcome")
Broken: TypeAlias = Callable[[InvariantBroken], None]
# Beyond the slots: they find out who calls, and tell whoever finds no slot.
_SPARE_WORKERS = 16
# Bounds memory alone: whom to turn away first is for the slots and the turns, which know names.
_MOST_CALLS = 4096


@dataclass(frozen=True, slots=True)
class Seat:
    """How long a poll may wait, and how long its caller should stay away when it may not."""

    wait_seconds: float
    pause_seconds: float


class WaitingRoom:
    """Seats for waiting calls."""

    def __init__(self, *, seats: int) -> None:
        self.seats = seats
        self._per_caller = max(1, min(seats // _CALLER_SHARE, _MOST_SEATS_OF_ONE_CALLER))
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


def workers_for(turns: Turns) -> int:
    """How many workers serve: one for each slot inside, and some at the door."""
    return turns.slots + _SPARE_WORKERS


def waiting_room_for(turns: Turns) -> WaitingRoom:
    """A room with a seat for each name, and as many slots outside it."""
    return WaitingRoom(seats=turns.slots // OWN_SLOTS)


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
    listening: Listening,
    presented: Presented,
    register: Callable[[grpc.Server], None],
    *,
    turns: Turns,
    broken: Broken,
) -> Serving:
    """Listen with the services that `register` adds."""
    service = grpc.server(
        ThreadPoolExecutor(max_workers=workers_for(turns), thread_name_prefix="wire"),
        interceptors=[Translating(turns, _stranger if listening.strangers else _member, broken)],
        options=serving_options(listening),
        maximum_concurrent_rpcs=_MOST_CALLS,
        compression=grpc.Compression.NoCompression,
    )
    register(service)
    credentials = serving_credentials(presented, callers_have_certificates=not listening.strangers)
    try:
        port = service.add_secure_port(listening.address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise ConfigurationMistaken(f"cannot listen on {listening.address}; is another process using the port?")
    service.start()
    return Serving(port, service)


def _member(context: grpc.ServicerContext) -> str:
    """The name on the caller's certificate; whether it may do anything is for the roster."""
    return holder(caller_certificate(context)).name


def _stranger(context: grpc.ServicerContext) -> str:
    """The address, without the port, of a caller that has no certificate."""
    return context.peer().rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Translating(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Gives every call a slot and a turn, and turns every exception of a servicer into a status of the table.

    `broken` is told of a broken invariant, so that the process can stop; the caller hears a fixed sentence.
    """

    turns: Turns
    named: Callable[[grpc.ServicerContext], str]
    broken: Broken

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

        def work(requests: Iterator[bytes], context: grpc.ServicerContext) -> Message:
            caller = self.named(context)
            with self.turns.slot(caller), self.turns.turn(caller):
                with self.turns.reading():
                    request = _parsed(parse, requests)
                return behaviour(request, context)

        def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Message:
            outcome = outcome_of(lambda: work(requests, context), call=name, broken=self.broken)
            if isinstance(outcome, Told):
                abort(context, outcome)
            return outcome

        # As if a stream of requests came, although it is one: so a worker is not held by a caller that begins a call
        # and never sends its request, unless that caller has a slot to wait at. And the bytes come here as they are:
        # those it cannot parse gRPC would answer by itself, with a traceback in the log and an opaque status.
        return grpc.stream_unary_rpc_method_handler(
            answer, request_deserializer=None, response_serializer=method.response_serializer
        )


def outcome_of(work: Callable[[], _Outcome], *, call: str, broken: Broken) -> _Outcome | Told:
    """What `work` returns, or what its caller is told of an error; whatever is raised is logged, and ends here."""
    try:
        return work()
    except InvariantBroken as error:
        log.critical("%s: %s %s", call, error.code, error.private)
        broken(error)
        return told_of(error)
    except PeerUnreachable as error:
        # We are stopping or have too many calls, and say so ourselves: not once for each of them.
        return told_of(error)
    except FederationError as error:
        log.info("%s: %s %s", call, error.code, error.private)
        # An error that is kept, as that of a round is, would keep this call.
        return told_of(error.with_traceback(None))
    except grpc.RpcError:
        # gRPC's own way to say that the caller hung up before its request was read: nobody is left to be told.
        raise
    except Exception:
        log.exception("%s: unexpected", call)
        return told_of(FederationError())


def _parsed(parse: Callable[[bytes], Message], requests: Iterator[bytes]) -> Message:
    try:
        return parse(next(requests))
    except (DecodeError, StopIteration):
        raise MalformedMessage(private="not the request of this call") from None
