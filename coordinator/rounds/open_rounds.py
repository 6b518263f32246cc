"""What is remembered of each round that is open: where its sites are, until when it waits, what it expects.

All of it follows from the ledger and is made again after a restart; nothing here decides what was charged or answered.
A round costs some memory and nothing else: no thread, no connection. So they are counted, for each analyst and in all.

A round waits by who answered and who took the task up, never by what was answered. Everybody has the study's deadline.
Only who was away when the round before of the same training ended is given up earlier, and only where the others are
enough; who takes the task up again has the whole deadline like the rest.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from coordinator.accounts.accounting import PlannedQuestion
from coordinator.store.rounds import Question
from wardround.federation.errors import Unavailable
from wardround.federation.plan.plan import Charge, Plan
from wardround.federation.question.answer import SiteState

# A site that could not answer is asked again, but not in a tight loop: after twice as long each time.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0

SHARE_FOR_THE_AWAY = 1 / 30
"""Of the deadline, after the others have answered: time to take up a task, not to compute."""

MOST_OPEN = 4096
MOST_OPEN_OF_ONE = 64

_WORKING = frozenset((SiteState.OPEN, SiteState.CLAIMED, SiteState.FAILED))
_FINAL = frozenset((SiteState.RELEASED, SiteState.REFUSED))
# That a site took a task up, or could not answer it, steers what it is handed next. Analysts are not told: to them a
# site whose table failed is one that is away, because whether it failed may depend on a row.
_UNTOLD = frozenset((SiteState.CLAIMED, SiteState.FAILED))


@dataclass(frozen=True, slots=True)
class Window:
    """The wait of one round, in the coordinator's seconds; `away` are those who were missing in the round before."""

    deadline: float
    short_seconds: float = 0.0
    away: frozenset[str] = frozenset()
    needed: int = 1

    def ends(self, *, working: int, answered: int, back: int, before: float, now: float) -> float:
        """When the wait ends as things stand; `before` is what this said last, at first the deadline.

        `back` are those that work and are not given up: they took the task up, or were there in the round before.
        """
        if not working:
            return now
        # A source that fails is no sign that it will be fixed; a task that was taken up is one of work.
        if back or answered < self.needed:
            return self.deadline
        return min(before, now + self.short_seconds)


@dataclass(frozen=True, slots=True)
class _Failures:
    """How often a site could not answer a plan, and when it is asked again."""

    times: int
    not_before: float


@dataclass(slots=True)
class OpenRound:
    """One open round. Whoever changes it holds the guard of `OpenRounds`.

    `approve_by` is the date until which it waits for a steward.
    """

    question: Question
    window: Window
    states: dict[str, SiteState]
    approve_by: float = math.inf
    asked: PlannedQuestion | None = None
    ends: float = math.inf
    awaits_approval: bool = False
    concluding: bool = False
    failures: dict[str, _Failures] = field(default_factory=dict)
    _working: int = 0
    _answered: int = 0
    _back: int = 0

    @property
    def plan(self) -> Plan:
        return self.question.plan

    @property
    def charge(self) -> Charge | None:
        """The price that the round carries, where it was planned in this process."""
        return None if self.asked is None else self.asked.planned.charge

    def begin(self, now: float) -> None:
        """Count where everybody is; the window begins."""
        self.ends = self.window.deadline
        for site, state in self.states.items():
            self._count(site, state, 1)
        self._end(now)

    def move(self, site: str, state: SiteState, now: float) -> None:
        """A site is somewhere else now; what it answered is its last word."""
        before = self.states[site]
        if before is state or before in _FINAL:
            return
        self._count(site, before, -1)
        self.states[site] = state
        self._count(site, state, 1)
        self._end(now)

    def pending(self) -> list[str]:
        """Who waits for a steward."""
        return sorted(site for site, state in self.states.items() if state is SiteState.PENDING)

    def _count(self, site: str, state: SiteState, one: int) -> None:
        if state in _WORKING:
            self._working += one
            self._back += one * (state is SiteState.CLAIMED or site not in self.window.away)
        elif state is SiteState.RELEASED:
            self._answered += one

    def _end(self, now: float) -> None:
        self.ends = self.window.ends(
            working=self._working, answered=self._answered, back=self._back, before=self.ends, now=now
        )


class _Queue:
    """The tasks of one site: analysts take turns, and each one's plans come in the order they were asked."""

    def __init__(self) -> None:
        self._plans: dict[str, dict[str, None]] = {}
        self.failed: dict[str, None] = {}

    def put(self, analyst: str, plan_id: str) -> None:
        self._plans.setdefault(analyst, {})[plan_id] = None

    def drop(self, analyst: str, plan_id: str) -> None:
        self.failed.pop(plan_id, None)
        if (own := self._plans.get(analyst)) is not None:
            own.pop(plan_id, None)
            if not own:
                del self._plans[analyst]

    def next(self) -> str | None:
        """A plan of the analyst whose turn it is; the others come before that one again."""
        if not self._plans:
            return None
        analyst, own = next(iter(self._plans.items()))
        del self._plans[analyst]
        self._plans[analyst] = own
        return next(iter(own))

    @property
    def empty(self) -> bool:
        return not self._plans and not self.failed


class OpenRounds:
    """Every open round by its plan, and what each site has to do."""

    def __init__(self, *, most: int = MOST_OPEN, most_of_one: int = MOST_OPEN_OF_ONE) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._guard = threading.RLock()
        self._rounds: dict[str, OpenRound] = {}
        self._queues: dict[str, _Queue] = {}
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        with self._guard:
            return len(self._rounds)

    @contextmanager
    def room(self, analyst: str, plan_ids: Iterable[str]) -> Iterator[None]:
        """A place for one more round while one of the plans is begun, unless one of them is open already.

        Raises:
            Unavailable: there is no place; nothing was charged.
        """
        with self._guard:
            place = not any(plan_id in self._rounds for plan_id in plan_ids)
            if place:
                self._refuse_if_full(analyst)
                self._count(analyst, 1)
        try:
            yield
        finally:
            if place:
                with self._guard:
                    self._count(analyst, -1)

    def add(self, opened: OpenRound, *, now: float) -> bool:
        """From now on the round is open, unless it was already; whether it was not."""
        plan_id, analyst = opened.plan.plan_id, opened.question.analyst
        with self._guard:
            if plan_id in self._rounds:
                return False
            opened.begin(now)
            self._rounds[plan_id] = opened
            self._count(analyst, 1)
            for site, state in opened.states.items():
                if state in _WORKING:
                    self._queues.setdefault(site, _Queue()).put(analyst, plan_id)
            return True

    def remove(self, plan_id: str) -> OpenRound | None:
        """The round has ended."""
        with self._guard:
            found = self._rounds.pop(plan_id, None)
            if found is not None:
                self._count(found.question.analyst, -1)
                for site in found.states:
                    self._drop(site, found)
            return found

    @contextmanager
    def looking(self, plan_id: str) -> Iterator[OpenRound | None]:
        """The round, if it is open; it does not move inside the block."""
        with self._guard:
            yield self._rounds.get(plan_id)

    def told(self, plan_id: str) -> tuple[tuple[str, SiteState], ...] | None:
        """Where every participant is, as far as analysts are told; None where the round is not open."""
        with self._guard:
            if (found := self._rounds.get(plan_id)) is None:
                return None
            return tuple((site, SiteState.OPEN if state in _UNTOLD else state) for site, state in found.states.items())

    def plans(self) -> tuple[str, ...]:
        """The plans of every open round, oldest first."""
        with self._guard:
            return tuple(self._rounds)

    def at_work(self) -> frozenset[str]:
        """The sites that took up a task and have not answered it."""
        with self._guard:
            return frozenset(
                site
                for found in self._rounds.values()
                for site, state in found.states.items()
                if state is SiteState.CLAIMED
            )

    def move(self, plan_id: str, site: str, state: SiteState, *, now: float) -> None:
        """A site said where it is with a plan."""
        with self._guard:
            found = self._rounds.get(plan_id)
            if found is None or site not in found.states:
                return
            found.move(site, state, now)
            if state is SiteState.FAILED:
                self._failed(found, site, now)
            elif state is not SiteState.CLAIMED:
                self._drop(site, found)

    def leave_all_but(self, active: Collection[str], *, now: float) -> tuple[str, ...]:
        """Sites that may not take part any more are missing; the plans of the rounds that this moved."""
        moved: list[str] = []
        with self._guard:
            for plan_id, found in self._rounds.items():
                for site, state in found.states.items():
                    if site not in active and state not in _FINAL and state is not SiteState.MISSING:
                        found.move(site, SiteState.MISSING, now)
                        self._drop(site, found)
                        moved.append(plan_id)
        return tuple(dict.fromkeys(moved))

    def next_task(self, site: str, *, now: float) -> tuple[Plan | None, float]:
        """The plan that a site takes up next, or how long it makes sense to wait for one that failed.

        Those that never failed come first: a table that answers nothing must not keep the others from answering.
        """
        with self._guard:
            queue = self._queues.get(site)
            plan_id, pause = (None, math.inf) if queue is None else self._ready(site, queue, now)
            if plan_id is None:
                return None, pause
            found = self._rounds[plan_id]
            if found.states[site] is SiteState.OPEN:
                found.move(site, SiteState.CLAIMED, now)
            return found.plan, 0.0

    def _ready(self, site: str, queue: _Queue, now: float) -> tuple[str | None, float]:
        if (plan_id := queue.next()) is not None:
            return plan_id, 0.0
        pauses = {plan_id: self._rounds[plan_id].failures[site].not_before - now for plan_id in queue.failed}
        ready = next((plan_id for plan_id, pause in pauses.items() if pause <= 0), None)
        return ready, min(pauses.values(), default=math.inf)

    def _failed(self, found: OpenRound, site: str, now: float) -> None:
        before = found.failures.get(site)
        times = 0 if before is None else before.times
        pause_seconds = min(RETRY_SECONDS * 2**times, LONGEST_RETRY_SECONDS)
        found.failures[site] = _Failures(times + 1, now + pause_seconds)
        self._drop(site, found)
        if found.states[site] in _WORKING:
            self._queues.setdefault(site, _Queue()).failed[found.plan.plan_id] = None

    def _drop(self, site: str, found: OpenRound) -> None:
        queue = self._queues.get(site)
        if queue is not None:
            queue.drop(found.question.analyst, found.plan.plan_id)
            if queue.empty:
                del self._queues[site]

    def _count(self, analyst: str, one: int) -> None:
        self._of[analyst] += one
        if not self._of[analyst]:
            del self._of[analyst]

    def _refuse_if_full(self, analyst: str) -> None:
        if self._of[analyst] >= self._most_of_one:
            raise Unavailable(
                f"{self._most_of_one} of your questions are not answered yet, and no more may be open at a time; "
                "wait for one of them, then ask again. Nothing was charged."
            )
        if self._of.total() >= self._most:
            raise Unavailable(
                f"{self._most} questions of all analysts are open, and the coordinator takes no more at a time; "
                "ask again later. Nothing was charged."
            )
