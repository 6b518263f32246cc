"""How often each interval holds the truth: every statistic that prints one, at ε = 0.5, 1 and 3, four hospitals.

True totals are read once; each repeat adds the noise of production at every hospital, and the estimates come from the
coordinator's own code. A repeat is a group of its own, so thousands of them are one question. Where an interval covers
the noise alone the truth is these patients' own number; where it also covers sampling every repeat draws patients of
its own, and the truth is the population's. Patients and noise are fresh in every run; --seed repeats one.

A cell is one statistic of one cohort at one ε. It has two coverages:
  1 − misses  a miss is a repeat that shows an interval without the truth; it is the share of all repeats, since this
              is what whoever asks is promised. "No estimate" claims nothing, so it misses nothing.
  when shown  the share that hold the truth among the intervals that are shown.
The first is judged in every cell. The second is judged where at least one repeat in twenty shows a number: further
repeats are made, up to ten times as many, until there are half as many intervals as repeats were asked for, and with
fewer than one in twenty there would be too few to tell .93 from .95. Those cells are summed up in a line of their own.
Beside the coverages stand the share that is shown and the median width.

With --against PATH another version (a checkout of it) combines the very same noised numbers. Compared are the repeats
in which this version shows a number: how often the other's interval held the truth there, its median width, and this
version's over it. Where the other covered, this version's are to be no wider.

The number by which CHI_SQUARE tests a table estimates nothing and has no interval, nor have a model's metrics; those of
trained coefficients are tested in tests/site_agent/learning/test_coefficient_errors.py, since a repeat is a whole
training.
Run with: python bench/coverage.py [--repeats N] [--only TEXT] [--epsilon E ...] [--seed N] [--against PATH] [--json F]
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from _coverage_cohorts import (
    LARGE,
    MIDDLE,
    SITES,
    SMALL,
    Case,
    Columns,
    at_risk_cases,
    pressures,
    sampled_cases,
    simple_cases,
)
from _coverage_combining import Grouped, Keyed, Searched, Shown
from _coverage_versions import Versions
from numpy.typing import NDArray

from tests.federation.statistics.cohorts import Aggregate, Experiment, Statistic
from wardround.analyst.asking import quantile_search as search
from wardround.federation.plan.plan import price
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.mechanisms.partition_selection import KeyCounts, SelectionFact
from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.noise import SeededNoise

LEAST, MEAN, WIDER = 0.93, 0.94, 1.03
RARE, MOST = 0.05, 10
EPSILONS = (0.5, 1.0, 3.0)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table; the last two are another version's, where there is one."""

    statistic: str
    cohort: str
    epsilon: float
    repeats: int
    shown: int
    promised: float
    when_shown: float
    width: float
    covered_before: float | None = None
    width_before: float | None = None

    @property
    def often(self) -> bool:
        """Whether enough intervals are shown to judge them alone."""
        return self.shown >= RARE * self.repeats

    @property
    def ratio(self) -> float:
        """How wide the intervals are against the other version's; two points are alike."""
        return (self.width or 1e-300) / (self.width_before or 1e-300)


@dataclass(slots=True)
class Tally:
    """The intervals of one cell: whether each holds the truth, and its width; likewise the other version's."""

    held: list[Floats] = field(default_factory=list)
    widths: list[Floats] = field(default_factory=list)
    held_before: list[Floats] = field(default_factory=list)
    widths_before: list[Floats] = field(default_factory=list)

    def add(self, lines: Floats, before: Floats | None, truth: Floats) -> None:
        """Lines of the repeat and both ends; the truth of every repeat."""
        repeats = lines[:, 0].astype(int)
        self.held.append(_holds(lines, truth[repeats]))
        self.widths.append(lines[:, 2] - lines[:, 1])
        if before is not None:
            before = before[np.isin(before[:, 0], lines[:, 0])]
            self.held_before.append(_holds(before, truth[before[:, 0].astype(int)]))
            self.widths_before.append(before[:, 2] - before[:, 1])

    @property
    def shown(self) -> int:
        return sum(map(len, self.held))

    def cell(self, statistic: str, cohort: str, epsilon: float, repeats: int) -> Cell:
        if not self.shown:
            return Cell(statistic, cohort, epsilon, repeats, 0, 1.0, math.nan, math.nan)
        held, widths = np.concatenate(self.held), np.concatenate(self.widths)
        misses = len(held) - float(held.sum())
        found = (repeats, len(held), 1.0 - misses / repeats, 1.0 - misses / len(held), float(np.median(widths)))
        if not self.held_before:
            return Cell(statistic, cohort, epsilon, *found)
        held, widths = np.concatenate(self.held_before), np.concatenate(self.widths_before)
        return Cell(statistic, cohort, epsilon, *found, float(held.mean()), float(np.median(widths)))


def _holds(lines: Floats, truth: Floats) -> Floats:
    slack = 1e-9 * np.maximum(1.0, np.abs(truth))
    found: Floats = ((lines[:, 1] - slack <= truth) & (truth <= lines[:, 2] + slack)).astype(np.float64)
    return found


def tallied(
    tallies: dict[str, Tally], answers: tuple[Shown, Shown | None], truths: dict[str, float | Floats], runs: int
) -> None:
    """These repeats' intervals, key by key."""
    own, other = answers
    for key, tally in tallies.items():
        if key in own:
            before = None if other is None else other.get(key, np.zeros((0, 3)))
            tally.add(own[key], before, np.broadcast_to(np.asarray(truths[key], dtype=np.float64), (runs,)))


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


def asked(
    case: Case, epsilon: float, repeats: int, draw: np.random.Generator, noise: Chance, versions: Versions
) -> Iterator[Cell]:
    """All repeats of a case as the groups of one question, so many at a time as an answer may hold."""
    single = Experiment.of(*case.aggregates, epsilon=epsilon, sites=SITES)
    at_once = max(min(repeats, 3_500_000 // single.form.dimension, 2**23 // case.patients), 1)
    fixed = None if case.sampling else case.draw(draw, case.patients)
    truths: dict[str, float | Floats] = dict(case.truth(case.draw(draw, 2_000_000) if fixed is None else fixed))
    tallies = {key: Tally() for key in truths if not case.terms or key in case.terms}
    made = 0
    while made < repeats or (made < MOST * repeats and rare(tallies, made, repeats)):
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
        scales = tuple(many.plan.scales)
        question = Grouped(case.aggregates, epsilon, runs, scales, noised(many, totals, noise))
        tallied(tallies, versions.answers(question), truths, runs)
    for key, tally in tallies.items():
        yield tally.cell(f"{case.name}: {key}", case.cohort, epsilon, made)


def rare(tallies: dict[str, Tally], made: int, repeats: int) -> bool:
    """Whether some coverage would be one of few, but not of nearly none: a little below the edge still counts."""
    return any(0.8 * RARE * made <= tally.shown < repeats / 2 for tally in tallies.values())


def tiled(experiment: Experiment, columns: Columns, runs: int) -> NDArray[np.int64]:
    """The same totals for every repeat."""
    cuts = np.cumsum([part.dimension for part in experiment.form.parts])[:-1]
    return np.concatenate([np.tile(part, runs) for part in np.split(experiment.totals(columns), cuts)])


# --- What has a path of its own ----------------------------------------------------------------------------------


def searched(
    epsilon: float, repeats: int, draw: np.random.Generator, noise: Chance, versions: Versions
) -> Iterator[Cell]:
    """A median by ten rounds of shares."""
    (law,) = Searched.round_of(epsilon, SITES).plan.laws()
    for size, text in ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (LARGE, "10,000 a site")):
        values = np.sort(pressures(128, 18)(draw, size)["sbp"])
        truths: dict[str, float | Floats] = {"median": float(np.quantile(values, 0.5, method="inverted_cdf"))}
        drawn = np.sum([noise.draw(law, 2 * search.ROUNDS * repeats) for _ in range(SITES)], axis=0)
        question = Searched(epsilon, SITES, values, drawn.reshape(repeats, search.ROUNDS, 2))
        tallies = {"median": Tally()}
        tallied(tallies, versions.answers(question), truths, repeats)
        yield tallies["median"].cell("search: median", text, epsilon, repeats)


def keyed(epsilon: float, repeats: int, _: np.random.Generator, noise: Chance, versions: Versions) -> Iterator[Cell]:
    """Counts of keys of an open category at the sites that showed them: far above the threshold, and near it."""
    experiment = Experiment.of(Aggregate(Statistic.KEYS, "run"), epsilon=epsilon, sites=SITES)
    (fact,) = price(experiment.plan, experiment.study).facts
    assert isinstance(fact, SelectionFact)
    near = math.ceil(fact.threshold / experiment.form.parts[0].increment)
    counts = {"far above": 5 * near, "twice the threshold": 2 * near, "at the threshold": near}
    kept = [[noise.select(KeyCounts(counts, fact.max_keys), fact) for _ in range(SITES)] for _ in range(repeats)]
    truths: dict[str, float | Floats] = {
        key: count * np.array([sum(key in site for site in sites) for sites in kept], dtype=np.float64)
        for key, count in counts.items()
    }
    tallies = {key: Tally() for key in counts}
    tallied(tallies, versions.answers(Keyed(epsilon, SITES, kept)), truths, repeats)
    for key, tally in tallies.items():
        yield tally.cell("keys: count", key, epsilon, repeats)


# --- The table and what it says ----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--only", default="", help="cases whose name or cohort holds this text")
    parser.add_argument("--epsilon", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run: its patients, with noise from the seed")
    parser.add_argument("--against", type=Path, default=None, help="a checkout of the version to compare with")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    noise: Chance = SecureChance() if options.seed is None else SeededNoise(seed + 1)
    source = "the operating system" if options.seed is None else "the seed"
    print(f"{SITES} hospitals, {options.repeats} repeats; patients from seed {seed}, noise from {source}", flush=True)
    began, cells = time.monotonic(), []
    columns = f"{'misses':>7} {'when shown':>11} {'shown':>7} {'median width':>13}"
    compared = f" {'before':>7} {'width before':>13} {'ratio':>6}" if options.against else ""
    print(f"{'statistic':34} {'cohort':28} {'ε':>4} {columns}{compared}")
    for cell in every_cell(options, seed, noise):
        cells.append(cell)
        print(line_of(cell), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cell) for cell in cells]))
    if not cells:
        sys.exit("nothing was measured; name another --only.")
    print(f"{len(cells)} cells in {time.monotonic() - began:.0f} s")
    sys.exit(0 if judged(cells) else 1)


def every_cell(options: argparse.Namespace, seed: int, noise: Chance) -> Iterator[Cell]:
    """Cell by cell, so that a reader sees how far it is."""
    with Versions(options.against) as versions:
        for place, case in enumerate([*simple_cases(), *sampled_cases(), *at_risk_cases()]):
            if options.only in f"{case.name} {case.cohort}":
                for epsilon in options.epsilon:
                    draw = np.random.default_rng([seed, place])
                    yield from asked(case, epsilon, options.repeats, draw, noise, versions)
        for name, own in (("search", searched), ("keys", keyed)):
            if options.only in name:
                for epsilon in options.epsilon:
                    draw = np.random.default_rng([seed, 999])
                    yield from own(epsilon, options.repeats, draw, noise, versions)


def line_of(cell: Cell) -> str:
    wrong = cell.promised < LEAST or (cell.often and cell.when_shown < LEAST)
    compared = ""
    if cell.covered_before is not None and cell.width_before is not None:
        compared = f" {cell.covered_before:7.3f} {cell.width_before:13.4g} {cell.ratio:6.3f}"
        compared += " wider" if is_wider(cell) else ""
    return (
        f"{cell.statistic:34} {cell.cohort:28} {cell.epsilon:4g} {1.0 - cell.promised:7.3f} {cell.when_shown:11.3f} "
        f"{cell.shown / cell.repeats:7.3f} {cell.width:13.4g}{compared}{' <' if wrong else ''}"
    )


def is_wider(cell: Cell) -> bool:
    """Whether it is wider than one that covered."""
    return cell.often and (cell.covered_before or 0.0) >= LEAST and cell.ratio > WIDER


def judged(cells: Sequence[Cell]) -> bool:
    """Says of each goal whether it was reached."""
    promised, often = [cell.promised for cell in cells], [cell for cell in cells if cell.often]
    lowest, mean = min(promised), float(np.mean(promised))
    goals = [
        verdict(f"1 − misses in each of {len(cells)} cells ≥ {LEAST}: lowest {lowest:.4f}", reached=lowest >= LEAST),
        verdict(f"1 − misses, mean ≥ {MEAN}: {mean:.4f}", reached=mean >= MEAN),
    ]
    if often:
        shown = [cell.when_shown for cell in often]
        low = sum(each < LEAST for each in shown)
        goals.append(verdict(
            f"when shown in each of {len(often)} cells that show a number in {RARE:.0%} of the repeats or more "
            f"≥ {LEAST}: lowest {min(shown):.4f}, mean {np.mean(shown):.4f}, {low} below",
            reached=low == 0))  # fmt: skip
    seldom = [cell for cell in cells if cell.shown and not cell.often]
    if seldom:
        worst = min(seldom, key=lambda cell: cell.when_shown)
        low = sum(cell.when_shown < LEAST for cell in seldom)
        print(f"not judged: when shown in {len(seldom)} cells that show a number more seldom: {low} below {LEAST}, "
              f"worst {worst.when_shown:.3f} ({worst.statistic}, {worst.cohort}, ε = {worst.epsilon:g}: "
              f"{worst.shown} of {worst.repeats} repeats)")  # fmt: skip
    print(f"never a number: {sum(cell.shown == 0 for cell in cells)} cells")
    compared = [cell for cell in often if (cell.covered_before or 0.0) >= LEAST]
    if compared:
        wider = [cell for cell in compared if is_wider(cell)]
        worst = max(compared, key=lambda cell: cell.ratio)
        ratios = [cell.ratio for cell in compared]
        goals.append(verdict(
            f"no wider than {WIDER} × before in each of {len(compared)} cells that covered before: {len(wider)} wider, "
            f"worst {worst.ratio:.3f} ({worst.statistic}, {worst.cohort}, ε = {worst.epsilon:g}), "
            f"median {np.median(ratios):.3f}", reached=not wider))  # fmt: skip
    return all(goals)


def verdict(text: str, *, reached: bool) -> bool:
    print(f"{text}: {'reached' if reached else 'MISSED'}")
    return reached


if __name__ == "__main__":
    main()
