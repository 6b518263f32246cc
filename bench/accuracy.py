"""How near answers come to the truth: ten hospitals, 20,000 patients, ε = 1, δ = 1e-6.

Medians are asked of a simulated federation with its real noise, ledgers and SQL: by one tree with one noise on the
total, by one tree with noise at every site, and by ten rounds of noisy binary search, which share the same ε. Noise at
S sites is √S times as large, and so is the error of the tree's running sum. The answer is where that sum, brought to
rise, passes the half: a coarse step adds its own width to the smaller error, and on a fine one the larger noise loses
more when the sum is brought to rise. So it is less than √S times as far off; each of these is shown. Errors are given
in mmHg and in patients between the answer and the middle one.

Last, how often a table of independent columns looks dependent at the 5 % level: by the usual χ² test and by ours.
Run with: python bench/accuracy.py [--repeat N] [--searches N] [--sums N] [--tables N]
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wardround.federation.forms.totals import NORMAL, TotalNoise
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.statistics.crosstab import chi_square_tail, independence, p_value
from wardround.federation.statistics.quantile import coded, consistent, level_variance
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.trial import Trial, run_trials

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
sbp = {{ type = "number", lower = 80, upper = 200, step = {step:g} }}
"""
STEPS = (0.1, 0.01)
MEDIAN = "SELECT MEDIAN(sbp) FROM encounters"
ONE_COUNT = 4.22
"""The noise of one count at ε = 1, δ = 1e-6."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--searches", type=int, default=12)
    parser.add_argument("--sums", type=int, default=2000)
    parser.add_argument("--tables", type=int, default=1000)
    options = parser.parse_args()
    sites = len(SIZES)
    print(f"{sum(SIZES)} patients in {sites} hospitals, ε = 1, δ = 1e-6; √{sites} = {math.sqrt(sites):.2f}")
    for step in STEPS:
        with tempfile.TemporaryDirectory(prefix="wardround-accuracy-") as name:
            pressures = generate(Path(name), step)
            print(f"median {true_median(pressures):g} mmHg, steps of {step:g}")
            asked = Asked(Path(name), parse_study(STUDY.format(step=step)), pressures)
            compare(asked, "tree", search=False, repeat=options.repeat)
            running_sums(asked, options.sums)
            if step == STEPS[0]:
                compare(asked, "search", search=True, repeat=options.searches)
    tables(options.tables)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A study, its hospitals' tables and everyone's pressures in order."""

    folder: Path
    study: Study
    pressures: NDArray[np.float64]


def generate(folder: Path, step: float) -> NDArray[np.float64]:
    """Ten hospitals' pressures on disk; all of them in order."""
    draw, decimals = np.random.default_rng(7), round(-math.log10(step))
    everyone = []
    for place, size in enumerate(SIZES):
        values = np.round(np.clip(draw.normal(128, 18, size), 80, 200), decimals)
        everyone.append(values)
        (folder / f"h{place}").mkdir()
        keys = [f"h{place}-{patient}" for patient in range(size)]
        pq.write_table(pa.table({"patient_id": keys, "sbp": values}), folder / f"h{place}" / "encounters.parquet")
    return np.sort(np.concatenate(everyone))


def true_median(pressures: NDArray[np.float64]) -> float:
    return float(np.quantile(pressures, 0.5, method="inverted_cdf"))


def compare(asked: Asked, title: str, *, search: bool, repeat: int) -> None:
    """One noise on the total, then noise at every site, and how many times as far the latter is off."""
    one, many = (
        medians(asked, f"{title}, {where}", trusted_total=trusted, search=search, repeat=repeat)
        for where, trusted in (("one noise on the total", True), ("noise at every site", False))
    )
    print(f"  {'':32} × {many[0] / one[0]:.2f} in mmHg, × {many[1] / one[1]:.2f} in patients", flush=True)


def medians(asked: Asked, title: str, *, trusted_total: bool, search: bool, repeat: int) -> tuple[float, float]:
    """The root mean square error in mmHg, and in patients between the answer and the middle one."""
    began, truth = time.process_time(), true_median(asked.pressures)
    trial = Trial(MEDIAN, epsilon=1.0, delta=1e-6, trusted_total=trusted_total, search=search)
    results = run_trials(asked.study, asked.folder, trial, repeat=repeat)
    estimates = [result.answer.estimates[0] for result in results]
    values = np.array([estimate.value for estimate in estimates])
    ends = np.array([estimate.interval for estimate in estimates])
    inside = int(((ends[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[:, 1])).sum())
    rmse = math.sqrt(float(np.mean((values - truth) ** 2)))
    patients = math.sqrt(float(np.mean(patients_off(asked.pressures, values) ** 2)))
    error = float(np.median([estimate.standard_error for estimate in estimates]))
    print(
        f"  {title:32} RMSE {rmse:6.3f} mmHg, {patients:5.1f} patients  standard error {error:6.3f}  "
        f"covered {inside / repeat:5.1%} of {repeat}  {time.process_time() - began:5.1f} s",
        flush=True,
    )
    return rmse, patients


def running_sums(asked: Asked, repeat: int) -> None:
    """The error in patients of the tree's running sum at the true median, and of the same sum brought to rise."""
    query = Query("encounters", (Aggregate(Statistic.QUANTILE, "sbp", level=0.5),))
    part = shape(query, asked.study, Mechanism.DISCRETE_GAUSSIAN).parts[0]
    (coding, tree), quantiser = coded(part), part.quantisers[0]
    levels = np.rint((asked.pressures - float(quantiser.origin)) * float(quantiser.per_unit)).astype(np.int64)
    codes = np.minimum((levels + coding.offset) // coding.width, coding.codes - 1)
    leaves = np.bincount(codes, minlength=tree.leaves)
    counts = np.concatenate([leaves.reshape(cells, -1).sum(axis=1) for cells in tree.sizes]).astype(np.float64)
    middle, draw = int(codes[codes.size // 2]), np.random.default_rng(9)
    truth = np.cumsum(leaves)[middle] - codes.size / 2
    found = []
    for sites in (1, len(SIZES)):
        deviation = ONE_COUNT * math.sqrt(tree.levels * sites)
        below = np.cumsum(consistent(tree, counts + draw.normal(0.0, deviation, (repeat, counts.size))), axis=1)
        excess = below - below[:, -1:] / 2
        rising = (np.maximum.accumulate(excess, 1) + np.minimum.accumulate(excess[:, ::-1], 1)[:, ::-1]) / 2
        found.append([math.sqrt(float(np.mean((line[:, middle] - truth) ** 2))) for line in (excess, rising)])
    exact = ONE_COUNT * math.sqrt(tree.levels * float(level_variance(tree, 0.5)[middle]))
    more = exact * math.sqrt(len(SIZES))
    print(f"  {'running sum, by its variance':32} off by {exact:5.1f} and {more:5.1f} patients: × {more / exact:.2f}")
    print(f"  {'patients in its leaf':32} {leaves[middle]}")
    for title, one, many in zip(("running sum", "the same, brought to rise"), *found, strict=True):
        print(f"  {title:32} off by {one:5.1f} and {many:5.1f} patients: × {many / one:.2f}", flush=True)


def patients_off(pressures: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many patients stand between each value and the middle of all, in halves where they share the value."""
    below = np.searchsorted(pressures, values - 1e-9, side="left")
    at_most = np.searchsorted(pressures, values + 1e-9, side="right")
    return (below + at_most) / 2 - pressures.size / 2


def tables(runs: int) -> None:
    """Independent columns, 2 × 3, 1,500 patients: how often each test finds them dependent at 5 %."""
    draw = np.random.default_rng(8)
    chances = np.outer([0.4, 0.6], [0.2, 0.5, 0.3])
    print(f"independent columns, 1500 patients, found dependent at 5 % in {runs} tables")
    for title, sites in (("one noise on the total", 1), ("noise at ten sites", 10)):
        noise = TotalNoise(ONE_COUNT * math.sqrt(sites), NORMAL)
        usual = ours = 0
        for run in range(runs):
            table = draw.multinomial(1500, chances.ravel()).reshape(2, 3) + draw.normal(0.0, noise.deviation, (2, 3))
            value = independence(table, noise.deviation)
            ours += p_value(table, noise, value, 2, seed=run)[0] < 0.05
            usual += chi_square_tail(independence(np.maximum(table, 0.0), 0.0), 2) < 0.05
        print(f"  {title:32} usual χ² test {usual / runs:.3f}  noise-aware {ours / runs:.3f}")


if __name__ == "__main__":
    main()
