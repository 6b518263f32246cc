"""A coordinator in one process and one thread with its sites: whoever waits lets the others work.

Handed into the coordinator in place of the machine's clock and of its threads; nothing else about it differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


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
        while self._changes[key] <= seen and self._now < until and not self._ended:
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


class DrivenRounds:
    """Rounds without threads: whoever watches runs the round, and its waiting lets the sites work."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[], None]] = {}
        self._driven: set[str] = set()

    def start(self, plan_id: str, run: Callable[[], None]) -> None:
        """Remember the round for whoever watches it."""
        self._waiting[plan_id] = run

    def unless_answered(self, plan_id: str, then: Callable[[], None]) -> bool:  # noqa: ARG002
        """Nothing to remember: a round and what it waits for share one thread, so it looks after each submission."""
        return self.state(plan_id)[0]

    def drive(self, plan_id: str) -> None:
        """Run the round to its end."""
        run = self._waiting.pop(plan_id, None)
        if run is None:
            return
        self._driven.add(plan_id)
        try:
            run()
        finally:
            self._driven.discard(plan_id)

    def state(self, plan_id: str) -> tuple[bool, BaseException | None]:
        """Whether it is driven or waits to be, and no outcome: what a driven round raises, its driver gets."""
        return plan_id in self._waiting or plan_id in self._driven, None

    def fault(self) -> BaseException | None:
        return None

    def close(self) -> None:
        self._waiting.clear()
