"""The calls that are under way, so that a ledger is not closed under one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.clock import Clock
from wardround.federation.errors import PeerUnreachable

STOPPING = "The coordinator is stopping; ask again."


class CallsInside:
    """Counts calls; none begins once the clock has ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls = 0
        self._changed = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call, from its beginning to its end."""
        with self._changed:
            if self._clock.ended:
                raise PeerUnreachable(STOPPING)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def wait_until_over(self) -> None:
        """Return once no call is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls == 0)
