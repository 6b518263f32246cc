"""The time and memory of `site history` over many large releases: `python bench/history.py [--releases N]`.

The ledger is as large as the releases are, 8 GB by default. Prints the processor seconds and the memory of a process
that does nothing but start, of the whole history, of the same as a table, and of one release of it in full.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from startup import STARTER

from coordinator.planning.plans import plans_for
from site_agent.store.askers import Asking
from tests.fixtures.asking import asked_by
from tests.screens.hostile_words import STUDY, Hospital
from wardround.federation.forms.release import Release, release_hash
from wardround.federation.ledger import chain
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import EMPTY
from wardround.privacy.budget.filter import Cap

TOGETHER = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=10_000)
    parser.add_argument("--numbers", type=int, default=100_000)
    size = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        hospital = Hospital(Path(name))
        last = fill(hospital, releases=size.releases, numbers=size.numbers)
        hospital.ledger.close()
        print(f"{size.releases:,} releases of {size.numbers:,} numbers")
        for words in (("--help",), (name,), (name, "--csv"), (name, last)):
            seconds, memory, took = measured(("history", *words))
            what = " ".join(("history", *words)).replace(name, "DIR").replace(last, "PLAN")
            print(f"{what:<20} {seconds:>6.2f} s of processor time, {memory:>6.0f} MiB, {took:>6.2f} s")


def fill(hospital: Hospital, *, releases: int, numbers: int) -> str:
    """So many questions, each charged and answered; the plan id of the last one."""
    ledger, study, values = hospital.ledger, parse_study(STUDY), np.arange(numbers, dtype=np.int64)
    ledger.set_cap(Cap(epsilon=1000.0, delta=1e-6))
    plans = [_plan(number) for number in range(releases)]
    for begin in range(0, releases, TOGETHER):
        some = plans[begin : begin + TOGETHER]
        for plan in some:
            ledger.spend(price(plan, study), Asking(plan, asked_by(plan, purpose="a bench")), head=EMPTY)
        with ledger._database.transaction() as connection:  # noqa: SLF001 -- a release of another extent than was paid
            for plan in some:
                payload = Release(plan.plan_id, "north", "2026-03-01", values).encode()
                body = {"plan_id": plan.plan_id, "release_hash": release_hash(payload)}
                entry = chain.append(connection, hospital.identity, kind="released", body=body)
                row = (plan.plan_id, entry.sequence, payload)
                connection.execute("INSERT INTO releases (plan_id, sequence, payload) VALUES (?, ?, ?)", row)
    return plans[-1].plan_id


def _plan(number: int) -> Plan:
    query = Query("visits", (Aggregate(Statistic.MEAN, "age"),), Comparison("age", Operator.GREATER, number % 100))
    request = AskRequest(query, epsilon=0.001, nonce=f"{number:032x}")
    return plans_for(request, parse_study(STUDY), {"north": 1000})[0]


def measured(words: tuple[str, ...]) -> tuple[float, float, float]:
    """Processor seconds, the most memory in MiB, and seconds on the clock of one `wardround site` command."""
    began = time.perf_counter()
    command = [sys.executable, "-c", STARTER, "-m", "wardround", "site", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory, time.perf_counter() - began


if __name__ == "__main__":
    main()
