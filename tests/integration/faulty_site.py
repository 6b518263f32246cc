"""A site agent that dies at one point of the write order: FOLDER POINT. A test's entry point, shipped nowhere.

The agent is the production one; its ledger, dataset and link are wrapped so that the process kills itself
(SIGKILL: no cleanup, no flush) before or after a step; at `POINT:3` it has been there twice before. `zero` instead
of a point adds no noise, `serve` nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from site_agent.reading.batches import Fingerprint, Fingerprinted
from site_agent.reading.dataset import Dataset
from site_agent.reading.examples import Examples
from site_agent.serving.folder import open_folder
from site_agent.serving.link import GrpcLink
from site_agent.serving.serve import make_agent
from site_agent.store.askers import Asking
from site_agent.store.closed_tables import ClosedTables
from site_agent.store.ledger import SiteLedger
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Charge
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import Released, SignedTask, Submission
from wardround.federation.study.study import Table
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.privacy.mechanisms.randomness import SecureChance
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.noise import ZeroNoise

POINTS = (
    "after_claim",
    "before_spend_commit",
    "after_spend",
    "after_read",
    "before_keep_commit",
    "after_keep",
    "before_submit",
    "after_submit",
    "before_receipt_commit",
    "after_receipt",
)
CLOSING_POINTS = ("before_close_commit", "after_close")

_Result = TypeVar("_Result")


class Fate:
    """The point at which this process ends."""

    def __init__(self, point: str, *, visits: int = 1) -> None:
        self.point = point
        self.visits = visits
        self.step = threading.local()

    def at(self, point: str) -> None:
        if point != self.point:
            return
        self.visits -= 1
        if self.visits == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def during(self, step: str, action: Callable[[], _Result]) -> _Result:
        """Run one write; its commit knows which step it belongs to."""
        self.step.name = step
        try:
            result = action()
        finally:
            self.step.name = ""
        self.at(f"after_{step}")
        return result

    def wrap_commits(self, database: Database) -> None:
        """End inside the transaction: everything is written, nothing is committed."""
        original = database.transaction

        @contextlib.contextmanager
        def transaction() -> Iterator[sqlite3.Connection]:
            with original() as connection:
                yield connection
                self.at(f"before_{getattr(self.step, 'name', '')}_commit")

        database.transaction = transaction  # type: ignore[method-assign]


class FaultyLedger(SiteLedger):
    fate: Fate

    def spend(self, charge: Charge, asking: Asking, *, head: Head, table: str = "") -> None:
        self.fate.during("spend", lambda: super(FaultyLedger, self).spend(charge, asking, head=head, table=table))

    def keep(self, release: Release) -> Released:
        return self.fate.during("keep", lambda: super(FaultyLedger, self).keep(release))

    def delivered(self, plan_id: str, receipt: Entry) -> None:
        self.fate.during("receipt", lambda: super(FaultyLedger, self).delivered(plan_id, receipt))


class FaultyTables(ClosedTables):
    fate: Fate

    @classmethod
    def wrapped(cls, ledger: SiteLedger, fate: Fate) -> FaultyTables:
        """The closed tables of a ledger whose commits end at this point."""
        fate.wrap_commits(ledger._database)
        found = cls(ledger.tables.database, ledger.tables.identity, ledger.tables.today)
        object.__setattr__(found, "fate", fate)
        return found

    def close(self, table: str, *, source: str) -> None:
        self.fate.during("close", lambda: super(FaultyTables, self).close(table, source=source))


class FaultyDataset:
    def __init__(self, dataset: Dataset, fate: Fate) -> None:
        self._dataset = dataset
        self._fate = fate

    def check(self, form: AnswerLayout) -> None:
        self._dataset.check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        read = self._dataset.bounded(form)
        self._fate.at("after_read")
        return read

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        read = self._dataset.keys(form)
        self._fate.at("after_read")
        return read

    def examples(self, form: StepLayout) -> Examples:
        read = self._dataset.examples(form)
        self._fate.at("after_read")
        return read

    def fingerprint(self, table: Table) -> Fingerprint:
        assert isinstance(self._dataset, Fingerprinted)
        return self._dataset.fingerprint(table)


class FaultyLink:
    def __init__(self, link: GrpcLink, fate: Fate) -> None:
        self._link = link
        self._fate = fate

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        task = self._link.claim(wait_seconds=wait_seconds, receipt=receipt)
        if task is not None:
            self._fate.at("after_claim")
        return task

    def submit(self, submission: Submission) -> Entry | None:
        self._fate.at("before_submit")
        receipt = self._link.submit(submission)
        self._fate.at("after_submit")
        return receipt

    def show(self, chain: Sequence[Entry]) -> None:
        self._link.show(chain)

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        self._link.rejoin(chain, recalled, head)

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        return self._link.upkeep(receipt)

    def greet_again(self) -> None:
        self._link.greet_again()

    def close(self) -> None:
        self._link.close()


def main(path: Path, words: str) -> None:
    point, _, visits = words.partition(":")
    if point not in (*POINTS, *CLOSING_POINTS, "zero", "serve"):
        raise SystemExit(f"no such point: {point}")
    folder, fate = open_folder(path), Fate(point, visits=int(visits or 1))
    with serving_lock(folder.path):
        ledger = FaultyLedger(folder.ledger, identity=folder.identity())
        ledger.fate = fate
        ledger.tables = FaultyTables.wrapped(ledger, fate)
        agent = make_agent(folder, ledger, noise=ZeroNoise() if point == "zero" else SecureChance())
        agent.pipeline = replace(agent.pipeline, dataset=FaultyDataset(agent.pipeline.dataset, fate))
        agent.link = FaultyLink(agent.link, fate)  # type: ignore[arg-type]
        agent.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
