"""How many calls may wait at once, so that those who wait never keep out those who bring something.

A long poll holds a worker while it waits. The room has fewer seats than there are workers, so some are
always free for a submission; a poll that finds no seat is answered at once and asked to pause.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PAUSE_SECONDS = 0.5
# The share of the seats that one caller may take, whatever it sends.
_CALLER_SHARE = 4


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
