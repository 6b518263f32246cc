"""Tasks: one row for each participant of a plan, handed out to the site that asks; analysts take turns.

A site that is frozen or revoked gets nothing. A task is signed when it is handed out and names the last
place of the site's own chain that the coordinator holds, so a restored or cloned site finds itself out.
"""

from __future__ import annotations

from coordinator.clock import Clock
from coordinator.members.roster import refuse_unless_active
from coordinator.rounds.open_rounds import OpenRounds
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome, RoundStanding, RoundState
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import SignedTask, Task, sign_task


def site_key(site: str) -> str:
    """What is announced when a site has something to do."""
    return f"site {site}"


def round_key(plan_id: str) -> str:
    """What is announced when a round has moved."""
    return f"round {plan_id}"


class Dispatch:
    """Opens tasks again and hands them out."""

    def __init__(self, ledger: Ledger, clock: Clock, rounds: OpenRounds) -> None:
        self._ledger = ledger
        self._clock = clock
        self._rounds = rounds

    def open_again(self, plan: Plan) -> None:
        """Ask the missing participants of a round that ended with too few answers once more.

        The charge stands, so their answer is already paid for. A round that was only reserved, by an earlier version,
        is opened for all.
        """
        needed = self._ledger.rounds.needed(plan.plan_id)
        if not _may_open(self._ledger.rounds.standing(plan.plan_id), needed=needed):
            return
        with self._ledger.tasks.opening(plan) as round_:
            if _may_open(round_.before, needed=needed):
                round_.open(at=self._clock.date(), now=self._clock.now())

    def claim(self, site: str, *, wait_seconds: float) -> SignedTask | None:
        """A task that the site has neither answered nor put before its steward, or None after the wait."""
        until = self._clock.now() + wait_seconds
        while True:
            seen = self._clock.changes(site_key(site))
            with self._ledger.one_moment():
                refuse_unless_active(self._ledger.members.standing(site))
                # Not announced: whoever watches would see that the site took it up. A round looks by itself.
                plan, pause = self._rounds.next_task(site, now=self._clock.now())
                if plan is not None:
                    task = Task(plan, site, self._ledger.members.head(site))
                    return sign_task(task, self._ledger.identity, self._ledger.rounds.asked_by(plan.plan_id))
            left = until - self._clock.now()
            if left <= 0 or self._clock.ended:
                return None
            self._clock.wait(site_key(site), seen=seen, seconds=min(left, pause))


def _may_open(standing: RoundStanding, *, needed: int) -> bool:
    """Whether a round waits to be opened, or to be opened again for those that are missing."""
    match standing:
        case RoundStanding(RoundState.RESERVED, _):
            return True
        case RoundStanding(RoundState.SETTLED, Outcome(answered, _, missing)):
            # Whoever released or refused has said its last word; only the missing can still change the outcome.
            return len(answered) < needed and bool(missing)
        case _:
            return False
