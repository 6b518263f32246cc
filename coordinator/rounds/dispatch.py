"""Tasks: one row for each participant of a plan, handed out to the site that asks, oldest first.

A site that is frozen or revoked gets nothing. A task is signed when it is handed out and names the last
place of the site's own chain that the coordinator holds, so a restored or cloned site finds itself out.

That a site took a task up, or could not answer it, steers what it is handed next. Analysts are not told: to them a
site whose table failed is one that is away, because whether it failed may depend on a row.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from coordinator.clock import Clock
from coordinator.members.roster import refuse_unless_active
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome, RoundStanding, RoundState
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import SignedTask, Task, sign_task
from wardround.federation.question.answer import SiteState

# A site that could not answer is asked again, but not in a tight loop: after twice as long each time.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0

_UNTOLD = frozenset((SiteState.CLAIMED, SiteState.FAILED))


@dataclass(frozen=True, slots=True)
class _Failures:
    """How often a site could not answer a plan, and when it is asked again."""

    times: int
    not_before: float


def site_key(site: str) -> str:
    """What is announced when a site has something to do."""
    return f"site {site}"


def round_key(plan_id: str) -> str:
    """What is announced when a round has moved."""
    return f"round {plan_id}"


class Dispatch:
    """Opens tasks and hands them out."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._guard = threading.Lock()
        # Both only steer; after a restart a task is simply handed out again.
        self._claimed: set[tuple[str, str]] = set()
        self._failures: dict[tuple[str, str], _Failures] = {}

    def open(self, plan: Plan) -> None:
        """One durable task for each participant, once.

        A round that ended with too few answers is opened again for those who did not answer: the charge
        stands, so their answer is already paid for.
        """
        if not self._may_open(self._ledger.rounds.standing(plan.plan_id)):
            return
        with self._ledger.tasks.opening(plan) as round_:
            if not self._may_open(round_.before):
                return
            round_.open(at=self._clock.date())
        for site in plan.participants:
            self._clock.announce(site_key(site))
        self._clock.announce(round_key(plan.plan_id))

    def claim(self, site: str, *, wait_seconds: float) -> SignedTask | None:
        """The oldest task the site has neither answered nor put before its steward, or None after the wait."""
        until = self._clock.now() + wait_seconds
        while True:
            seen = self._clock.changes(site_key(site))
            task, pause = self._next(site)
            if task is not None:
                plan_id = task.plan.plan_id
                # Not announced: whoever watches would see that the site took it up. A round looks by itself.
                with self._guard:
                    self._claimed.add((plan_id, site))
                return sign_task(task, self._ledger.identity, self._ledger.rounds.asked_by(plan_id))
            left = until - self._clock.now()
            if left <= 0 or self._clock.ended:
                return None
            self._clock.wait(site_key(site), seen=seen, seconds=min(left, pause))

    def failed(self, plan_id: str, site: str) -> None:
        """Remember that a site could not answer, so that it is not asked again at once."""
        with self._guard:
            times = self._failures[plan_id, site].times if (plan_id, site) in self._failures else 0
            pause_seconds = min(RETRY_SECONDS * 2**times, LONGEST_RETRY_SECONDS)
            self._failures[plan_id, site] = _Failures(times + 1, self._clock.now() + pause_seconds)

    def states(self, plan: Plan) -> tuple[tuple[str, SiteState], ...]:
        """Where every participant is; a site that may not take part any more is missing."""
        with self._ledger.one_moment():
            stored = dict.fromkeys(self._ledger.trainings.left_out(plan.plan_id), SiteState.REFUSED)
            stored |= self._ledger.tasks.states(plan.plan_id)
            active = self._ledger.members.active()
        with self._guard:
            return tuple(
                (site, self._shown(plan.plan_id, site, stored.get(site, SiteState.OPEN), active=site in active))
                for site in plan.participants
            )

    def told(self, plan: Plan) -> tuple[tuple[str, SiteState], ...]:
        """Where every participant is, as far as analysts are told."""
        return tuple((site, SiteState.OPEN if state in _UNTOLD else state) for site, state in self.states(plan))

    def _shown(self, plan_id: str, site: str, state: SiteState, *, active: bool) -> SiteState:
        if state in (SiteState.RELEASED, SiteState.REFUSED):
            return state
        if not active:
            return SiteState.MISSING
        return SiteState.CLAIMED if state is SiteState.OPEN and (plan_id, site) in self._claimed else state

    def _may_open(self, standing: RoundStanding) -> bool:
        match standing:
            case RoundStanding(RoundState.RESERVED, _):
                return True
            case RoundStanding(RoundState.SETTLED, Outcome(answered, _, missing)):
                # Whoever released or refused has said its last word; only the missing can still change the outcome.
                return len(answered) < self._ledger.study.min_sites and bool(missing)
            case _:
                return False

    def _next(self, site: str) -> tuple[Task | None, float]:
        """The next task, or how long it makes sense to wait for a failed one."""
        with self._ledger.one_moment():
            refuse_unless_active(self._ledger.members.standing(site))
            pauses = {plan_id: self._pause(plan_id, site) for plan_id in self._ledger.tasks.waiting(site)}
            # Those that never failed first: a table that answers nothing must not keep the others from answering.
            ordered = sorted(pauses, key=lambda plan_id: (plan_id, site) in self._failures)
            ready = next((plan_id for plan_id in ordered if pauses[plan_id] <= 0), None)
            if ready is None:
                return None, min(pauses.values(), default=float("inf"))
            return Task(self._ledger.rounds.plan(ready), site, self._ledger.members.head(site)), 0.0

    def _pause(self, plan_id: str, site: str) -> float:
        with self._guard:
            failures = self._failures.get((plan_id, site))
        return 0.0 if failures is None else failures.not_before - self._clock.now()

    def forget(self, plan: Plan) -> None:
        """Drop what was only kept while the round ran."""
        with self._guard:
            for site in plan.participants:
                self._claimed.discard((plan.plan_id, site))
                self._failures.pop((plan.plan_id, site), None)
