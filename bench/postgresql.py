"""A bounded, noised count by diagnosis inside PostgreSQL 18 against its own plain count of the same rows.

The plain query protects nobody; the ratio is what the bound costs. One process of PostgreSQL without parallel
workers; processor time is that of the database's process and of ours together, and the peak is the memory that
the database's process has to itself. The database is made here, of the wheel the tests use, and removed again.
Run with: python -m bench.postgresql [--rows N] [--max-rows-per-unit M] [--repeats K] [--more]
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tests.site_agent.sources.postgresql_cluster import READER, Cluster, absent, begun

DIAGNOSES = 200
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.02
_SETTLE_SECONDS = 1.0


def generate(cluster: Cluster, rows: int) -> None:
    """Encounters in no order, about ten for each patient; each has a random rank within its patient."""
    mixed = "(hashint8extended(i, {}) & 9223372036854775807) % {}"
    cluster.run(
        "SET work_mem = '2GB'",
        "CREATE TABLE visits AS SELECT patient_id, diagnosis, sbp, "
        "(row_number() OVER (PARTITION BY patient_id ORDER BY r))::int AS place FROM ("
        f"SELECT {mixed.format(1, max(rows // 10, 1))} AS patient_id, random() AS r, "
        f"'D' || lpad(({mixed.format(2, DIAGNOSES)})::text, 3, '0') AS diagnosis, "
        f"80 + ({mixed.format(3, 1200)}) / 10.0::float8 AS sbp FROM generate_series(1, {rows}) AS i) AS made "
        "ORDER BY r",
        "CREATE UNIQUE INDEX ON visits (patient_id, place)",
        "VACUUM ANALYZE visits",
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processors and of the clock, and MiB at the peak."""

    processor: float = float("inf")
    elapsed: float = float("inf")
    memory: float = 0.0

    def better(self, other: Cost) -> Cost:
        """The less of both times, the more of both memories."""
        seconds = min(self.processor, other.processor), min(self.elapsed, other.elapsed)
        return Cost(*seconds, max(self.memory, other.memory))


def timed(cluster: Cluster, work: Callable[[], None]) -> Cost:
    parent = int((cluster.folder / "rows" / "postmaster.pid").read_text().splitlines()[0])
    seen = [0.0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_SECONDS):
            seen[0] = max(seen[0], _own_mebibytes(parent))

    watching = threading.Thread(target=look)
    _settled(cluster)
    before, began = _ended_seconds(parent) + time.process_time(), time.perf_counter()
    watching.start()
    try:
        work()
    finally:
        elapsed = time.perf_counter() - began
        done.set()
        watching.join()
    _settled(cluster)
    return Cost(_ended_seconds(parent) + time.process_time() - before, elapsed, seen[0])


def _settled(cluster: Cluster) -> None:
    """Wait until no other connection is open, and PostgreSQL has counted the time of those that ended."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    while cluster.run(others) != [(0,)]:
        time.sleep(_LOOK_SECONDS)
    time.sleep(_SETTLE_SECONDS)


def _ended_seconds(parent: int) -> float:
    """What the processes of ended connections used."""
    fields = Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


def _own_mebibytes(parent: int) -> float:
    """The most memory that one child of PostgreSQL has to itself."""
    most = 0.0
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        try:
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
        except OSError:
            continue
        most = max([most, *(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))])
    return most


def bounded(cluster: Cluster, cap: int, *, statistic: str, rank: str | None) -> Callable[[], None]:
    """A question of ours as a site answers it, noise included."""
    from site_agent.reading.dataset import TableSource  # noqa: PLC0415
    from site_agent.serving.open_dataset import open_dataset  # noqa: PLC0415
    from wardround.federation.plan.layout import shape  # noqa: PLC0415
    from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic  # noqa: PLC0415
    from wardround.federation.study.study_file import parse_study  # noqa: PLC0415
    from wardround.privacy.mechanisms.additive import apply  # noqa: PLC0415
    from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution  # noqa: PLC0415
    from wardround.privacy.noise.sampler import SecureNoise  # noqa: PLC0415

    listed = ", ".join(f'"D{place:03d}"' for place in range(DIAGNOSES))
    study = parse_study(
        'name = "bench"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\nunit_key = "patient_id"\n'
        f"max_rows_per_unit = {cap}\n[tables.visits.columns]\n"
        f'diagnosis = {{ type = "category", values = [{listed}] }}\n'
        'sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }\n'
    )
    aggregate = Aggregate(Statistic(statistic), None if statistic == "count" else "sbp")
    grouping = (Grouping("diagnosis"),) if statistic in ("count", "sum") else ()
    form = shape(Query("visits", (aggregate,), None, grouping), study, Mechanism.DISCRETE_GAUSSIAN)
    tables = {"visits": TableSource(cluster.address(), rank=rank)}
    source = open_dataset(tables, folder=cluster.folder, key=bytes(32))

    def ask() -> None:
        noise = SecureNoise()
        source.check(form)
        for part in source.bounded(form):
            apply(part, NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(64 * 25)), noise)

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--max-rows-per-unit", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--more", action="store_true", help="also windows, a sum of rows and a mean of patients")
    options = parser.parse_args()
    if reason := absent():
        sys.exit(f"skipped: {reason}")
    cap = options.max_rows_per_unit
    cluster = begun(shared_buffers="2GB", max_parallel_workers_per_gather="0", max_wal_size="8GB")
    try:
        generate(cluster, options.rows)
        plain = "SELECT diagnosis, count(*) FROM visits GROUP BY diagnosis"
        windows = (
            "SELECT diagnosis, count(*) FROM (SELECT diagnosis, row_number() OVER (PARTITION BY patient_id "
            f"ORDER BY hashtextextended(diagnosis, patient_id)) AS n "
            f"FROM visits) AS v WHERE n <= {cap} GROUP BY diagnosis"
        )
        works: dict[str, Callable[[], None]] = {
            "plain count by diagnosis": lambda: _run(cluster, plain),
            f"bounded, at most {cap} rows": bounded(cluster, cap, statistic="count", rank=None),
            "bounded by the rank column": bounded(cluster, cap, statistic="count", rank="place"),
        }
        if options.more:
            works["row_number() ORDER BY hash"] = lambda: _run(cluster, windows)
            works["bounded sum by diagnosis"] = bounded(cluster, cap, statistic="sum", rank=None)
            works["mean of patients' means"] = bounded(cluster, cap, statistic="mean", rank=None)
        best = dict.fromkeys(works, Cost())
        for _ in range(options.repeats):
            for name, work in works.items():
                best[name] = best[name].better(timed(cluster, work))
    finally:
        cluster.remove()
    first = best["plain count by diagnosis"]
    print(
        f"{options.rows} rows, {max(options.rows // 10, 1)} patients, {DIAGNOSES} diagnoses, best of {options.repeats}"
    )
    for name, cost in best.items():
        ratios = f"{cost.processor / first.processor:5.2f} ({cost.elapsed / first.elapsed:5.2f})"
        print(f"{name:28s} {cost.processor:7.2f} s   {ratios} x plain (elapsed)   {cost.memory:6.0f} MiB")


def _run(cluster: Cluster, statement: str) -> None:
    cluster.run("SET work_mem = '512MB'", statement, user=READER)


if __name__ == "__main__":
    main()
