"""What a ledger stores, in canonical form beside the messages of before, and how long it takes to rewrite old folders.

Run:  .venv/bin/python bench/stored_words.py

Prints bytes, and the processor time of one call in microseconds as `bench/codec.py` does; then the seconds that the
first start over 10,000 plans of an earlier version takes, and that of any later one.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

from codec import PLAN, timed

from coordinator.store.ledger import Ledger, begin_ledger
from protos import words
from protos.words import stored_plan
from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import SignedTask, Task
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import EMPTY
from wardround.federation.trust.identity import Identity

STORED = 10_000
STUDY = """\
name = "cardio"
[budget]
epsilon = 3.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.encounters.columns]
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
"""
FEW = dataclasses.replace(PLAN, participants=PLAN.participants[:4])
MODEL = Model(ModelKind.LOGISTIC, "encounters", "died", tuple(f"column_{number}" for number in range(100)))
STEP = Step(Training(MODEL, (Stage(StageKind.GRADIENT, Fraction(4096), rounds=20),)), 0, 7, weights=b"\x3f" * 808)
ROUND = dataclasses.replace(FEW, query=STEP)


def stored() -> Iterator[tuple[str, object, type, Callable[[], bytes], Callable[[bytes], object]]]:
    """What is compared: its name, the word and its kind, who writes its message and who reads it."""
    for name, plan in (("plan of 4 sites", FEW), ("plan of 1,000 sites", PLAN), ("step with 101 weights", ROUND)):
        yield name, plan, Plan, lambda plan=plan: words.PLAN.encode(plan), words.PLAN.decode
    task = SignedTask(Task(FEW, "hospital-1", EMPTY), bytes(64))
    yield "task of 4 sites", task, SignedTask, lambda: words.TASK.encode(task), words.TASK.decode


def of_before(folder: Path) -> Ledger:
    """A ledger with so many plans as an earlier version stored them."""
    ledger = begin_ledger(folder, study=parse_study(STUDY), identity=Identity.generate())
    plans = [dataclasses.replace(FEW, nonce=f"{number:x}") for number in range(STORED)]
    with ledger.database.transaction() as connection:
        connection.executemany(
            "INSERT INTO rounds (plan_id, plan, analyst, epsilon, delta, mu_squared, pure, slack, reserved_at, state)"
            " VALUES (?, ?, 'ada', 0.1, 1e-9, 1, 0, 0, 0.0, 'answered')",
            [(plan.plan_id, words.PLAN.encode(plan)) for plan in plans],
        )
    return ledger


def main() -> None:
    print(f"{'':<24}{'bytes':>8}{'before':>8}{'write µs':>10}{'before':>8}{'read µs':>9}{'before':>8}")
    for name, word, kind, write, read in stored():
        content, message = canonical.encode(word), write()
        written = timed(lambda word=word: canonical.encode(word)), timed(write)
        found = (
            timed(lambda kind=kind, content=content: decode(kind, content)),
            timed(lambda read=read, message=message: read(message)),
        )
        print(f"{name:<24}{len(content):>8}{len(message):>8}{written[0]:>10.0f}{written[1]:>8.0f}", end="")
        print(f"{found[0]:>9.0f}{found[1]:>8.0f}")
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as folder:
        ledger = of_before(Path(folder))
        for which in ("first", "later"):
            began, worked = time.perf_counter(), time.process_time()
            ledger.rounds.rewrite_messages(stored_plan)
            took = time.perf_counter() - began, time.process_time() - worked
            print(f"{which} start over {STORED:,} plans: {took[0]:.3f} s, of which {took[1]:.3f} s of processor time")
        ledger.close()


if __name__ == "__main__":
    main()
