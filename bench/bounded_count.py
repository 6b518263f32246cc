"""A bounded, noised count by diagnosis against the plain count of the same rows by the same engine.

The plain query protects nobody; the ratio is what the bound costs. One thread, Parquet, generated here. Both
run in turn in one process, and processor time stands beside elapsed time: on a busy machine only the former
can be compared.
Run with: python bench/bounded_count.py [--rows N] [--max-rows-per-unit M ...]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb

from site_agent.dataset import TableFiles
from site_agent.sources.duckdb_files import DuckdbFiles, Limits
from wardround.federation.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.shape import shape
from wardround.federation.study_file import parse_study
from wardround.privacy.law import Mechanism, NoiseLaw
from wardround.privacy.mechanisms import apply
from wardround.privacy.noise import SecureNoise

DIAGNOSES = 200
REPEATS = 5


def generate(path: Path, rows: int, patients: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT (hash(i) % {patients})::BIGINT AS patient_id, "
            f"'D' || lpad((hash(i + 77777777) % {DIAGNOSES})::VARCHAR, 3, '0') AS diagnosis "
            f"FROM range({rows}) t(i)) TO '{path}' (FORMAT parquet)"
        )


def plain(path: Path) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"SELECT diagnosis, count(*) FROM read_parquet('{path}') GROUP BY diagnosis").fetchall()


def bounded(path: Path, cap: int) -> None:
    listed = ", ".join(f'"D{place:03d}"' for place in range(DIAGNOSES))
    study = parse_study(
        'name = "bench"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\nunit_key = "patient_id"\n'
        f"max_rows_per_unit = {cap}\n[tables.visits.columns]\n"
        f'diagnosis = {{ type = "category", values = [{listed}] }}\n'
    )
    query = Query("visits", (Aggregate(Statistic.COUNT),), None, (Grouping("diagnosis"),))
    form = shape(query, study, Mechanism.DISCRETE_GAUSSIAN)
    tables = {"visits": TableFiles("parquet", str(path))}
    source = DuckdbFiles(tables, key=bytes(32), limits=Limits(threads=1, memory_mebibytes=8192))
    source.check(form)
    noise = SecureNoise()
    for part in source.bounded(form):
        apply(part, NoiseLaw(Mechanism.DISCRETE_GAUSSIAN, Fraction(64 * 25)), noise)
    source.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the processor and of the clock."""

    processor: float = float("inf")
    elapsed: float = float("inf")


def timed(best: Cost, work: Callable[[], None]) -> Cost:
    processor, elapsed = time.process_time(), time.perf_counter()
    work()
    processor, elapsed = time.process_time() - processor, time.perf_counter() - elapsed
    return Cost(min(best.processor, processor), min(best.elapsed, elapsed))


def measured(path: Path, cap: int) -> tuple[Cost, Cost, float]:
    """The best of a few runs of either query in a fresh process, and its peak memory in MiB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (path, cap))


def _measure(path: Path, cap: int) -> tuple[Cost, Cost, float]:
    raw, mine = Cost(), Cost()
    for _ in range(REPEATS):
        raw = timed(raw, lambda: plain(path))
        mine = timed(mine, lambda: bounded(path, cap))
    return raw, mine, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--max-rows-per-unit", type=int, nargs="*", default=[4, 16, 32])
    options = parser.parse_args()
    patients = max(options.rows // 10, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        generate(path, options.rows, patients)
        print(f"{options.rows} rows, {patients} patients, {DIAGNOSES} diagnoses, one thread, best of {REPEATS}")
        print("at most   plain, processor   bounded and noised   ratio (elapsed)   peak memory")
        for cap in options.max_rows_per_unit:
            raw, mine, memory = measured(path, cap)
            print(
                f"{cap:7d}   {raw.processor:14.3f} s   {mine.processor:16.3f} s"
                f"   {mine.processor / raw.processor:5.1f} ({mine.elapsed / raw.elapsed:5.1f})     {memory:7.0f} MiB"
            )


if __name__ == "__main__":
    main()
