"""A coordinator in one process and one thread with its sites: whoever waits lets the others work.

Handed into the coordinator in place of the machine's clock and of its threads; nothing else about it differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from coordinator.clock import Clock
from coordinator.rounds.attending import LOOK_SECONDS
from coordinator.rounds.dispatch import round_key
from coordinator.rounds.round import Round
from wardround.federation.errors import FederationError


class PumpedClock:
    """A federation in one process and one thread: waiting lets the others work, and time passes when they rest.

    `pump` lets every site take a turn and says whether any of them did something. Time is a number that
    jumps to the end of the wait when nobody has anything to do, so a deadline costs no real second.
    """

    def __init__(self, pump: Callable[[], bool], *, date: float = 0.0) -> None:
        self._pump = pump
        self._now = 0.0
        self._start = date
        self._changes: Counter[str] = Counter()
        self._pumping = False
        self._ended = False

    def now(self) -> float:
        return self._now

    def go_on_from(self, seconds: float) -> None:
        """Not before what was noted; the date stays."""
        self._start -= max(seconds - self._now, 0.0)
        self._now = max(self._now, seconds)

    def date(self) -> float:
        return self._start + self._now

    def changes(self, key: str) -> int:
        return self._changes[key]

    def announce(self, key: str) -> None:
        self._changes[key] += 1

    def wait(self, key: str, *, seen: int, seconds: float) -> None:
        if self._pumping:
            # A site that takes its turn inside another's wait finds what there is, and does not wait itself.
            return
        until = self._now + max(seconds, 0.0)
        while self._changes[key] == seen and self._now < until and not self._ended:
            if not self._turn():
                self._now = until

    def _turn(self) -> bool:
        self._pumping = True
        try:
            return self._pump()
        finally:
            self._pumping = False

    def pass_seconds(self, seconds: float) -> None:
        """Let time go by while nobody works."""
        self._now += seconds

    def end(self) -> None:
        self._ended = True

    @property
    def ended(self) -> bool:
        return self._ended


class DrivenAttendant:
    """Nobody looks after rounds by themselves: whoever watches one does, and its waiting lets the sites work."""

    def attend(self, line: Round, clock: Clock) -> None:
        self._line, self._clock = line, clock

    def look(self, plan_id: str) -> None:
        """Nothing: whoever watches will."""

    def drive(self, plan_id: str) -> None:
        """Let the sites work until the round is concluded, or waits for nobody but stewards."""
        while (seconds := self._line.due_seconds(plan_id)) is not None:
            if seconds == 0.0:
                # What it ends with, its driver gets.
                self._line.conclude(plan_id, remember=lambda *_: None)
            elif self._line.awaited_stewards(plan_id):
                return
            else:
                seen = self._clock.changes(round_key(plan_id))
                self._clock.wait(round_key(plan_id), seen=seen, seconds=min(seconds, LOOK_SECONDS))
                self._line.look_around()

    def ended(self, plan_id: str) -> FederationError | None:  # noqa: ARG002
        return None

    def fault(self) -> BaseException | None:
        return None

    def close(self) -> None:
        """Nothing runs."""
