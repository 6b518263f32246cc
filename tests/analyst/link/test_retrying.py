"""Calling again: only when nothing was decided, with growing pauses, within a limit."""

from __future__ import annotations

import pytest

from wardround.analyst.link.grpc_link import Persistence
from wardround.federation.errors import (
    AwaitingApproval,
    BudgetExceeded,
    DeadlinePassed,
    FederationError,
    LedgerBusy,
    NotAuthorized,
    PeerUnreachable,
    QueryMistaken,
    SourceFailed,
)


class Clock:
    """Time that passes only while somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def read(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Peer:
    """Fails with each error in turn, then answers."""

    def __init__(self, *errors: FederationError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "here"


def test_a_peer_that_comes_back_is_called_again() -> None:
    clock, peer = Clock(), Peer(PeerUnreachable(), LedgerBusy(), DeadlinePassed())
    assert Persistence(clock.read, clock.pause).call(peer, limit_seconds=5) == "here"
    assert clock.pauses == [0.1, 0.2, 0.4]


def test_a_peer_that_stays_away_is_given_up_within_the_limit() -> None:
    clock, peer = Clock(), Peer(*[PeerUnreachable() for _ in range(99)])
    with pytest.raises(PeerUnreachable):
        Persistence(clock.read, clock.pause).call(peer, limit_seconds=10)
    assert 8 < clock.now < 10
    assert max(clock.pauses) == 2.0


@pytest.mark.parametrize(
    "error",
    [
        AwaitingApproval(),
        BudgetExceeded(asked=1, remaining=0),
        NotAuthorized(),
        QueryMistaken(),
        SourceFailed(),
    ],
)
def test_what_was_decided_is_not_asked_again(error: FederationError) -> None:
    clock, peer = Clock(), Peer(error)
    with pytest.raises(type(error)):
        Persistence(clock.read, clock.pause).call(peer, limit_seconds=5)
    assert peer.calls == 1
