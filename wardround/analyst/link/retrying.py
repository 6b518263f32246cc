"""Calling again when nothing was decided.

Every call of the analyst may be repeated under its key, so a coordinator that restarts in the middle of a
question costs the analyst some seconds and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from wardround.federation.errors import DeadlinePassed, LedgerBusy, PeerUnreachable

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0

_Reply = TypeVar("_Reply")


@dataclass(frozen=True, slots=True)
class Persistence:
    """How to wait between attempts; the clock and the pause are given, so a test needs no time."""

    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def call(self, attempt: Callable[[], _Reply], *, limit_seconds: float) -> _Reply:
        """What `attempt` returns; while the peer is away, busy or silent it is tried again for `limit_seconds`.

        A reply that did not come in time may as well have been lost on its way. A steward's pending decision, a
        refusal or a mistake would be the same a moment later: not repeated.
        """
        ends = self.clock() + limit_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except (PeerUnreachable, LedgerBusy, DeadlinePassed):
                if self.clock() + pause >= ends:
                    raise
            self.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
