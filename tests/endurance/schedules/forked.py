"""A federation of real processes that start in a moment, are killed or die, and are started again."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.endurance.founding import found
from tests.endurance.invariants import Oracle
from tests.endurance.schedules.failing_files import FailingFiles
from tests.endurance.schedules.nursery import Born, Nursery
from tests.integration.stage import AGES, PATIENCE_SECONDS, SHARP, Asked, Federation
from tests.integration.terms import Terms
from wardround.analyst.asking.client import connect
from wardround.analyst.showing.documents import Json
from wardround.federation.errors import Unavailable

# A question that is only to be charged and answered: many of them fit into the budget.
BLUNT = 5.0
COORDINATOR = "consortium"
ANSWERED = 0


@dataclass
class Forked:
    """The stage of a federation, who starts its roles, and which of them run now."""

    stage: Federation
    nursery: Nursery
    failing: dict[str, FailingFiles]
    oracle: Oracle = field(init=False)
    running: dict[str, Born] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.stage)

    @property
    def roles(self) -> tuple[str, ...]:
        return (COORDINATOR, *self.stage.sites)

    # --- processes ----------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a role that does not run; nobody waits until it serves."""
        role = "coordinator" if name == COORDINATOR else "site"
        log = self.stage.folder / f"{name}.log"
        self.running[name] = self.nursery.start(role, log, self.stage.folder / name)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def start_again(self) -> dict[str, int]:
        """What a service manager does: whoever has ended is started; how they ended."""
        ended: dict[str, int] = {}
        for name, process in list(self.running.items()):
            if (code := process.poll()) is not None:
                ended[name] = code
                self.start(name)
        return ended

    def stop(self) -> None:
        """Everybody ends in order."""
        for name in (*self.stage.sites, COORDINATOR):
            process = self.running.pop(name)
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0, f"{name} does not end in order\n{self.log(name)}"

    def log(self, name: str) -> str:
        return "\n".join(self.stage.log(name).splitlines()[-40:])

    # --- questions ----------------------------------------------------------------------------------------

    def asking(self, chance: random.Random) -> list[Asked[dict[str, Json]]]:
        """A few questions on their way; whoever is told to ask again does so until there is an answer."""
        bound = chance.randint(81, 110)
        nonces = [f"{chance.getrandbits(128):032x}" for _ in range(2)]
        same = f"SELECT COUNT(DISTINCT patient_id) FROM encounters WHERE age < {bound}"
        asked = [("ada", same, nonces[0], SHARP), ("bob", same, nonces[0], SHARP), ("ada", AGES, nonces[1], BLUNT)]
        return [Asked(lambda each=each: self._ask(*each)) for each in asked]  # type: ignore[misc]

    def _ask(self, analyst: str, sql: str, nonce: str, epsilon: float) -> dict[str, Json]:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with connect(self.stage.profile(analyst)) as client:
                    return client.ask(sql, epsilon=epsilon, nonce=nonce, limit_seconds=PATIENCE_SECONDS).document()
            except Unavailable:
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def collect(self, asked: list[Asked[dict[str, Json]]]) -> None:
        """Wait for every answer, and note it."""
        for question in asked:
            answer = question.answer()
            self.oracle.note(answer, truth=None if len(answer["estimates"]) > 1 else 111)  # type: ignore[arg-type]

    def close(self) -> None:
        self.nursery.close()
        for name in self.roles:
            print(f"--- {name}\n{self.log(name)}")


@contextlib.contextmanager
def forked(folder: Path, *, made: Path | None = None) -> Iterator[Forked]:
    """A founded federation whose roles run; with the library their files can fail."""
    stage = found(folder, Terms())
    failing = {} if made is None else {name: FailingFiles(folder / name) for name in (COORDINATOR, *stage.sites)}
    federation = Forked(stage, Nursery(made), failing)
    try:
        for name in federation.roles:
            federation.start(name)
        yield federation
    finally:
        federation.close()
