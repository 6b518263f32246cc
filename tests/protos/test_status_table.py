"""Every error has a row in the table and comes back as itself, except where a peer must not be believed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.statuses import FAULT_KEY, STATUS, Fault, encode_fault, from_rpc_error, status_of
from wardround.federation import errors
from wardround.federation.errors import (
    BudgetExceeded,
    DeadlinePassed,
    FederationError,
    InvariantBroken,
    LedgerBusy,
    LedgerCorrupt,
    LedgerFull,
    MalformedMessage,
    NotAuthorized,
    PeerUnreachable,
    ProtocolViolation,
    QueryMistaken,
    Unavailable,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, FederationError) and kind.__module__ == errors.__name__ and kind is not LedgerFull
]


@dataclass(frozen=True)
class Trailer:
    key: str
    value: bytes


@dataclass
class FailedCall(grpc.RpcError):
    """A call that failed, as gRPC hands it to the caller."""

    status: grpc.StatusCode
    text: str = ""
    trailers: list[Trailer] = field(default_factory=list)

    def code(self) -> grpc.StatusCode:
        return self.status

    def details(self) -> str:
        return self.text

    def trailing_metadata(self) -> tuple[Trailer, ...]:
        return tuple(self.trailers)


def over_the_wire(error: FederationError) -> FederationError:
    status, fault = status_of(error)
    return from_rpc_error(FailedCall(status, "", [Trailer("other", b""), Trailer(FAULT_KEY, encode_fault(fault))]))


def make(kind: type[FederationError], message: str = "") -> FederationError:
    if issubclass(kind, BudgetExceeded):
        return kind(message, asked=1.25, remaining=0.5, private="secret")
    return kind(message, private="secret")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_a_row(kind: type[FederationError]) -> None:
    assert kind in STATUS


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if STATUS.get(kind) is not grpc.StatusCode.INTERNAL])
@pytest.mark.parametrize("message", ["", "the plan names a study that this site did not sign."])
def test_an_error_comes_back_as_itself_without_its_private_text(kind: type[FederationError], message: str) -> None:
    error = make(kind, message)
    back = over_the_wire(error)
    assert type(back) is kind
    assert (back.code, back.message, back.private) == (error.code, error.message, "")


def test_a_full_ledger_is_told_as_a_busy_one_which_earlier_versions_know() -> None:
    back = over_the_wire(LedgerFull(private="secret"))
    assert (type(back), back.message) == (LedgerBusy, LedgerFull.sentence)


def test_whether_a_refusal_is_final_comes_back_and_changes_nothing_for_earlier_versions() -> None:
    ended, now = over_the_wire(NotAuthorized("revoked.", final=True)), over_the_wire(NotAuthorized("revoked."))
    assert isinstance(ended, NotAuthorized)
    assert isinstance(now, NotAuthorized)
    assert (ended.final, now.final, ended.code) == (True, False, "NotAuthorized")


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if STATUS.get(kind) is grpc.StatusCode.INTERNAL])
def test_a_peers_own_fault_never_stops_us(kind: type[FederationError]) -> None:
    back = over_the_wire(make(kind))
    assert type(back) is Unavailable
    assert not isinstance(back, InvariantBroken)


@given(asked=st.floats(min_value=0, allow_infinity=True), remaining=st.floats(min_value=0, allow_infinity=False))
def test_the_numbers_of_a_budget_come_back_exactly(asked: float, remaining: float) -> None:
    error = BudgetExceeded(asked=asked, remaining=remaining)
    back = over_the_wire(error)
    assert isinstance(back, BudgetExceeded)
    assert (back.asked, back.remaining, back.difference) == (asked, remaining, error.difference)
    assert back.message == error.message


def test_an_error_the_table_lacks_speaks_as_its_parent() -> None:
    class DiskFull(LedgerCorrupt):
        pass

    class ColumnUnknown(QueryMistaken):
        pass

    assert status_of(DiskFull())[1].code == "LedgerCorrupt"
    assert type(over_the_wire(ColumnUnknown("no such column."))) is QueryMistaken


def test_a_message_cannot_rewrite_the_terminal_or_fill_it() -> None:
    back = over_the_wire(QueryMistaken("\x1b[2Jname" + "é" * 5000))
    assert back.message.startswith("\\x1b[2Jname")
    assert len(back.message) == 1000
    assert back.message.isprintable()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"",
        encode_fault(Fault("NoSuchError", "")),
        encode_fault(Fault("FederationError; DROP", "")),
        encode_fault(Fault("QueryMistaken", "")),
        encode_fault(Fault("LedgerBusy", "", asked=float("nan"))),
        encode_fault(Fault("LedgerBusy", "", remaining=-1.0)),
    ],
)
def test_a_fault_that_cannot_be_believed_is_malformed(content: bytes) -> None:
    call = FailedCall(grpc.StatusCode.UNAVAILABLE, "", [Trailer(FAULT_KEY, content)])
    assert type(from_rpc_error(call)) is MalformedMessage


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Connection refused", PeerUnreachable),
        (grpc.StatusCode.CANCELLED, "Channel closed!", PeerUnreachable),
        (grpc.StatusCode.UNKNOWN, "Stream removed", PeerUnreachable),
        (grpc.StatusCode.INTERNAL, "RST_STREAM", PeerUnreachable),
        (grpc.StatusCode.INTERNAL, "Exception deserializing response!", MalformedMessage),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", DeadlinePassed),
        (grpc.StatusCode.UNAUTHENTICATED, "", NotAuthorized),
        (grpc.StatusCode.PERMISSION_DENIED, "", NotAuthorized),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ProtocolViolation),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max", MalformedMessage),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", PeerUnreachable),
    ],
)
def test_a_status_of_grpcs_own_is_one_of_our_errors(
    status: grpc.StatusCode, text: str, kind: type[FederationError]
) -> None:
    error = from_rpc_error(FailedCall(status, text))
    assert type(error) is kind
    assert text not in error.message or not text
    assert error.private == text
