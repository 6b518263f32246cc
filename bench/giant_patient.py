"""What one patient with very many rows costs, beside the same number of rows spread over many patients.

A patient whose records do not fit into memory is counted in several passes (docs/adr/0021). The ratio is to the plain
question, asked of the same file by the same engine; the memory is the most that the process had, in a process of its
own, beside what site.toml states. One thread, Parquet, generated here.
Run with: python bench/giant_patient.py [--rows N] [--memory-mebibytes M]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from pathlib import Path

import duckdb

from bench.bounded_count import DIAGNOSES, QUESTIONS, Cost, bounded, plain, timed
from site_agent.reading.memory_limits import MEMORY_MEBIBYTES

CAP = 4
REPEATS = 2
OTHERS = 1000
PATIENTS = {"spread": "(hash(i) % greatest({rows} // 10, 1))::BIGINT", "one patient": "greatest(0, {others} - i)"}


def generate(path: Path, rows: int, patient: str) -> None:
    """The rows, all of one patient but one for each of a thousand others, or ten for each of all patients."""
    unit = patient.format(rows=rows, others=OTHERS)
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT {unit} AS patient_id, "
            f"'D' || lpad((hash(i + 77777777) % {DIAGNOSES})::VARCHAR, 3, '0') AS diagnosis, "
            "80 + (hash(i + 5555) % 1201) / 10.0::DOUBLE AS sbp "
            f"FROM range({rows}) t(i)) TO '{path}' (FORMAT parquet)"
        )


def measured(path: Path, name: str, memory_mebibytes: int) -> tuple[Cost, Cost, float]:
    """The best of a few runs of either question in a fresh process, and its peak memory in MiB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        mine, peak = pool.apply(_bounded, (path, name, memory_mebibytes))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_plain, (path, name)), mine, peak


def _plain(path: Path, name: str) -> Cost:
    best = Cost()
    for _ in range(REPEATS):
        best = timed(best, lambda: plain(path, name))
    return best


def _bounded(path: Path, name: str, memory_mebibytes: int) -> tuple[Cost, float]:
    best = Cost()
    for _ in range(REPEATS):
        best = timed(best, lambda: bounded(path, name, CAP, memory_mebibytes=memory_mebibytes))
    lines = Path("/proc/self/status").read_text().splitlines()
    return best, int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--memory-mebibytes", type=int, default=MEMORY_MEBIBYTES)
    options = parser.parse_args()
    print(f"{options.rows} rows, {DIAGNOSES} diagnoses, at most {CAP} of a patient, one thread, best of {REPEATS}")
    print("rows          question             plain, processor   bounded and noised   ratio   peak memory of stated")
    for whose, patient in PATIENTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "visits.parquet"
            generate(path, options.rows, patient)
            for name in QUESTIONS:
                raw, mine, memory = measured(path, name, options.memory_mebibytes)
                print(
                    f"{whose:11s}   {name:18s}   {raw.processor:14.3f} s   {mine.processor:16.3f} s"
                    f"   {mine.processor / raw.processor:5.1f}   {memory:7.0f} of {options.memory_mebibytes} MiB"
                )


if __name__ == "__main__":
    main()
