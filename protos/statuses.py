"""One table: each error's gRPC status, and the way back.

What leaves is the error's code, its one public sentence and, for a budget, the numbers. What arrives is
believed only as far as it goes: a peer can say that it refused, never that *we* broke an invariant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import grpc

from protos._generated import fault_pb2 as pb
from protos.codec import parse
from wardround.federation import errors
from wardround.federation.errors import (
    BudgetExceeded,
    FederationError,
    InvariantBroken,
    MalformedMessage,
    NotAuthorized,
)
from wardround.federation.limits import refuse, word_of
from wardround.federation.plain_text import escaped

FAULT_KEY = "wardround-fault-bin"
# Trailing metadata has little room: gRPC refuses a call whose metadata is above some kilobytes.
MAX_MESSAGE_CHARACTERS = 1000
_CODE = word_of("an error's code")

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")

STATUS: Mapping[type[FederationError], grpc.StatusCode] = {
    errors.FederationError: grpc.StatusCode.INTERNAL,
    errors.Mistaken: grpc.StatusCode.INVALID_ARGUMENT,
    errors.QueryMistaken: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ConfigurationMistaken: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Refused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotAuthorized: grpc.StatusCode.PERMISSION_DENIED,
    errors.PlanRefused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SchemaRefused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SiteFrozen: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooFewSites: grpc.StatusCode.FAILED_PRECONDITION,
    errors.BudgetExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.PeerUnreachable: grpc.StatusCode.UNAVAILABLE,
    errors.LedgerBusy: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlinePassed: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.AwaitingApproval: grpc.StatusCode.UNAVAILABLE,
    errors.SitesAway: grpc.StatusCode.UNAVAILABLE,
    errors.SourceFailed: grpc.StatusCode.UNAVAILABLE,
    errors.SourceAway: grpc.StatusCode.UNAVAILABLE,
    errors.ProtocolViolation: grpc.StatusCode.INVALID_ARGUMENT,
    errors.MalformedMessage: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownTask: grpc.StatusCode.NOT_FOUND,
    errors.UnprovedHead: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ReleaseConflict: grpc.StatusCode.ALREADY_EXISTS,
    errors.InvariantBroken: grpc.StatusCode.INTERNAL,
    errors.LedgerCorrupt: grpc.StatusCode.INTERNAL,
    errors.UnpaidRelease: grpc.StatusCode.INTERNAL,
    errors.LedgerBehind: grpc.StatusCode.INTERNAL,
}
_BY_CODE = {kind.__name__: kind for kind in STATUS}

# What a failed connection means to the people who can fix it, by a fragment of gRPC's own text.
_UNTRUSTED = "The other side's certificate has expired or is not from the expected authority."
# A certificate that is not believed is a rule that said no: calling again would not change it.
_REFUSED = (
    ("CERTIFICATE_VERIFY_FAILED", _UNTRUSTED),
    ("certificate signature failure", _UNTRUSTED),
    ("Hostname Verification Check failed", "The other side's certificate is for another address."),
)
_CONNECTION = (
    ("HTTP proxy", "The proxy did not open a connection to the other side."),
    ("DNS resolution failed", "The address of the other side cannot be resolved."),
    ("Domain name not found", "The address of the other side cannot be resolved."),
    ("Connection refused", "Nothing answers at the address of the other side."),
    ("create security handshaker", "The key, certificate or authority on this side cannot be used for TLS."),
    ("andshake", "A TLS connection to the other side could not be set up."),
    ("Socket closed", "The other side closed the connection; it stopped, or does not accept our certificate."),
    ("Connection reset", "The other side closed the connection; it stopped, or does not accept our certificate."),
    ("Broken pipe", "The other side closed the connection; it stopped, or does not accept our certificate."),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """The code and the one public sentence of an error; for a budget, what was asked and what remains.

    `final` is said of a caller that is not authorized and will not be.
    """

    code: str
    message: str
    asked: float = 0.0
    remaining: float = 0.0
    final: bool = False


def encode_fault(fault: Fault) -> bytes:
    """The bytes that travel beside a status."""
    shortfall = pb.Shortfall(asked=fault.asked, remaining=fault.remaining)
    message = pb.Fault(code=fault.code, message=_one_line(fault.message), shortfall=shortfall, final=fault.final)
    return message.SerializeToString()


def decode_fault(content: bytes) -> Fault:
    """The fault in these bytes."""
    message = parse(pb.Fault, content)
    refuse(_CODE.fault(message.code))
    asked, remaining = message.shortfall.asked, message.shortfall.remaining
    # Infinity is an honest amount: no ε bounds Gaussian noise at δ = 0.
    sound = all(not math.isnan(amount) and amount >= 0.0 for amount in (asked, remaining))
    refuse(None if sound else "an amount is not a number or below 0.")
    return Fault(message.code, _one_line(message.message), asked, remaining, message.final)


def _one_line(text: str) -> str:
    """A sentence that cannot rewrite the terminal it is printed on, nor fill it."""
    return escaped(text[:MAX_MESSAGE_CHARACTERS])[:MAX_MESSAGE_CHARACTERS]


def status_of(error: FederationError) -> tuple[grpc.StatusCode, Fault]:
    """The status and the fault of an error; a subclass the table lacks speaks as its parent."""
    kind = next(kind for kind in type(error).__mro__ if kind in STATUS)
    if isinstance(error, BudgetExceeded):
        return STATUS[kind], Fault(kind.__name__, error.message, error.asked, error.remaining)
    if isinstance(error, NotAuthorized):
        return STATUS[kind], Fault(kind.__name__, error.message, final=error.final)
    return STATUS[kind], Fault(kind.__name__, error.message)


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller is told of an error, without the error itself.

    That one knows by its traceback the call it happened in, and a call that somebody knows is a stream that stays open.
    """

    status: grpc.StatusCode
    fault: Fault
    sentence: str


def told_of(error: FederationError) -> Told:
    """What is told of an error: its status, its public words, and the fixed sentence of its class."""
    status, fault = status_of(error)
    return Told(status, fault, type(error).sentence)


def abort(context: grpc.ServicerContext, told: Told) -> NoReturn:
    """End the call with what is told; does not return."""
    context.set_trailing_metadata(((FAULT_KEY, encode_fault(told.fault)),))
    # The fixed sentence of the class: the status text travels percent-encoded and is shown by other tools.
    context.abort(told.status, told.sentence)


def call(
    method: grpc.UnaryUnaryMultiCallable[_Request, _Reply], request: _Request, *, deadline_seconds: float
) -> _Reply:
    """One unary call; every failure is one of our errors, and no call waits for ever."""
    try:
        return method(request, timeout=deadline_seconds, wait_for_ready=False)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    except ValueError:
        # gRPC's way to say that this side closed the channel.
        raise errors.PeerUnreachable("The connection was closed.") from None


def from_rpc_error(error: grpc.RpcError) -> FederationError:
    """The error that a failed call stands for."""
    for item in error.trailing_metadata() or ():
        if item.key == FAULT_KEY and isinstance(item.value, bytes):
            return _rebuilt(item.value, error.code())
    return _PLAIN.get(error.code(), _unreachable)(error.details() or "")


def _rebuilt(content: bytes, status: grpc.StatusCode) -> FederationError:
    """The error a fault names; a fault that contradicts its status is itself a violation."""
    try:
        fault = decode_fault(content)
    except MalformedMessage as malformed:
        return malformed
    kind = _BY_CODE.get(fault.code)
    if kind is None or STATUS[kind] is not status:
        return MalformedMessage("an error and its status differ.")
    return error_of(fault)


def error_of(fault: Fault) -> FederationError:
    """The error that a fault stands for, as far as a peer is believed."""
    kind = _BY_CODE.get(fault.code, FederationError)
    if issubclass(kind, InvariantBroken) or kind is FederationError:
        # A broken invariant stops the process that broke it. A peer must not be able to stop ours.
        return errors.Unavailable("The other side had an internal error; ask again later.", private=fault.code)
    if issubclass(kind, BudgetExceeded):
        return kind(fault.message, asked=fault.asked, remaining=fault.remaining)
    if issubclass(kind, NotAuthorized):
        return kind(fault.message, final=fault.final)
    return kind(fault.message)


def _unreachable(details: str) -> FederationError:
    for fragment, sentence in _REFUSED:
        if fragment in details:
            return errors.NotAuthorized(sentence, private=details)
    for fragment, sentence in _CONNECTION:
        if fragment in details:
            return errors.PeerUnreachable(sentence, private=details)
    return errors.PeerUnreachable(private=details)


def _exhausted(details: str) -> FederationError:
    if "larger than max" in details:
        return MalformedMessage("A message is larger than the wire allows.", private=details)
    return errors.PeerUnreachable("The other side has too many calls; ask again.", private=details)


def _internal(details: str) -> FederationError:
    if "deserializing" in details:
        return MalformedMessage(private=details)
    return _unreachable(details)


# Statuses that gRPC itself sets, without a fault message of ours.
_PLAIN: Mapping[grpc.StatusCode, Callable[[str], FederationError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: lambda details: errors.DeadlinePassed(private=details),
    grpc.StatusCode.PERMISSION_DENIED: lambda details: errors.NotAuthorized(private=details),
    grpc.StatusCode.UNAUTHENTICATED: lambda details: errors.NotAuthorized(private=details),
    grpc.StatusCode.UNIMPLEMENTED: lambda details: errors.ProtocolViolation(errors.EARLIER_VERSION, private=details),
    grpc.StatusCode.RESOURCE_EXHAUSTED: _exhausted,
    grpc.StatusCode.INTERNAL: _internal,
}
