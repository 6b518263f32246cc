"""What a site gets back whose ledger is an older copy: its own entries, its own releases, and what was charged at it.

Everything but the list of charges is under the site's own signature, and it is given to nobody else.
"""

from __future__ import annotations

from coordinator.rounds.calls_inside import CallsInside
from coordinator.store.ledger import Ledger
from wardround.federation.errors import UnknownTask
from wardround.federation.plan.task import SignedTask, Task, sign_task
from wardround.federation.trust.entry import Entry


class Returning:
    """Reads what is kept of one site."""

    def __init__(self, ledger: Ledger, calls: CallsInside) -> None:
        self._ledger = ledger
        self._calls = calls

    def chain(self, site: str, *, after: int, most: int) -> tuple[Entry, ...]:
        """The entries that the site showed of its own ledger after this place."""
        with self._calls.one():
            return self._ledger.submissions.entries_after(site, after, most=most)

    def plan(self, site: str, plan_id: str, *, first_byte: int, most: int) -> tuple[SignedTask, bytes]:
        """A plan as it would be handed out to the site, and a piece of what the site released for it."""
        ledger = self._ledger
        with self._calls.one(), ledger.one_moment():
            if not ledger.tasks.exists(plan_id, site):
                raise UnknownTask
            task = Task(ledger.rounds.plan(plan_id), site, ledger.members.head(site))
            signed = sign_task(task, ledger.identity, ledger.rounds.asked_by(plan_id))
            return signed, ledger.submissions.piece(plan_id, site, first_byte=first_byte, most=most)

    def reserved(self, site: str, *, after: str, most: int) -> tuple[str, ...]:
        """The plans that were asked of a site and that it did not refuse, in the order of their ids."""
        with self._calls.one():
            return self._ledger.tasks.reserved(site, after=after, most=most)
