"""How long one question takes over loopback, and how many a second: `python bench/ask.py [--asks N]`.

Coordinator and four sites are separate processes with mutual TLS and durable ledgers. The limit printed
beside it is what the durable writes alone cost on this disk, one after another, on a question's critical
path: reserve, open, claim, charge, keep, accept, settle, answer.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from wardround.analyst.asking.client import connect
from wardround.cli.demo_scene import SITE, DemoScene
from wardround.federation.ledger.sqlite_file import Database
from wardround.simulation.synthetic import STUDY

WRITES_ON_THE_PATH = 8
SITES = 4
ANALYSTS = 16
EPSILON = 0.05
SQL = "SELECT COUNT(*) FROM encounters WHERE age >= 40"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asks", type=int, default=200)
    asks = parser.parse_args().asks
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        folder = Path(name)
        stage = rich_stage(folder, patients=1000)
        try:
            stage.begin(SITES)
            for number in range(ANALYSTS):
                stage.run("coordinator", "analyst", "consortium", f"a{number}", "--out", f"a{number}.profile")
            alone = latencies(folder / "analyst.profile", asks)
            rate = throughput(folder, asks)
            commit = commit_seconds(folder / "probe.sqlite")
        finally:
            stage.stop()
    report(alone, rate, commit)


def rich_stage(folder: Path, *, patients: int) -> DemoScene:
    """The demo's federation with a budget that no benchmark uses up."""
    study = STUDY.replace("epsilon = 3.0", "epsilon = 1000.0").replace("pure_epsilon = 0.5", "pure_epsilon = 0.0")
    site = SITE.replace("epsilon = 3.0", "epsilon = 1000.0")
    return DemoScene(folder, lambda text: print(text, file=sys.stderr), study=study, site=site, patients=patients)


def latencies(profile: Path, asks: int) -> list[float]:
    """Seconds of each of `asks` questions, one after another."""
    seconds = []
    with connect(profile) as federation:
        federation.ask(SQL, epsilon=EPSILON)
        for _ in range(asks):
            began = time.perf_counter()
            federation.ask(SQL, epsilon=EPSILON, fresh=True)
            seconds.append(time.perf_counter() - began)
    return seconds


def throughput(folder: Path, asks: int) -> float:
    """Questions a second from `ANALYSTS` analysts at once."""
    each = max(asks // ANALYSTS, 1)

    def work(number: int) -> None:
        with connect(folder / f"a{number}.profile") as federation:
            for _ in range(each):
                federation.ask(SQL, epsilon=EPSILON, fresh=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(ANALYSTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return each * ANALYSTS / (time.perf_counter() - began)


def commit_seconds(path: Path) -> float:
    """The median cost of one durable transaction, as the ledgers make them."""
    database = Database(path, schema="CREATE TABLE probe (number INTEGER) STRICT;")
    seconds = []
    for number in range(100):
        began = time.perf_counter()
        with database.transaction() as connection:
            connection.execute("INSERT INTO probe VALUES (?)", (number,))
        seconds.append(time.perf_counter() - began)
    database.close()
    return float(np.median(seconds))


def report(alone: list[float], rate: float, commit: float) -> None:
    p50, p99 = (1000 * float(np.quantile(alone, q)) for q in (0.5, 0.99))
    limit = 1000 * WRITES_ON_THE_PATH * commit
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"one question, {SITES} sites, {len(alone)} asked:  p50 {p50:.1f} ms   p99 {p99:.1f} ms")
    each = f"{WRITES_ON_THE_PATH} × {1000 * commit:.2f} ms, SQLite {sqlite3.sqlite_version}"
    print(f"durable writes alone ({each}): {limit:.1f} ms")
    print(f"ratio p50 / durable writes: {p50 / limit:.2f}")
    print(f"{ANALYSTS} analysts at once: {rate:.1f} questions a second")
    print(f"peak memory: analyst {own:.0f} MiB, largest role {others:.0f} MiB")


if __name__ == "__main__":
    main()
