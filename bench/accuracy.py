"""How near answers come to the truth: ten hospitals, 20,000 patients, ε = 1, δ = 1e-6.

Medians are asked of a simulated federation with its real noise, ledgers and SQL: by one tree with one noise on the
total, by one tree with noise at every site, and by ten rounds of noisy binary search, which share the same ε. Below
that, how often a table of independent columns looks dependent at the 5 % level: by the usual χ² test and by ours.
Run with: python bench/accuracy.py [--repeat N] [--searches N] [--tables N]
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.combining.noise import NORMAL, Noise
from coordinator.combining.tables import chi_square_tail, independence, p_value
from wardround.federation.study_file import parse_study
from wardround.simulation.study_trial import Trial, run_trials

SIZES = (6000, 4000, 3000, 2000, 1500, 1200, 900, 700, 400, 300)
STUDY = """\
name = "accuracy"
overlap = 1
[budget]
epsilon = 1.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 1
[tables.encounters.columns]
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
"""
MEDIAN = "SELECT MEDIAN(sbp) FROM encounters"
ONE_COUNT = 4.22
"""The noise of one count at ε = 1, δ = 1e-6."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--searches", type=int, default=12)
    parser.add_argument("--tables", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wardround-accuracy-") as name:
        truth = generate(Path(name))
        print(f"{sum(SIZES)} patients in {len(SIZES)} hospitals, median {truth:g} mmHg, ε = 1, δ = 1e-6")
        for title, trusted, search in (
            ("tree, one noise on the total", True, False),
            ("tree, noise at every site", False, False),
            ("search, one noise on the total", True, True),
            ("search, noise at every site", False, True),
        ):
            trial = Trial(MEDIAN, epsilon=1.0, delta=1e-6, trusted_total=trusted, search=search)
            repeat = options.searches if search else options.repeat
            print(medians(Path(name), truth, title, trial, repeat=repeat), flush=True)
    tables(options.tables)


def generate(folder: Path) -> float:
    """Ten hospitals' pressures on disk; the median of all."""
    draw = np.random.default_rng(7)
    everyone = []
    for place, size in enumerate(SIZES):
        values = np.round(np.clip(draw.normal(128, 18, size), 80, 200), 1)
        everyone.append(values)
        (folder / f"h{place}").mkdir()
        keys = [f"h{place}-{patient}" for patient in range(size)]
        pq.write_table(pa.table({"patient_id": keys, "sbp": values}), folder / f"h{place}" / "encounters.parquet")
    return float(np.quantile(np.concatenate(everyone), 0.5, method="inverted_cdf"))


def medians(folder: Path, truth: float, title: str, trial: Trial, *, repeat: int) -> str:
    began = time.process_time()
    estimates = [result.answer.estimates[0] for result in run_trials(parse_study(STUDY), folder, trial, repeat=repeat)]
    errors = [estimate.value - truth for estimate in estimates]
    ends = np.array([estimate.interval for estimate in estimates])
    inside = int(((ends[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[:, 1])).sum())
    rmse = math.sqrt(sum(error * error for error in errors) / len(errors))
    error = float(np.median([estimate.standard_error for estimate in estimates]))
    return (
        f"  {title:32} RMSE {rmse:6.3f} mmHg  standard error {error:6.3f}  "
        f"covered {inside / repeat:5.1%} of {repeat}  {time.process_time() - began:5.1f} s"
    )


def tables(runs: int) -> None:
    """Independent columns, 2 × 3, 1,500 patients: how often each test finds them dependent at 5 %."""
    draw = np.random.default_rng(8)
    chances = np.outer([0.4, 0.6], [0.2, 0.5, 0.3])
    print(f"independent columns, 1500 patients, found dependent at 5 % in {runs} tables")
    for title, sites in (("one noise on the total", 1), ("noise at ten sites", 10)):
        noise = Noise(ONE_COUNT * math.sqrt(sites), NORMAL)
        usual = ours = 0
        for run in range(runs):
            table = draw.multinomial(1500, chances.ravel()).reshape(2, 3) + draw.normal(0.0, noise.deviation, (2, 3))
            value, _ = independence(table, noise.deviation)
            ours += p_value(table, noise, value, 2, seed=run)[0] < 0.05
            usual += chi_square_tail(independence(np.maximum(table, 0.0), 0.0)[0], 2) < 0.05
        print(f"  {title:32} usual χ² test {usual / runs:.3f}  noise-aware {ours / runs:.3f}")


if __name__ == "__main__":
    main()
