"""Who looks after open rounds: a few threads for all of them, or whoever waits for the answer.

A round is looked at when one of its sites has moved and when its time is over, and concluded once nobody is waited for
any more. How many rounds are open changes nothing about the number of threads.
"""

from __future__ import annotations

import functools
import heapq
import logging
import math
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from coordinator.clock import Clock
from coordinator.rounds.dispatch import round_key
from coordinator.rounds.round import Round
from wardround.federation.errors import FederationError, Refused, SitesAway, Unavailable

LOOK_SECONDS = 1.0
"""A change made by another process is announced to nobody; somebody looks this often while a round is open."""

RETRY_SECONDS = 1.0
CONCLUDING_THREADS = 4
REMEMBERED = 4096

log = logging.getLogger("wardround.coordinator")


class Attendant(Protocol):
    """Who looks after open rounds."""

    def attend(self, line: Round, clock: Clock) -> None:
        """Begin; called once, before any round is open."""

    def look(self, plan_id: str) -> None:
        """Something about this round has changed."""

    def drive(self, plan_id: str) -> None:
        """Give the round the caller's time, where nobody else has any; raises what it ends with."""

    def ended(self, plan_id: str) -> FederationError | None:
        """What a round ended with, if that was no answer and not long ago."""

    def fault(self) -> BaseException | None:
        """The first outcome that no rule explains."""

    def close(self) -> None:
        """Return once nothing is being concluded; the clock has ended."""


class ThreadedAttendant:
    """One thread that knows what is due when, and a few that conclude."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, str]] = []
        self._planned: dict[str, float] = {}
        self._ended: OrderedDict[str, FederationError] = OrderedDict()
        self._fault: BaseException | None = None
        self._pool = ThreadPoolExecutor(1 + CONCLUDING_THREADS, thread_name_prefix="rounds")

    def attend(self, line: Round, clock: Clock) -> None:
        self._line, self._clock = line, clock
        self._pool.submit(self._run).add_done_callback(self._note_fault)

    def look(self, plan_id: str) -> None:
        """Conclude the round if it is due, or remember when it will be."""
        seconds = self._line.due_seconds(plan_id)
        if seconds == 0.0:
            self._conclude(plan_id)
        elif seconds is not None and seconds < math.inf:
            self._plan(plan_id, seconds)

    def drive(self, plan_id: str) -> None:
        """Nothing: others have the time."""

    def ended(self, plan_id: str) -> FederationError | None:
        with self._changed:
            return self._ended.get(plan_id)

    def fault(self) -> BaseException | None:
        return self._fault

    def close(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._pool.shutdown(wait=True)

    def _plan(self, plan_id: str, seconds: float) -> None:
        at = self._clock.now() + seconds
        with self._changed:
            if at < self._planned.get(plan_id, math.inf):
                self._planned[plan_id] = at
                heapq.heappush(self._due, (at, plan_id))
                self._changed.notify_all()

    def _conclude(self, plan_id: str) -> None:
        if not self._clock.ended:
            concluding = self._pool.submit(self._line.conclude, plan_id, remember=self._remember)
            concluding.add_done_callback(functools.partial(self._note, plan_id))

    def _note(self, plan_id: str, done: Future[None]) -> None:
        match done.exception():
            case None:
                with self._changed:
                    self._ended.pop(plan_id, None)
            case SitesAway() as away:
                log.info("round %s ended: %s", plan_id[:12], away.code)
            case Unavailable() as busy:
                log.info("round %s is concluded later: %s", plan_id[:12], busy.code)
                self._plan(plan_id, RETRY_SECONDS)
            case Refused() as refused:
                log.info("round %s ended: %s", plan_id[:12], refused.code)
            case error:
                log.error("round %s ended: %s", plan_id[:12], type(error).__name__)
                self._note_fault(done)
        self._clock.announce(round_key(plan_id))

    def _remember(self, plan_id: str, error: FederationError) -> None:
        with self._changed:
            self._ended[plan_id] = error
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    def _note_fault(self, done: Future[None]) -> None:
        with self._changed:
            self._fault = self._fault or done.exception()

    def _run(self) -> None:
        looked = -math.inf
        while not self._clock.ended:
            for plan_id in self._now_due():
                self.look(plan_id)
            if self._clock.now() - looked >= LOOK_SECONDS:
                looked = self._clock.now()
                self._look_around()
            with self._changed:
                if not self._due or self._due[0][0] > self._clock.now():
                    self._changed.wait(self._pause())

    def _now_due(self) -> list[str]:
        found: list[str] = []
        with self._changed:
            while self._due and self._due[0][0] <= self._clock.now():
                at, plan_id = heapq.heappop(self._due)
                if self._planned.get(plan_id) == at:
                    del self._planned[plan_id]
                    found.append(plan_id)
        return found

    def _pause(self) -> float:
        until = self._due[0][0] - self._clock.now() if self._due else LOOK_SECONDS
        return max(min(until, LOOK_SECONDS), 0.001)

    def _look_around(self) -> None:
        try:
            for plan_id in self._line.look_around():
                self._clock.announce(round_key(plan_id))
                self.look(plan_id)
            if self._line.open_rounds:
                self._line.note_served()
        except Unavailable as busy:
            log.info("open rounds are looked at later: %s", busy.code)
