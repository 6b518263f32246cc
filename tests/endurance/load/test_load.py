"""Two hundred agents and fifty analysts over loopback: no release is lost, kept twice or paid for beyond the budget.

`make test-load` runs it and prints what the processes hold meanwhile; a small part is in `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.endurance.invariants import Oracle
from tests.endurance.load.hospitals import PATIENTS, found_many
from tests.endurance.load.sampling import Samples, sampling
from tests.endurance.seeds import say
from tests.integration.stage import AGES, Federation, closing, eventually
from wardround.analyst.asking.client import connect
from wardround.federation.errors import BudgetExceeded, Unavailable

PROCESSES = 4
EPSILON = 0.1
CAP = 3.0
COUNT = "SELECT COUNT(*) FROM encounters"
# In MiB, threads and descriptors, for each thousand releases: far below what one call or connection each would leave.
LIMITS = (8.0, 2.0, 2.0)
PATIENCE_SECONDS = 1500.0


def start_agents(federation: Federation, processes: int) -> None:
    for number in range(processes):
        folders = [federation.site(name) for name in federation.sites[number::processes]]
        words = [sys.executable, "-m", "tests.endurance.load.agents_process", *map(str, folders)]
        name = f"agents-{number}"
        with (federation.folder / f"{name}.log").open("ab") as stream:
            root = Path(__file__).parents[3]
            federation.running[name] = subprocess.Popen(words, cwd=root, stdout=stream, stderr=stream)
    for number in range(processes):
        eventually(lambda number=number: "serving" in federation.log(f"agents-{number}"), what="the agents serve")  # type: ignore[misc]


def ask_all(federation: Federation, analyst: str, questions: int) -> list[str]:
    """So many questions of one analyst, one after the other; the plans they were."""
    plans: list[str] = []
    with connect(federation.profile(analyst)) as client:
        for number in range(questions):
            nonce = f"{number:08x}"
            while True:
                try:
                    answer = client.ask(
                        AGES, epsilon=EPSILON, nonce=f"{analyst[-2:]}{nonce}", limit_seconds=PATIENCE_SECONDS
                    )
                except Unavailable:
                    time.sleep(0.2)
                else:
                    break
            assert len(answer.answer.answered) == len(federation.sites), answer.answer.missing
            plans.append(answer.answer.plan_id)
    return plans


def run(folder: Path, *, sites: int, analysts: int, questions: int, processes: int) -> tuple[Federation, Samples]:
    began = time.monotonic()
    federation = found_many(folder, sites=sites, analysts=analysts, epsilon=CAP)
    with closing(federation):
        federation.start_coordinator()
        start_agents(federation, processes)
        say(f"load: {sites} agents in {processes} processes, {analysts} analysts")
        running = {name: process.pid for name, process in federation.running.items()}
        with sampling(running, federation.received) as samples, ThreadPoolExecutor(analysts) as threads:
            names = [f"analyst-{number:02}" for number in range(analysts)]
            asked = [threads.submit(ask_all, federation, name, questions) for name in names]
            plans = [plan for each in asked for plan in each.result()]
        say(f"  {sites * len(plans)} releases, after {time.monotonic() - began:.0f} s")
        check_budget(federation)
        for name in list(federation.running):
            assert federation.stop(name) == 0, federation.log(name)[-2000:]
        check(federation, plans)
    say(f"  checked, after {time.monotonic() - began:.0f} s")
    return federation, samples


def check_budget(federation: Federation) -> None:
    """Nobody gets more than there is."""
    with connect(federation.profile("analyst-00")) as client, pytest.raises(BudgetExceeded):
        client.ask(COUNT, epsilon=CAP, limit_seconds=PATIENCE_SECONDS)


def check(federation: Federation, plans: list[str]) -> None:
    """Every question is another plan; of each there is one release, one charge and one receipt at every site."""
    assert len(set(plans)) == len(plans)
    oracle = Oracle(federation, dict.fromkeys(federation.sites, PATIENTS))
    oracle.check()
    assert federation.received() == len(plans) * len(federation.sites)
    for name in federation.sites:
        counts = "SELECT (SELECT count(*) FROM {}), (SELECT count(*) FROM {}), (SELECT count(*) FROM {})"
        assert federation.rows(name, counts.format("charges", "releases", "receipts")) == [(len(plans),) * 3], name


def test_a_few_agents_and_analysts(tmp_path: Path) -> None:
    run(tmp_path / "federation", sites=4, analysts=3, questions=2, processes=1)


@pytest.mark.slow
@pytest.mark.serial
def test_two_hundred_agents_and_fifty_analysts(tmp_path: Path) -> None:
    questions = int(os.environ.get("QUESTIONS", "2"))
    _, samples = run(tmp_path / "federation", sites=200, analysts=51, questions=questions, processes=PROCESSES)
    for name in samples.held:
        grown = samples.later_half(name)
        first, last = samples.held[name][0], samples.held[name][-1]
        say(f"  {name}: memory, threads, descriptors {first} at first, {last} at last; in 1,000 releases {grown}")
        assert all(one <= most for one, most in zip(grown, LIMITS, strict=True)), name
