"""The coordinator as its services and the simulation call it: a few verbs for analysts and sites, and no wire.

Callers are named by whoever checked their certificate; every verb looks the name up on the roster again.
"""

from __future__ import annotations

from pathlib import Path

from coordinator.accounting import Accounting
from coordinator.collection import Collection
from coordinator.combining import NoiseSetting
from coordinator.dispatch import Dispatch
from coordinator.ledger import open_ledger
from coordinator.patience import Patience, RealPatience
from coordinator.queries import Queries
from coordinator.roster import Roster
from coordinator.rounds import DrivenRounds, Round, Rounds, ThreadedRounds, unfinished
from wardround.federation.answer import Answer, AskRequest, BudgetReport, Preview, Progress
from wardround.federation.identity import Identity
from wardround.federation.ledger.entry import Entry
from wardround.federation.study import Study
from wardround.federation.task import SignedTask, Submission


class Coordinator:
    """One study's coordinator over one folder.

    With `threads` each running round has a thread of its own. Without, `watch` runs the round itself, and
    `patience` lets the sites of the same process work while it waits. `noiseless` and `trusted_total` only say
    what a simulation's sites do, so that the error bars are right; they change no noise.
    """

    def __init__(
        self,
        folder: Path,
        *,
        study: Study,
        identity: Identity,
        patience: Patience | None = None,
        threads: bool = True,
        durable: bool = True,
        noiseless: bool = False,
        trusted_total: bool = False,
    ) -> None:
        self.study = study
        self.identity = identity
        self.ledger = open_ledger(folder, study=study, identity=identity, durable=durable)
        self.roster = Roster(self.ledger)
        self._patience: Patience = RealPatience() if patience is None else patience
        accounting = Accounting(self.ledger)
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
        return self._dispatch.claim(site, wait_seconds=wait_seconds)

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Take a site's answer; a release or a signed refusal gets a receipt, the same one every time."""
        receipt = self._collection.accept(site, submission)
        # What a steward approved days later finds no round running; it goes on without anybody asking again.
        if receipt is not None and not self._rounds.running(submission.plan_id):
            for question in unfinished(self.ledger, submission.plan_id):
                self._rounds.start(question)
        return receipt

    def ask(self, analyst: str, request: AskRequest) -> str:
        """The plan id of the question, reserved and opened durably, or answered already."""
        return self._queries.ask(analyst, request)

    def watch(self, analyst: str, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or how far the sites are once that differs from `seen`; raises the round's error."""
        return self._queries.watch(analyst, plan_id, seen=seen, wait_seconds=wait_seconds)

    def preview(self, analyst: str, request: AskRequest) -> Preview:
        """What the question would cost and how good its answer would be; nothing is spent or opened."""
        return self._queries.preview(analyst, request)

    def budget(self, analyst: str) -> BudgetReport:
        """The study's budget as the ledger has it."""
        return self._queries.budget(analyst)

    def resume(self) -> None:
        """Continue every round that a stop or a crash left unfinished."""
        for question in unfinished(self.ledger):
            self._rounds.start(question)

    def fault(self) -> BaseException | None:
        """What a round died of, other than a refusal or a wait; the process should stop and decide from disk."""
        return self._rounds.fault()

    def close(self) -> None:
        """Wake every waiting call, let running rounds end, close the ledger."""
        self._patience.end()
        self._rounds.close()
        self.ledger.close()
