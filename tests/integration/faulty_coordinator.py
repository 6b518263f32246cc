"""A coordinator that dies at one point of a round: FOLDER POINT. A test's entry point, shipped nowhere.

The process is the production one; each durable step of a round is wrapped so that the process kills itself
(SIGKILL) inside the step's transaction, before the commit, or right after it. With `timeless` instead of a point
nothing dies: a day passes for each byte in FOLDER/days, so that a test and not a clock decides when a deadline is over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from coordinator.accounts.accounting import Accounting
from coordinator.clock import RealClock
from coordinator.rounds import round as line
from coordinator.rounds.collection import Collection
from coordinator.rounds.round import Round
from coordinator.serving import serve
from coordinator.store.kept_answers import AnswerStore
from wardround.federation.ledger.sqlite_file import Database

STEPS = ("reserve", "accept", "conclude")
# Of an answer of many numbers, which is settled and kept in two transactions.
LARGE = ("before_settle_commit", "after_settle_commit", "before_answer_commit", "after_answer")
POINTS = (*(f"{when}" for step in STEPS for when in (f"before_{step}_commit", f"after_{step}")), *LARGE)


class Fate:
    """The point at which this process ends."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.step = threading.local()

    def at(self, point: str) -> None:
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, owner: object, name: str, *, step: str) -> None:
        """Replace a function by one that ends the process after it, and marks its commits as this step's."""
        original: Callable[..., object] = getattr(owner, name)

        def stepping(*arguments: object, **named: object) -> object:
            self.step.name = step
            try:
                result = original(*arguments, **named)
            finally:
                self.step.name = ""
            self.at(f"after_{step}")
            return result

        setattr(owner, name, stepping)

    def wrap_commits(self) -> None:
        """End inside a step's transaction: everything is written, nothing is committed."""
        original = Database.transaction

        @contextlib.contextmanager
        def transaction(database: Database) -> Iterator[sqlite3.Connection]:
            with original(database) as connection:
                yield connection
                self.at(f"before_{getattr(self.step, 'name', '')}_commit")
            self.at(f"after_{getattr(self.step, 'name', '')}_commit")

        Database.transaction = transaction  # type: ignore[method-assign]


def tell_time_by(days: Path) -> None:
    """Let a day pass for each byte of the file."""
    original = RealClock.now

    def now(clock: RealClock) -> float:
        return original(clock) + 86_400.0 * (days.stat().st_size if days.exists() else 0)

    RealClock.now = now  # type: ignore[method-assign]


def main(path: Path, point: str) -> None:
    if point == "timeless":
        tell_time_by(path / "days")
        serve.serve(path, announce=print)
        return
    if point not in POINTS:
        raise SystemExit(f"no such point: {point}")
    fate = Fate(point)
    fate.wrap(Accounting, "reserve", step="reserve")
    fate.wrap(Collection, "accept", step="accept")
    fate.wrap(Round, "conclude", step="conclude")
    if point in LARGE:
        line.FEW_NUMBERS = -1
        fate.wrap(Round, "_settle", step="settle")
        fate.wrap(AnswerStore, "keep", step="answer")
    fate.wrap_commits()
    serve.serve(path, announce=print)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
