"""A site that dies: runs the write order over a few plans and kills itself, or is killed, between any two steps.

    python -m tests.federation.ledger.crash_process FOLDER statements           one child dies before each SQL statement
    python -m tests.federation.ledger.crash_process FOLDER moments TIMES SEED   children are killed at random moments

The failpoints are here: the ledger is wrapped, nothing in it knows of them. Every child appends to FOLDER/N/events
what it read and what it sent, as the outside world would see it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from site_agent.store.ledger import SiteLedger
from tests.federation.ledger.dying import Dying
from tests.federation.ledger.ledger_bench import CAP, Bench, asking, plan_id, spend
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.identity import Identity

WORDS = ("a", "keys", "step1", "step0")
REFUSED = "no"


def scenario(folder: Path, *, words: tuple[str, ...], keeping: Durability = Durability.FILE) -> None:
    """What an agent does, from init to delivery; safe to repeat after any death.

    A process that dies does not lose what the operating system holds, so waiting for the disk only adds moments.
    """
    folder.mkdir(exist_ok=True)
    events = os.open(folder / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    bench = Bench.__new__(Bench)
    bench.folder, bench.keeping = folder, keeping
    bench.identity, bench.coordinator = (
        Identity.load(folder / "identity.pem"),
        Identity.load(folder / "coordinator.pem"),
    )
    bench.ledger = SiteLedger.create(
        folder,
        identity=bench.identity,
        name="st-mary",
        study_hash="0" * 64,
        dataset="ehr-2026",
        coordinator_key=bench.coordinator.public.key,
        keeping=keeping,
    )
    bench.ledger.set_cap(CAP)
    bench.ledger.refuse(asking(REFUSED), RefusalReason.PLAN)
    for word in words:
        if bench.ledger.find(plan_id(word)) is None:
            spend(bench.ledger, word)
            os.write(events, f"read {word}\n".encode())
            bench.ledger.keep(bench.release(word))
        for kept in bench.ledger.undelivered():
            payload = getattr(kept, "payload", b"")
            os.write(events, f"sent {kept.plan_id} {release_hash(payload)}\n".encode())
            bench.ledger.delivered(kept.plan_id, bench.receipt(kept))
    os.write(events, b"done\n")
    bench.ledger.close()


def child(run: Callable[[], None]) -> int:
    """Run in a process of its own; its id. Nothing is open yet, so a fork is clean."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)
    return pid


def prepare(folder: Path) -> Path:
    folder.mkdir(parents=True)
    Identity.generate().save(folder / "identity.pem")
    Identity.generate().save(folder / "coordinator.pem")
    return folder


def die_before_each_statement(root: Path) -> int:
    """One child for each statement of the scenario; the number of deaths."""
    import site_agent.store.ledger

    site_agent.store.ledger.Database = Dying  # type: ignore[misc]
    for number in range(1, 1000):
        folder = prepare(root / str(number))

        def run(number: int = number, folder: Path = folder) -> None:
            Dying.left = number
            scenario(folder, words=WORDS)

        _, status = os.waitpid(child(run), 0)
        if os.WIFEXITED(status):
            return number - 1
    return -1


def die_at_random_moments(root: Path, times: int, seed: int) -> int:
    """Children that answer plan after plan until they are killed, each in the same folder as two before it."""
    chance, deaths = random.Random(seed), 0
    for number in range(times):
        folder = root / str(number // 3)
        if not folder.exists():
            prepare(folder)
        words = tuple(f"{letter}{number % 3}" for letter in "abcd")
        pid = child(lambda folder=folder, words=words: scenario(folder, words=words, keeping=Durability.DURABLE))
        time.sleep(chance.uniform(0.0, 0.12))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        deaths += os.WIFSIGNALED(status)
    return deaths


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if sys.argv[2] == "statements":
        print(die_before_each_statement(place))
    else:
        print(die_at_random_moments(place, int(sys.argv[3]), int(sys.argv[4])))
