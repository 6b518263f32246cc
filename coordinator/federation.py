"""The coordinator as its services and the simulation call it: five verbs for analysts and sites, and no wire.

Callers are named by whoever checked their certificate; every verb looks the name up on the roster again.
"""

from __future__ import annotations

from pathlib import Path

from coordinator.ledger import open_ledger
from coordinator.patience import Patience, RealPatience
from coordinator.roster import Roster
from wardround.federation.answer import Answer, AskRequest, BudgetReport, Preview, Progress
from wardround.federation.identity import Identity
from wardround.federation.ledger.entry import Entry
from wardround.federation.study import Study
from wardround.federation.task import SignedTask, Submission


class Coordinator:
    """One study's coordinator over one folder."""

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
    ) -> None:
        self.study = study
        self.identity = identity
        self.ledger = open_ledger(folder, study=study, identity=identity, durable=durable)
        self.roster = Roster(self.ledger)
        self._patience: Patience = RealPatience() if patience is None else patience

    def claim(self, site: str, *, wait_seconds: float) -> SignedTask | None:
        """The oldest task `site` has yet to answer, waiting up to `wait_seconds` for one."""
        raise NotImplementedError

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Take a site's answer; a release or a signed refusal gets a receipt, the same one every time."""
        raise NotImplementedError

    def ask(self, analyst: str, request: AskRequest) -> str:
        """The plan id of the question, reserved and opened durably, or answered already."""
        raise NotImplementedError

    def watch(self, analyst: str, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or how far the sites are once that differs from `seen`; raises the round's error."""
        raise NotImplementedError

    def preview(self, analyst: str, request: AskRequest) -> Preview:
        """What the question would cost and how good its answer would be; nothing is spent or opened."""
        raise NotImplementedError

    def budget(self, analyst: str) -> BudgetReport:
        """The study's budget as the ledger has it."""
        raise NotImplementedError

    def resume(self) -> None:
        """Continue every round that a stop or a crash left unfinished."""
        raise NotImplementedError

    def fault(self) -> BaseException | None:
        """What a round died of, other than a refusal or a wait; the process should stop and decide from disk."""
        raise NotImplementedError

    def close(self) -> None:
        """Wake every waiting call, let running rounds end, close the ledger."""
        raise NotImplementedError
