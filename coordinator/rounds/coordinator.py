"""The coordinator as its services and the simulation call it: a few verbs for analysts and sites, and no wire.

Callers are named by whoever checked their certificate; every verb looks the name up on the roster again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from coordinator.accounts.accounting import Accounting
from coordinator.clock import Patience, RealPatience
from coordinator.combining import NoiseSetting
from coordinator.members.roster import Roster
from coordinator.rounds.collection import Collection
from coordinator.rounds.dispatch import Dispatch
from coordinator.rounds.queries import Queries
from coordinator.rounds.round import DrivenRounds, Round, Rounds, ThreadedRounds, unfinished
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Question
from wardround.federation.errors import PeerUnreachable
from wardround.federation.plan.task import SignedTask, Submission
from wardround.federation.question.answer import Answer, AskRequest, BudgetReport, Preview, Progress
from wardround.federation.trust.entry import Entry


class Coordinator:
    """One study's coordinator over its ledger, which it closes in the end.

    With `threads` each running round has a thread of its own. Without, `watch` runs the round itself, and
    `patience` lets the sites of the same process work while it waits. `noiseless` and `trusted_total` only say
    what a simulation's sites do, so that the error bars are right; they change no noise.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        patience: Patience | None = None,
        threads: bool = True,
        noiseless: bool = False,
        trusted_total: bool = False,
    ) -> None:
        self.ledger = ledger
        self.study = ledger.study
        self.identity = ledger.identity
        self.roster = Roster(self.ledger)
        self._patience: Patience = RealPatience() if patience is None else patience
        self._calls = 0
        self._calls_changed = threading.Condition()
        accounting = Accounting(self.ledger, self._patience)
        self._dispatch = Dispatch(self.ledger, self._patience)
        self._collection = Collection(self.ledger, self._patience, accounting, self._dispatch)
        setting = NoiseSetting(noiseless=noiseless, trusted_total=trusted_total)
        line = Round(self.ledger, accounting, self._dispatch, self._collection, setting=setting)
        self._rounds: Rounds = ThreadedRounds(line, self._patience) if threads else DrivenRounds(line)
        self._queries = Queries(
            self.ledger, self._patience, accounting, self._dispatch, line, self._rounds, setting=setting
        )

    def claim(self, site: str, *, wait_seconds: float) -> SignedTask | None:
        """The oldest task `site` has yet to answer, waiting up to `wait_seconds` for one."""
        with self._inside():
            return self._dispatch.claim(site, wait_seconds=wait_seconds)

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Take a site's answer; a release or a signed refusal gets a receipt, the same one every time."""
        with self._inside():
            receipt = self._collection.accept(site, submission)
            # What a steward approved days later finds no round running; it goes on without anybody asking again.
            if receipt is not None and not self._rounds.running(submission.plan_id):
                self._start(unfinished(self.ledger, submission.plan_id))
            return receipt

    def ask(self, analyst: str, request: AskRequest) -> str:
        """The plan id of the question, reserved and opened durably, or answered already."""
        with self._inside():
            return self._queries.ask(analyst, request)

    def watch(self, analyst: str, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or how far the sites are once that differs from `seen`; raises the round's error."""
        with self._inside():
            return self._queries.watch(analyst, plan_id, seen=seen, wait_seconds=wait_seconds)

    def preview(self, analyst: str, request: AskRequest) -> Preview:
        """What the question would cost and how good its answer would be; nothing is spent or opened."""
        with self._inside():
            return self._queries.preview(analyst, request)

    def budget(self, analyst: str) -> BudgetReport:
        """The study's budget as the ledger has it."""
        with self._inside():
            return self._queries.budget(analyst)

    def resume(self) -> None:
        """Continue every round that a stop or a crash left unfinished."""
        with self._inside():
            self._start(unfinished(self.ledger))

    def fault(self) -> BaseException | None:
        """What a round died of, other than a refusal or a wait; the process should stop and decide from disk."""
        return self._rounds.fault()

    def stop(self) -> None:
        """Wake every waiting call and begin nothing new; what is being written is finished."""
        self._patience.end()

    def close(self) -> None:
        """Stop, wait for the calls and rounds that are under way, and close the ledger."""
        self.stop()
        with self._calls_changed:
            self._calls_changed.wait_for(lambda: self._calls == 0)
        self._rounds.close()
        self.ledger.close()

    def _start(self, questions: list[Question]) -> None:
        # A release that arrives while the coordinator stops is kept; its round goes on after the restart.
        with contextlib.suppress(PeerUnreachable):
            for question in questions:
                self._rounds.start(question)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """Count a call, so that the ledger is not closed under it; none begins once the coordinator stops."""
        with self._calls_changed:
            if self._patience.ended:
                raise PeerUnreachable("The coordinator is stopping; ask again.")
            self._calls += 1
        try:
            yield
        finally:
            with self._calls_changed:
                self._calls -= 1
                self._calls_changed.notify_all()
