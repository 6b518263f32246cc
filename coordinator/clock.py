"""The clock that everything waits on: for a change, never for a fixed time, and never longer than it was told.

A change is announced under a key (a round, a site). Whoever waits reads the number of changes first, looks
at the ledger, and then waits for another number; so no change between looking and waiting is missed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

REMEMBERED = 20_000
"""Of so many keys, those that changed last, it is known how often they did."""


class Clock(Protocol):
    """The clock and the waiting of one coordinator."""

    def now(self) -> float:
        """Seconds that only ever grow while somebody serves; deadlines count in these."""

    def go_on_from(self, seconds: float) -> None:
        """Count from here, where the coordinator before ended."""

    def date(self) -> float:
        """Seconds since 1970, comparable after a restart."""

    def changes(self, key: str) -> int:
        """How often `key` has changed so far."""

    def announce(self, key: str) -> None:
        """Say that `key` changed."""

    def wait(self, key: str, *, seen: int, seconds: float) -> None:
        """Return once the number of changes of `key` is not `seen`, once `seconds` have passed, or at the end."""

    def end(self) -> None:
        """Wake everyone, for good: the coordinator stops."""

    @property
    def ended(self) -> bool:
        """Whether the coordinator stops."""


class RealClock:
    """The machine's clock, and a condition for each key that somebody waits for, so that a change wakes nobody else.

    Whoever waits does so inside `aside`, which a service uses to let others work meanwhile.
    """

    def __init__(self, aside: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._aside = aside
        self._guard = threading.Lock()
        self._changes: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, threading.Condition] = {}
        self._waiters: Counter[str] = Counter()
        self._ended = False
        self._begun = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._begun

    def go_on_from(self, seconds: float) -> None:
        self._begun = time.monotonic() - seconds

    def date(self) -> float:
        return time.time()

    def changes(self, key: str) -> int:
        with self._guard:
            return self._changes.get(key, 0)

    def announce(self, key: str) -> None:
        with self._guard:
            self._changes[key] = self._changes.get(key, 0) + 1
            self._changes.move_to_end(key)
            if len(self._changes) > REMEMBERED:
                # Whoever still asks about it finds another number, and looks.
                self._changes.popitem(last=False)
            if (waiting := self._waiting.get(key)) is not None:
                waiting.notify_all()

    def wait(self, key: str, *, seen: int, seconds: float) -> None:
        with self._aside(), self._guard:
            condition = self._waiting.setdefault(key, threading.Condition(self._guard))
            self._waiters[key] += 1
            condition.wait_for(lambda: self._ended or self._changes.get(key, 0) != seen, timeout=max(seconds, 0.0))
            self._waiters[key] -= 1
            if not self._waiters[key]:
                del self._waiters[key], self._waiting[key]

    def end(self) -> None:
        with self._guard:
            self._ended = True
            for condition in self._waiting.values():
                condition.notify_all()

    @property
    def ended(self) -> bool:
        return self._ended
