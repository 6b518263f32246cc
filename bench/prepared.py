"""Questions answered from a snapshot, bounded and noised, against the plain queries of DuckDB on the same rows.

The plain queries protect nobody; the ratio is what the guarantee costs once a table is prepared. One core, one thread,
everything in turn in one process; processor time, because only it can be compared on a busy machine. DuckDB has the
rows in memory, its diagnoses once as text and once as an enumeration (its own codes), and in Parquet.
OpenDP, where polars is there to bound its patients, answers the same count by diagnosis from memory.
Run with: python bench/prepared.py [--rows N] [--repeats R]
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
from site_agent.reading.columnstore.build import prepare_table
from site_agent.reading.columnstore.prepared_dataset import PreparedFirst
from site_agent.reading.dataset import TableFiles, Tables
from site_agent.reading.sources.duckdb.connection import Limits
from site_agent.reading.sources.files.files import DuckdbFiles
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise

DIAGNOSES, BINS, CAP = 200, 100, 4
LEVELS = (0.25, 0.5, 0.75)
KEY = bytes(range(32))
OPENDP_ROWS = 200_000
LOWER, UPPER = 80.0, 200.0
WIDTH = (UPPER - LOWER) / BINS

SUM_OF_PATIENTS = "SELECT patient_id, avg(sbp) AS m FROM {t} GROUP BY patient_id"
PLAIN: Mapping[str, str] = {
    "count by diagnosis": "SELECT diagnosis, count(*) FROM {t} GROUP BY diagnosis",
    "the same, filtered": "SELECT diagnosis, count(*) FROM {t} WHERE age >= 40 GROUP BY diagnosis",
    "count by 100 intervals": f"SELECT floor((sbp - {LOWER}) / {WIDTH})::INTEGER AS b, count(*) FROM {{t}} GROUP BY b",
    "histogram of patients": f"SELECT floor((m - {LOWER}) / {WIDTH})::INTEGER AS b, count(*) "
    f"FROM ({SUM_OF_PATIENTS}) GROUP BY b",
    "three quantiles": f"SELECT quantile_cont(sbp, {list(LEVELS)}) FROM {{t}}",
    "mean of patients": f"SELECT avg(m) FROM ({SUM_OF_PATIENTS})",
}
TARGETS: Mapping[str, float] = {
    "count by diagnosis": 1.0,
    "the same, filtered": 1.0,
    "count by 100 intervals": 0.6,
    "three quantiles": 0.5,
    "mean of patients": 2.0,
}


def questions() -> dict[str, Query]:
    count, diagnosis = (Aggregate(Statistic.COUNT),), (Grouping("diagnosis"),)
    edges = tuple(LOWER + WIDTH * place for place in range(1, BINS))
    quantiles = tuple(Aggregate(Statistic.QUANTILE, "sbp", level=level) for level in LEVELS)
    return {
        "count by diagnosis": Query("visits", count, None, diagnosis),
        "the same, filtered": Query("visits", count, Comparison("age", Operator.GREATER_OR_EQUAL, 40), diagnosis),
        "count by 100 intervals": Query("visits", count, None, (Grouping("sbp", GroupBy.BINS, edges=edges),)),
        "histogram of patients": Query("visits", (Aggregate(Statistic.HISTOGRAM, "sbp", bins=BINS),)),
        "three quantiles": Query("visits", quantiles),
        "mean of patients": Query("visits", (Aggregate(Statistic.MEAN, "sbp"),)),
    }


def study() -> Study:
    listed = ", ".join(f'"D{place:03d}"' for place in range(DIAGNOSES))
    return parse_study(
        'name = "bench"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\nunit_key = "patient_id"\n'
        f"max_rows_per_unit = {CAP}\n[tables.visits.columns]\n"
        f'diagnosis = {{ type = "category", values = [{listed}] }}\n'
        f'sbp = {{ type = "number", lower = {LOWER:g}, upper = {UPPER:g}, step = 0.1 }}\n'
        'age = { type = "integer", lower = 0, upper = 110 }\n'
    )


def plain_database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")
    return connection


def generate(path: Path, rows: int, patients: int) -> None:
    with plain_database() as connection:
        connection.execute(
            f"COPY (SELECT (hash(i) % {patients})::BIGINT AS patient_id, "
            f"'D' || lpad((hash(i + 77777777) % {DIAGNOSES})::VARCHAR, 3, '0') AS diagnosis, "
            f"({LOWER:g} * 10 + hash(i + 555) % 1201) / 10.0 AS sbp, (hash(i + 99) % 100)::INTEGER AS age "
            f"FROM range({rows}) t(i)) TO '{path}' (FORMAT parquet)"
        )


def source(path: Path) -> DuckdbFiles:
    limits = Limits(threads=1, memory_mebibytes=4096)
    return DuckdbFiles({"visits": TableFiles("parquet", str(path))}, key=KEY, limits=limits)


def peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the processor and of the clock, and the peak memory of the process."""

    processor: float
    elapsed: float
    mebibytes: float


def timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def prepare(folder: Path) -> Cost:
    """The whole preparation, in a process of its own."""
    agreed, processor, elapsed = study(), time.process_time(), time.perf_counter()
    prepare_table(
        agreed.table("visits"),
        source(folder / "visits.parquet"),
        folder=folder / "prepared" / "visits",
        study_hash=agreed.study_hash,
        key=KEY,
        now_seconds=time.time(),
        report=lambda _: None,
    )
    return Cost(time.process_time() - processor, time.perf_counter() - elapsed, peak_mebibytes())


class Prepared:
    """The dataset as an agent opens it, with the noise that is added to what it hands in."""

    def __init__(self, folder: Path) -> None:
        tables = Tables({"visits": source(folder / "visits.parquet")})
        self._study = study()
        self._dataset = PreparedFirst(tables, folder / "prepared", self._study, KEY)
        if self._dataset.standing(self._study.table("visits")).fault is not None:
            raise SystemExit("the snapshot is not used")
        self._noise = SecureNoise()

    def ask(self, query: Query) -> None:
        form = shape(query, self._study, Mechanism.DISCRETE_GAUSSIAN)
        for part in self._dataset.bounded(form):
            scale = DEVIATIONS * max(math.isqrt(part.l2_sensitivity_squared), 1)
            apply(part, NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(scale)), self._noise)


def answer_alone(folder: Path) -> tuple[float, float]:
    """The seconds of the first question, which verifies what it reads, and the peak memory of all questions."""
    before = time.process_time()
    prepared = Prepared(folder)
    opening = time.process_time() - before
    for query in questions().values():
        prepared.ask(query)
    return opening, peak_mebibytes()


def compare(folder: Path, repeats: int) -> dict[str, list[float]]:
    """The least processor time of each question: in memory as text, as an enumeration, on Parquet, and prepared."""
    prepared, asked = Prepared(folder), questions()
    with plain_database() as connection:
        connection.execute(f"CREATE TABLE texts AS FROM '{folder / 'visits.parquet'}'")
        connection.execute("CREATE TYPE codes AS ENUM (SELECT DISTINCT diagnosis FROM texts ORDER BY 1)")
        connection.execute("CREATE TABLE enumerated AS SELECT * REPLACE (diagnosis::codes AS diagnosis) FROM texts")
        connection.execute(f"CREATE VIEW files AS FROM '{folder / 'visits.parquet'}'")
        found: dict[str, list[float]] = {}
        for name, statement in PLAIN.items():
            works: list[Callable[[], object]] = [
                lambda sql=statement, t=table: connection.execute(sql.format(t=t)).fetchall()
                for table in ("texts", "enumerated", "files")
            ]
            works.append(lambda query=asked[name]: prepared.ask(query))
            best = [math.inf] * len(works)
            for _ in range(repeats):
                best = [min(least, timed(work)) for least, work in zip(best, works, strict=True)]
            found[name] = best
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    patients = max(options.rows // 10, 1)
    with (
        tempfile.TemporaryDirectory() as name,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        folder = Path(name)
        pool.apply(generate, (folder / "visits.parquet", options.rows, patients))
        print(
            f"{options.rows} rows, {patients} patients, {DIAGNOSES} diagnoses, at most {CAP} rows a patient, one core"
        )
        made = pool.apply(prepare, (folder,))
        print(f"prepared in {made.processor:.1f} s ({made.elapsed:.1f} s elapsed), peak {made.mebibytes:.0f} MiB")
        opening, memory = pool.apply(answer_alone, (folder,))
        print(f"opened and verified in {opening:.3f} s; all questions below, peak {memory:.0f} MiB")
        heads = "".join(f"{head:>12}" for head in ("plain text", "plain enum", "plain file", "prepared"))
        print(f"{'processor milliseconds':24}{heads}  ratios")
        found = pool.apply(compare, (folder, options.repeats))
        for question, (texts, codes, files, mine) in found.items():
            ratios = " / ".join(f"{mine / plain:.2f}" for plain in (texts, codes, files))
            wanted = f"  (wanted: {TARGETS[question]:g})" if question in TARGETS else ""
            times = "".join(f"{1000 * seconds:12.1f}" for seconds in (texts, codes, files, mine))
            print(f"{question:24}{times}  {ratios}{wanted}")
        for line in comparison(
            folder / "visits.parquet",
            found["count by diagnosis"][-1],
            rows=options.rows,
            given=OPENDP_ROWS,
            categories=DIAGNOSES,
            cap=CAP,
            in_memory=True,
        ):
            print(line)


if __name__ == "__main__":
    main()
