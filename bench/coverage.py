"""How often each interval holds the truth: every statistic that prints one, at ε = 0.5, 1 and 3, four hospitals.

True totals are read once; each repeat adds the noise of production at every hospital, and the estimates come from the
coordinator's own code. A repeat is a group of its own, so thousands of them are one question. Where an interval covers
the noise alone the truth is these patients' own number; where it also covers sampling every repeat draws patients of
its own, and the truth is the population's. Patients and noise are fresh in every run; --seed repeats one.

A cell is one statistic of one cohort at one ε. Beside its coverage stand the share of repeats that had no estimate
(they are left out of the coverage) and the median width of the intervals. Where many have none, further repeats are
made, up to ten times as many, so that a coverage is one of as many intervals as possible. A cell in which fewer than
one repeat in twenty has an estimate is shown but not judged: the noise alone has chosen these.
The number by which CHI_SQUARE tests a table estimates nothing and has no interval, nor have a model's metrics; those of
trained coefficients are tested in tests/learning/test_coefficient_errors.py, since a repeat is a whole training.
Run with: python bench/coverage.py [--repeats N] [--only TEXT] [--epsilon E ...] [--seed N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from _coverage_cohorts import LARGE, MIDDLE, SITES, SMALL, Case, Columns, Truth, pressures, sampled_cases, simple_cases
from numpy.typing import NDArray

from coordinator.combining import Noise, NoiseSetting, combine, noise_of
from coordinator.combining.keys import shown_keys
from coordinator.combining.means import two_sided
from coordinator.combining.total import Unknown
from tests.statistics.cohorts import Aggregate, Experiment, Statistic
from wardround.analyst import search
from wardround.analyst.courses import round_epsilon
from wardround.federation.answer import Estimate
from wardround.federation.plan import price
from wardround.federation.release import Release
from wardround.privacy.bounded import Bounded
from wardround.privacy.chance import Chance, SecureChance
from wardround.privacy.mechanisms import apply
from wardround.privacy.thresholding import KeyCounts, SelectionFact
from wardround.simulation.noise import SeededNoise

LEAST, MEAN = 0.93, 0.94
RARE, MOST = 0.05, 10
EPSILONS = (0.5, 1.0, 3.0)
SETTING = NoiseSetting()


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table."""

    statistic: str
    cohort: str
    epsilon: float
    shown: int
    repeats: int
    covered: float
    width: float

    @property
    def silent(self) -> float:
        return 1.0 - self.shown / self.repeats


def key_of(estimate: Estimate) -> str:
    return f"{estimate.statistic} {estimate.term}".strip()


def is_shown(estimate: Estimate) -> bool:
    return estimate.value is not None and not getattr(estimate, "reason", None)


def cells_of(case: Case, epsilon: float, found: Iterable[Estimate], truth: Truth, repeats: int) -> Iterator[Cell]:
    shown: dict[str, list[tuple[float, float]]] = {key: [] for key in truth}
    for estimate in found:
        key = key_of(estimate)
        if key in shown and is_shown(estimate):
            shown[key].append(estimate.interval)
    for key, intervals in shown.items():
        if case.terms and key not in case.terms:
            continue
        slack = 1e-9 * max(1.0, abs(truth[key]))
        hits = sum(low - slack <= truth[key] <= high + slack for low, high in intervals)
        width = float(np.median([high - low for low, high in intervals])) if intervals else math.nan
        covered = hits / len(intervals) if intervals else math.nan
        yield Cell(f"{case.name}: {key}", case.cohort, epsilon, len(intervals), repeats, covered, width)


def noised(experiment: Experiment, totals: Sequence[NDArray[np.int64]], noise: Chance) -> list[NDArray[np.int64]]:
    """What each hospital releases."""
    released = []
    for total in totals:
        parts, start = [], 0
        for law, part in zip(experiment.plan.laws(), experiment.form.parts, strict=True):
            numbers = total[start : start + part.dimension]
            start += part.dimension
            bounded = Bounded(numbers, part.l1_sensitivity, part.l2_sensitivity_squared, part.grid)
            parts.append(apply(bounded, law, noise).total)
        released.append(np.concatenate(parts))
    return released


def asked(case: Case, epsilon: float, repeats: int, draw: np.random.Generator, noise: Chance) -> Iterator[Cell]:
    """All repeats of a case as the groups of one question, so many at a time as an answer may hold."""
    single = Experiment.of(*case.aggregates, epsilon=epsilon, sites=SITES)
    at_once = max(min(repeats, 3_500_000 // single.form.dimension, 2**23 // case.patients), 1)
    found: list[Estimate] = []
    fixed = None if case.sampling else case.draw(draw, case.patients)
    truth = case.truth(case.draw(draw, 2_000_000) if fixed is None else fixed)
    made = 0
    while made < repeats or (made < MOST * repeats and rare(found, truth, made, repeats)):
        runs = min(at_once, repeats - made % repeats)
        made += runs
        many = Experiment.of(*case.aggregates, epsilon=epsilon, sites=SITES, runs=runs)
        assert many.plan.scales == single.plan.scales
        if fixed is None:
            columns = case.draw(draw, case.patients * runs)
            groups = np.repeat(np.arange(runs), case.patients)
            totals = [
                many.totals({name: values[site::SITES] for name, values in columns.items()}, groups[site::SITES])
                for site in range(SITES)
            ]
        else:
            totals = [tiled(single, {n: v[site::SITES] for n, v in fixed.items()}, runs) for site in range(SITES)]
        found.extend(combine(many.plan, many.form, noised(many, totals, noise), setting=SETTING))
    yield from cells_of(case, epsilon, found, truth, made)


def rare(found: Sequence[Estimate], truth: Truth, made: int, repeats: int) -> bool:
    """Whether so many repeats had no estimate that a coverage would be one of few, but not nearly all of them."""
    shown = sum(is_shown(estimate) for estimate in found if key_of(estimate) in truth) / len(truth)
    return RARE * made <= shown < repeats / 2


def tiled(experiment: Experiment, columns: Columns, runs: int) -> NDArray[np.int64]:
    """The same totals for every repeat."""
    cuts = np.cumsum([part.dimension for part in experiment.form.parts])[:-1]
    return np.concatenate([np.tile(part, runs) for part in np.split(experiment.totals(columns), cuts)])


# --- What has a path of its own ----------------------------------------------------------------------------------


def searched(epsilon: float, repeats: int, draw: np.random.Generator, noise: Chance) -> Iterator[Cell]:
    """A median by ten rounds of shares."""
    for size, text in ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (LARGE, "10,000 a site")):
        values = np.sort(pressures(128, 18)(draw, size)["sbp"])
        truth = float(np.quantile(values, 0.5, method="inverted_cdf"))
        question = Aggregate(Statistic.BELOW, "sbp", level=140.0)
        study = Experiment.of(question).study
        each = round_epsilon(epsilon, 1e-6, search.ROUNDS, study)
        experiment = Experiment.of(question, epsilon=each, sites=SITES)
        (law,), (part,) = experiment.plan.laws(), experiment.form.parts
        carried = noise_of(law, noises=SITES)
        drawn = np.sum([noise.draw(law, 2 * search.ROUNDS * repeats) for _ in range(SITES)], axis=0)
        drawn = drawn.reshape(repeats, search.ROUNDS, 2)
        intervals = []
        for run in range(repeats):
            shares: list[search.Share] = []
            for turn in range(search.ROUNDS):
                value = search.next_value(0.5, (80.0, 200.0), shares)
                below = int(np.searchsorted(values, value + 1e-9, side="right"))
                above, under = part.increment * below, part.increment * (size - below)
                shares.append(
                    _share(value, above + int(drawn[run, turn, 0]), under + int(drawn[run, turn, 1]), carried)
                )
            found = search.found(0.5, (80.0, 200.0), shares)
            intervals.append(found.interval)
        hits = np.mean([low <= truth <= high for low, high in intervals])
        width = float(np.median([high - low for low, high in intervals]))
        yield Cell("search: median", text, epsilon, repeats, repeats, float(hits), width)


def _share(value: float, above: int, under: int, carried: Noise) -> search.Share:
    found = two_sided(above, under, Fraction(0), Fraction(1), carried)
    # As a search takes a round that says nothing.
    share, error = (0.5, 0.5) if isinstance(found, Unknown) else (found.value, found.error)
    return search.Share(value, share, error)


def keyed(epsilon: float, repeats: int, _: np.random.Generator, noise: Chance) -> Iterator[Cell]:
    """Counts of keys of an open category at the sites that showed them: far above the threshold, and near it."""
    experiment = Experiment.of(Aggregate(Statistic.KEYS, "run"), epsilon=epsilon, sites=SITES)
    (fact,) = price(experiment.plan, experiment.study).facts
    assert isinstance(fact, SelectionFact)
    step = experiment.form.parts[0].increment
    near = math.ceil(fact.threshold / step)
    counts = {"far above": 5 * near, "twice the threshold": 2 * near, "at the threshold": near}
    found: dict[str, list[tuple[tuple[float, float], float]]] = {name: [] for name in counts}
    for _ in range(repeats):
        releases = []
        for site in range(SITES):
            kept = noise.select(KeyCounts(counts, fact.max_keys), fact)
            names = sorted(kept)
            values = np.array([kept[name] for name in names], dtype=np.int64)
            releases.append(Release(experiment.plan.plan_id, f"s{site}", "2026-01-01", values, tuple(names)))
        for estimate in shown_keys(experiment.plan, experiment.form, releases, setting=SETTING):
            key = str(estimate.group[0][1])
            showing = sum(key in release.keys for release in releases)
            found[key].append((estimate.interval, float(showing * counts[key])))
    for name, intervals in found.items():
        if intervals:
            hits = float(np.mean([low <= truth <= high for (low, high), truth in intervals]))
            width = float(np.median([high - low for (low, high), _ in intervals]))
            yield Cell("keys: count", name, epsilon, len(intervals), repeats, hits, width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--only", default="", help="cases whose name or cohort holds this text")
    parser.add_argument("--epsilon", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run: its patients, with noise from the seed")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    noise: Chance = SecureChance() if options.seed is None else SeededNoise(seed + 1)
    source = "the operating system" if options.seed is None else "the seed"
    print(f"{SITES} hospitals, {options.repeats} repeats; patients from seed {seed}, noise from {source}", flush=True)
    began, cells = time.monotonic(), []
    print(f"{'statistic':34} {'cohort':28} {'ε':>4} {'covered':>8} {'no estimate':>12} {'median width':>13}")
    for cell in every_cell(options, seed, noise):
        cells.append(cell)
        few = " not judged" if cell.silent > 1 - RARE else " <" if cell.covered < LEAST else ""
        print(
            f"{cell.statistic:34} {cell.cohort:28} {cell.epsilon:4g} {cell.covered:8.3f} {cell.silent:12.3f} "
            f"{cell.width:13.4g}{few}", flush=True)  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps([{name: getattr(c, name) for name in Cell.__slots__} for c in cells]))
    judged = [cell for cell in cells if cell.silent <= 1 - RARE]
    if not judged:
        sys.exit("nothing was judged; name another --only or more --repeats.")
    low = [cell for cell in judged if cell.covered < LEAST]
    mean = float(np.mean([cell.covered for cell in judged]))
    print(f"{len(judged)} of {len(cells)} cells judged in {time.monotonic() - began:.0f} s: "
          f"lowest {min(cell.covered for cell in judged):.3f}, mean {mean:.4f}, {len(low)} below {LEAST}")  # fmt: skip
    sys.exit(1 if low or mean < MEAN else 0)


def every_cell(options: argparse.Namespace, seed: int, noise: Chance) -> Iterator[Cell]:
    """Cell by cell, so that a reader sees how far it is."""
    for place, case in enumerate([*simple_cases(), *sampled_cases()]):
        if options.only in f"{case.name} {case.cohort}":
            for epsilon in options.epsilon:
                draw = np.random.default_rng([seed, place])
                yield from asked(case, epsilon, options.repeats, draw, noise)
    for name, own in (("search", searched), ("keys", keyed)):
        if options.only in name:
            for epsilon in options.epsilon:
                yield from own(epsilon, options.repeats, np.random.default_rng([seed, 999]), noise)


if __name__ == "__main__":
    main()
