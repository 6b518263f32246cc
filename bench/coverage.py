"""How often each interval holds the truth: every statistic that prints one, at ε = 0.5, 1 and 3, four hospitals.

True totals are read once; each repeat adds the noise of production at every hospital, and the estimates come from the
coordinator's own code. A repeat is a group of its own, so thousands of them are one question. Where an interval covers
the noise alone the truth is these patients' own number; where it also covers sampling every repeat draws patients of
its own, and the truth is the population's. Patients and noise are fresh in every run; --seed repeats one.

A cell is one statistic of one cohort at one ε. Beside its coverage stand the share of repeats that had no estimate
(they are left out of the coverage) and the median width of the intervals. Where many have none, further repeats are
made, up to ten times as many, so that a coverage is one of as many intervals as possible. A cell in which fewer than
one repeat in twenty has an estimate is shown but not judged: the noise alone has chosen these.
Run with: python bench/coverage.py [--repeats N] [--only TEXT] [--epsilon E ...] [--seed N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coordinator.combining import Noise, NoiseSetting, combine, noise_of
from coordinator.combining.keys import shown_keys
from coordinator.combining.means import two_sided
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

SITES, LEAST, MEAN = 4, 0.93, 0.94
RARE, MOST = 0.05, 10
EPSILONS = (0.5, 1.0, 3.0)
SETTING = NoiseSetting()
Floats = NDArray[np.float64]
Columns = dict[str, np.ndarray]
Truth = dict[str, float]


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


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked of which cohort; `draw` gives the patients of one repeat, and `truth` each term's own."""

    name: str
    cohort: str
    aggregates: tuple[Aggregate, ...]
    patients: int
    draw: Callable[[np.random.Generator, int], Columns]
    truth: Callable[[Columns], Truth]
    sampling: bool = False
    terms: tuple[str, ...] = ()


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


def one_by_one(case: Case, epsilon: float, repeats: int, draw: np.random.Generator, noise: Chance) -> Iterator[Cell]:
    """For tables of two columns, which have no groups: a question for each repeat."""
    experiment = Experiment.of(*case.aggregates, epsilon=epsilon, sites=SITES)
    fixed = case.draw(draw, case.patients)
    totals = [experiment.totals({n: v[site::SITES] for n, v in fixed.items()}) for site in range(SITES)]
    found: list[Estimate] = []
    for _ in range(repeats):
        found.extend(
            combine(experiment.plan, experiment.form, noised(experiment, totals, noise), setting=SETTING)[
                : len(case.terms)
            ]
        )
    yield from cells_of(case, epsilon, found, case.truth(fixed), repeats)


# --- Cohorts -----------------------------------------------------------------------------------------------------

SMALL, MIDDLE, LARGE = 30 * SITES, 300 * SITES, 10_000 * SITES


def pressures(mean: float, sd: float) -> Callable[[np.random.Generator, int], Columns]:
    return lambda draw, size: {"sbp": np.round(np.clip(draw.normal(mean, sd, size), 80, 200), 1)}


def costs(draw: np.random.Generator, size: int) -> Columns:
    return {"cost": np.clip(np.round(2 * draw.lognormal(6, 1.2, size)) / 2, -1000, 9000)}


def ages(draw: np.random.Generator, size: int) -> Columns:
    return {"age": np.clip(np.rint(draw.normal(58, 17, size)), 0, 110).astype(int)}


def spread_truth(column: str) -> Callable[[Columns], Truth]:
    def truth(columns: Columns) -> Truth:
        values = columns[column].astype(float)
        return {"mean": values.mean(), "variance": values.var(), "std": values.std()}

    return truth


LEVELS = (0.05, 0.5, 0.95)


def histogram_truth(columns: Columns) -> Truth:
    counts = np.histogram(columns["sbp"], (80, 110, 140, 170, 200))[0]
    names = ("[80, 110)", "[110, 140)", "[140, 170)", "[170, 200]")
    return {f"histogram {name}": float(count) for name, count in zip(names, counts, strict=True)}


def simple_cases() -> Iterator[Case]:
    """Counts, sums, means, spread, shares, histograms and quantiles: intervals of the noise alone."""
    sizes = ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (LARGE, "10,000 a site"))
    count = (Aggregate(Statistic.COUNT, "patient_id"), Aggregate(Statistic.SUM, "sbp"))
    spread = tuple(Aggregate(each, "sbp") for each in (Statistic.MEAN, Statistic.VARIANCE, Statistic.STD))
    for size, text in sizes:
        yield Case("count, sum", text, count, size, pressures(128, 18),
                   lambda c: {"count": float(len(c["sbp"])), "sum": float(c["sbp"].sum())})  # fmt: skip
        kinds = {"wide": (128, 18), "narrow": (112, 2), "at a bound": (80, 0.3)}
        for kind, (mean, sd) in kinds.items():
            cohort = f"{text}, {kind}"
            yield Case("spread", cohort, spread, size, pressures(mean, sd), spread_truth("sbp"))
            yield Case("mean alone", cohort, spread[:1], size, pressures(mean, sd), spread_truth("sbp"),
                       terms=("mean",))  # fmt: skip
        yield Case("mean alone", f"{text}, skewed", (Aggregate(Statistic.MEAN, "cost"),), size, costs,
                   spread_truth("cost"), terms=("mean",))  # fmt: skip
        for level in (100.0, 128.0):
            below = (Aggregate(Statistic.BELOW, "sbp", level=level),)
            yield Case("share below", f"{text}, {level:g}", below, size, pressures(128, 18),
                       lambda c, level=level: {f"below {level:g}": float((c["sbp"] <= level).mean())})  # fmt: skip
        bins = (Aggregate(Statistic.HISTOGRAM, "sbp", bins=4),)
        yield Case("histogram", text, bins, size, pressures(128, 18), histogram_truth)
        for column, cohort_draw in (("age", ages), ("sbp", pressures(128, 18))):
            quantiles = tuple(Aggregate(Statistic.QUANTILE, column, level=level) for level in LEVELS)
            yield Case("quantile", f"{text}, {column}", quantiles, size, cohort_draw,
                       lambda c, column=column: {f"quantile {level:g}": float(
                           np.quantile(c[column], level, method="inverted_cdf")) for level in LEVELS})  # fmt: skip


def pair(r: float, sds: tuple[float, float] = (12.0, 6.0)) -> Callable[[np.random.Generator, int], Columns]:
    def draw_pair(draw: np.random.Generator, size: int) -> Columns:
        x, e = draw.normal(0, 1, size), draw.normal(0, 1, size)
        y = r * x + math.sqrt(1 - r * r) * e
        return {"sbp": np.clip(140 + sds[0] * y, 80, 200), "bmi": np.clip(35 + sds[1] * x, 10, 60)}

    return draw_pair


def correlation_truth(columns: Columns) -> Truth:
    return {"correlation bmi": float(np.corrcoef(columns["sbp"], columns["bmi"])[0, 1])}


def predicted(r_squared: float) -> Callable[[np.random.Generator, int], Columns]:
    """Pressure from age and smoking, with this share explained."""

    def draw_rows(draw: np.random.Generator, size: int) -> Columns:
        age, smoker = np.clip(np.rint(draw.normal(55, 16, size)), 0, 110), draw.random(size) < 0.4
        signal = 0.8 * (age - 55) + 8.0 * (smoker - 0.4)
        signal *= 13.0 / math.sqrt(0.64 * 16**2 + 64 * 0.24) * math.sqrt(r_squared)
        sbp = 140 + signal + 13.0 * math.sqrt(1 - r_squared) * draw.normal(0, 1, size)
        return {"age": age, "smoker": smoker, "sbp": np.clip(sbp, 80, 200)}

    return draw_rows


def regression_truth(columns: Columns) -> Truth:
    sbp = columns["sbp"].astype(float)
    matrix = np.column_stack([columns["age"], columns["smoker"], np.ones(len(sbp))]).astype(float)
    exact = np.linalg.lstsq(matrix, sbp, rcond=None)[0]
    left = float(np.var(sbp - matrix @ exact))
    names = ("age", "smoker", "intercept")
    found = {f"regression {name}": float(value) for name, value in zip(names, exact, strict=True)}
    return {**found, "regression r_squared": 1 - left / float(np.var(sbp)), "regression residual_sd": math.sqrt(left)}


def followed(draw: np.random.Generator, size: int) -> Columns:
    """Five years in whole months; nobody leaves but at a month's end."""
    event, leaves = np.ceil(draw.exponential(30, size)), np.ceil(draw.exponential(60, size))
    return {"months": np.minimum(np.minimum(event, leaves), 60), "died": (event <= leaves) & (event <= 60)}


def survival_truth(_: Columns) -> Truth:
    return {f"survival {month}": math.exp(-month / 30) for month in (6, 24, 48)} | {"survival median": 21.0}


def binned_truth(columns: Columns) -> Truth:
    """What the curve of whole years tends to: who leaves within a year counts as there until its end."""
    year = np.ceil(columns["months"] / 12)
    share, found = 1.0, {}
    for place in range(1, 5):
        share *= 1.0 - float((columns["died"] & (year == place)).sum() / (year >= place).sum())
        found[f"survival {12 * place}"] = share
    return found


def sampled_cases() -> Iterator[Case]:
    """Correlations, regressions and survival: intervals of the noise and of sampling."""
    sizes = ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (4000 * 1, "1,000 a site"))
    correlation = (Aggregate(Statistic.CORRELATION, "sbp", ("bmi",)),)
    regression = (Aggregate(Statistic.REGRESSION, "sbp", ("age", "smoker")),)
    for size, text in sizes:
        for r in (0.0, 0.5, -0.9, 0.99):
            yield Case("correlation", f"{text}, r = {r:g}", correlation, size, pair(r),
                       correlation_truth, sampling=True)  # fmt: skip
        yield Case("correlation", f"{text}, r = 0.5, narrow", correlation, size, pair(0.5, (5.0, 2.0)),
                   correlation_truth, sampling=True)  # fmt: skip
        for share in (0.0, 0.3, 0.9):
            yield Case("regression", f"{text}, R² = {share:g}", regression, size, predicted(share),
                       regression_truth, sampling=True)  # fmt: skip
        curve = (Aggregate(Statistic.SURVIVAL, "months", ("died",)),)
        yield Case("survival by month", text, curve, size, followed, survival_truth, sampling=True)
        yearly = (Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=5),)
        yield Case("survival by year", text, yearly, size, followed, binned_truth, sampling=True)


def contingency(strength: float) -> Callable[[np.random.Generator, int], Columns]:
    def draw_rows(draw: np.random.Generator, size: int) -> Columns:
        ward = draw.random(size) < 0.4
        kind = draw.random(size) + strength * ward
        diagnosis = np.where(kind < 0.5, "E11", np.where(kind < 0.8, "I10", "C50"))
        return {"diagnosis": diagnosis, "ward": np.where(ward, "north", "south")}

    return draw_rows


def chi_square_truth(columns: Columns) -> Truth:
    table = np.array([[((columns["diagnosis"] == a) & (columns["ward"] == b)).sum() for b in ("north", "south")]
                      for a in ("E11", "I10", "C50")], dtype=float)  # fmt: skip
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return {"chi_square statistic": float(((table - expected) ** 2 / expected).sum())}


def table_cases() -> Iterator[Case]:
    asked_table = (Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",)),)
    for size, text in ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (LARGE, "10,000 a site")):
        for strength in (0.0, 0.1, 0.4):
            yield Case("χ²", f"{text}, strength {strength:g}", asked_table, size, contingency(strength),
                       chi_square_truth, terms=("chi_square statistic",))  # fmt: skip


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
    share, error, _ = two_sided(above, under, Fraction(0), Fraction(1), carried)
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
    for place, case in enumerate([*simple_cases(), *sampled_cases(), *table_cases()]):
        if options.only in f"{case.name} {case.cohort}":
            for epsilon in options.epsilon:
                draw = np.random.default_rng([seed, place])
                ask = one_by_one if case.name == "χ²" else asked
                yield from ask(case, epsilon, options.repeats, draw, noise)
    for name, own in (("search", searched), ("keys", keyed)):
        if options.only in name:
            for epsilon in options.epsilon:
                yield from own(epsilon, options.repeats, np.random.default_rng([seed, 999]), noise)


if __name__ == "__main__":
    main()
