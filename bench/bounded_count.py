"""Bounded and noised answers from Parquet against the plain question asked of the same rows by the same engine.

The plain question protects nobody; the ratio is what the bound costs. A count by diagnosis is capped at a few
rows a patient; a mean, a histogram of a hundred intervals and a median look at each patient's mean, and so
does the plain question beside them. One thread, Parquet, generated here. Both run in turn in one process, and
processor time stands beside elapsed time: on a busy machine only the former can be compared.

OpenDP, where polars is there to bound its patients, answers the same count by diagnosis from the same file.
Run with: python bench/bounded_count.py [--rows N] [--max-rows-per-unit M ...]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb

from bench._opendp import DEVIATIONS, comparison
from site_agent.reading.dataset import TableFiles
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.files.files import DuckdbFiles
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise

DIAGNOSES = 200
REPEATS = 5
OPENDP_ROWS = 1_000_000
OWN_MEANS = "(SELECT avg(sbp) AS v FROM read_parquet('{path}') GROUP BY patient_id)"
QUESTIONS: Mapping[str, tuple[str, Aggregate, tuple[Grouping, ...]]] = {
    "count by diagnosis": (
        "SELECT diagnosis, count(*) FROM read_parquet('{path}') GROUP BY diagnosis",
        Aggregate(Statistic.COUNT),
        (Grouping("diagnosis"),),
    ),
    "mean": (f"SELECT avg(v) FROM {OWN_MEANS}", Aggregate(Statistic.MEAN, "sbp"), ()),
    "histogram": (
        f"SELECT floor((v - 80) / 1.2) AS bin, count(*) FROM {OWN_MEANS} GROUP BY bin",
        Aggregate(Statistic.HISTOGRAM, "sbp", bins=100),
        (),
    ),
    "median": (f"SELECT median(v) FROM {OWN_MEANS}", Aggregate(Statistic.QUANTILE, "sbp", level=0.5), ()),
}


def generate(path: Path, rows: int, patients: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT (hash(i) % {patients})::BIGINT AS patient_id, "
            f"'D' || lpad((hash(i + 77777777) % {DIAGNOSES})::VARCHAR, 3, '0') AS diagnosis, "
            "80 + (hash(i + 5555) % 1201) / 10.0::DOUBLE AS sbp "
            f"FROM range({rows}) t(i)) TO '{path}' (FORMAT parquet)"
        )


def plain(path: Path, name: str) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        # DuckDB takes a process that was started by another one for a person, and draws progress.
        connection.execute("SET enable_progress_bar = false")
        connection.execute(QUESTIONS[name][0].format(path=path)).fetchall()


def bounded(path: Path, name: str, cap: int, *, memory_mebibytes: int = 8192) -> None:
    listed = ", ".join(f'"D{place:03d}"' for place in range(DIAGNOSES))
    study = parse_study(
        'name = "bench"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\nunit_key = "patient_id"\n'
        f"max_rows_per_unit = {cap}\n[tables.visits.columns]\n"
        f'diagnosis = {{ type = "category", values = [{listed}] }}\n'
        'sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }\n'
    )
    _, aggregate, grouping = QUESTIONS[name]
    form = shape(Query("visits", (aggregate,), None, grouping), study, Mechanism.DISCRETE_GAUSSIAN)
    tables = {"visits": TableFiles("parquet", str(path))}
    source = DuckdbFiles(tables, key=bytes(32), limits=Limits(threads=1, memory_mebibytes=memory_mebibytes))
    source.check(form)
    noise = SecureNoise()
    for part in source.bounded(form):
        scale = DEVIATIONS * max(math.isqrt(part.l2_sensitivity_squared), 1)
        apply(part, NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(scale)), noise)
    source.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the processor and of the clock."""

    processor: float = float("inf")
    elapsed: float = float("inf")


def timed(best: Cost, work: Callable[[], object]) -> Cost:
    processor, elapsed = time.process_time(), time.perf_counter()
    work()
    processor, elapsed = time.process_time() - processor, time.perf_counter() - elapsed
    return Cost(min(best.processor, processor), min(best.elapsed, elapsed))


def measured(path: Path, name: str, cap: int) -> tuple[Cost, Cost, float]:
    """The best of a few runs of either question in a fresh process, and its peak memory in MiB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (path, name, cap))


def _measure(path: Path, name: str, cap: int) -> tuple[Cost, Cost, float]:
    raw, mine = Cost(), Cost()
    for _ in range(REPEATS):
        raw = timed(raw, lambda: plain(path, name))
        mine = timed(mine, lambda: bounded(path, name, cap))
    return raw, mine, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--max-rows-per-unit", type=int, nargs="*", default=[4, 16, 32])
    options = parser.parse_args()
    patients = max(options.rows // 10, 1)
    asked = [("count by diagnosis", cap) for cap in options.max_rows_per_unit]
    asked += [(name, 4) for name in QUESTIONS if name != "count by diagnosis"]
    counts: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        generate(path, options.rows, patients)
        print(f"{options.rows} rows, {patients} patients, {DIAGNOSES} diagnoses, one thread, best of {REPEATS}")
        print("question             at most   plain, processor   bounded and noised   ratio (elapsed)   peak memory")
        for name, cap in asked:
            raw, mine, memory = measured(path, name, cap)
            counts += [mine.processor] if name == "count by diagnosis" else []
            print(
                f"{name:18s}   {cap:7d}   {raw.processor:14.3f} s   {mine.processor:16.3f} s"
                f"   {mine.processor / raw.processor:5.1f} ({mine.elapsed / raw.elapsed:5.1f})     {memory:7.0f} MiB"
            )
        if counts:
            cap = options.max_rows_per_unit[0]
            for line in comparison(
                path,
                counts[0],
                rows=options.rows,
                given=OPENDP_ROWS,
                categories=DIAGNOSES,
                cap=cap,
                in_memory=False,
            ):
                print(line)


if __name__ == "__main__":
    main()
