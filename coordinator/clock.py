"""The clock that everything waits on: for a change, never for a fixed time, and never longer than it was told.

A change is announced under a key (a round, a site). Whoever waits reads the number of changes first, looks
at the ledger, and then waits for a higher number; so no change between looking and waiting is missed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Clock(Protocol):
    """The clock and the waiting of one coordinator."""

    def now(self) -> float:
        """Seconds that only ever grow; deadlines count in these."""

    def date(self) -> float:
        """Seconds since 1970, comparable after a restart."""

    def changes(self, key: str) -> int:
        """How often `key` has changed so far."""

    def announce(self, key: str) -> None:
        """Say that `key` changed."""

    def wait(self, key: str, *, seen: int, seconds: float) -> None:
        """Return once `key` has changed more often than `seen`, once `seconds` have passed, or at the end."""

    def end(self) -> None:
        """Wake everyone, for good: the coordinator stops."""

    @property
    def ended(self) -> bool:
        """Whether the coordinator stops."""


class RealClock:
    """The machine's clock, and one condition for each key, so that a change wakes only who waits for it.

    Whoever waits does so inside `aside`, which a service uses to let others work meanwhile.
    """

    def __init__(self, aside: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._aside = aside
        self._guard = threading.Lock()
        self._changes: Counter[str] = Counter()
        self._waiting: dict[str, threading.Condition] = {}
        self._ended = False

    def now(self) -> float:
        return time.monotonic()

    def date(self) -> float:
        return time.time()

    def changes(self, key: str) -> int:
        with self._guard:
            return self._changes[key]

    def announce(self, key: str) -> None:
        with self._guard:
            self._changes[key] += 1
            if (waiting := self._waiting.get(key)) is not None:
                waiting.notify_all()

    def wait(self, key: str, *, seen: int, seconds: float) -> None:
        with self._aside(), self._guard:
            condition = self._waiting.setdefault(key, threading.Condition(self._guard))
            condition.wait_for(lambda: self._ended or self._changes[key] > seen, timeout=max(seconds, 0.0))

    def end(self) -> None:
        with self._guard:
            self._ended = True
            for condition in self._waiting.values():
                condition.notify_all()

    @property
    def ended(self) -> bool:
        return self._ended
