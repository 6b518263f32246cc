"""From noised numbers to intervals, by the coordinator of whichever version is first on the path.

coverage.py asks its own version and, with --against, another one in a process of its own: both get the very same noised
numbers, so that their intervals can be compared one by one. A question is what is needed to combine them, in plain
values; both versions must plan it alike, which the private path of a site decides.
Run as a program it answers the questions on its input, one after the other, until there are no more.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from coordinator.rounds.combining import combine, combine_releases
from tests.federation.statistics.cohorts import Aggregate, Experiment, Statistic
from wardround.analyst.asking import quantile_search as search
from wardround.analyst.asking.multi_round import round_epsilon
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NoiseSetting, TotalNoise, noise_of
from wardround.federation.question.answer import Estimate
from wardround.federation.statistics.mean import two_sided

SETTING = NoiseSetting()
Shown = dict[str, NDArray[np.float64]]
"""By statistic and term a line for each interval that is shown: the repeat, the lower end and the upper one."""


def by_key(found: Iterable[tuple[str, int, tuple[float, float]]]) -> Shown:
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for key, repeat, (low, high) in found:
        lines.setdefault(key, []).append((repeat, low, high))
    return {key: np.array(line) for key, line in lines.items()}


@dataclass(frozen=True, slots=True)
class Grouped:
    """A question whose groups are the repeats, and what each hospital released."""

    aggregates: tuple[Aggregate, ...]
    epsilon: float
    runs: int
    scales: tuple[Fraction, ...]
    releases: list[NDArray[np.int64]]

    def shown(self) -> Shown:
        """Every interval that comes with a number."""
        asked = Experiment.of(*self.aggregates, epsilon=self.epsilon, sites=len(self.releases), runs=self.runs)
        if tuple(asked.plan.scales) != self.scales:
            sys.exit("the other version adds other noise to this question: intervals cannot be compared one by one.")
        found = combine(asked.plan, asked.form, self.releases, setting=SETTING)
        return by_key((key_of(each), int(str(each.group[0][1])), each.interval) for each in found if is_shown(each))


def key_of(estimate: Estimate) -> str:
    return f"{estimate.statistic} {estimate.term}".strip()


def is_shown(estimate: Estimate) -> bool:
    """A version that knows no reasons shows everything."""
    return estimate.value is not None and not getattr(estimate, "reason", None)


@dataclass(frozen=True, slots=True)
class Keyed:
    """For each repeat what each hospital showed of an open category: the keys and their noised counts."""

    epsilon: float
    sites: int
    repeats: list[list[dict[str, int]]]

    def shown(self) -> Shown:
        """The intervals of every key that some hospital showed."""
        return by_key(self._found())

    def _found(self) -> Iterator[tuple[str, int, tuple[float, float]]]:
        asked = Experiment.of(Aggregate(Statistic.KEYS, "run"), epsilon=self.epsilon, sites=self.sites)
        for repeat, kept in enumerate(self.repeats):
            releases = []
            for site, counts in enumerate(kept):
                names = sorted(counts)
                values = np.array([counts[name] for name in names], dtype=np.int64)
                releases.append(Release(asked.plan.plan_id, f"s{site}", "2026-01-01", values, tuple(names)))
            for estimate in combine_releases(asked.plan, asked.form, releases, setting=SETTING, patients={}):
                yield str(estimate.group[0][1]), repeat, estimate.interval


@dataclass(frozen=True, slots=True)
class Searched:
    """A median by rounds of shares: the sorted values, and the noise of every repeat, round and sum."""

    epsilon: float
    sites: int
    values: NDArray[np.float64]
    drawn: NDArray[np.int64]

    @staticmethod
    def round_of(epsilon: float, sites: int) -> Experiment:
        """One round, at its part of ε."""
        question = Aggregate(Statistic.BELOW, "sbp", level=140.0)
        each = round_epsilon(epsilon, 1e-6, search.ROUNDS, Experiment.of(question).study)
        return Experiment.of(question, epsilon=each, sites=sites)

    def shown(self) -> Shown:
        """The interval of every search."""
        asked = self.round_of(self.epsilon, self.sites)
        return by_key(("median", repeat, self._interval(asked, noise)) for repeat, noise in enumerate(self.drawn))

    def _interval(self, asked: Experiment, noise: NDArray[np.int64]) -> tuple[float, float]:
        (law,), (part,) = asked.plan.laws(), asked.form.parts
        carried, shares = noise_of(law, noises=self.sites), list[search.ReleasedShare]()
        for above, under in noise.tolist():
            value = search.next_value(0.5, (80.0, 200.0), shares)
            below = int(np.searchsorted(self.values, value + 1e-9, side="right"))
            rest = len(self.values) - below
            shares.append(_share(value, part.increment * below + above, part.increment * rest + under, carried))
        return search.found(0.5, (80.0, 200.0), shares).interval


def _share(value: float, above: int, under: int, carried: TotalNoise) -> search.ReleasedShare:
    found = two_sided(above, under, Fraction(0), Fraction(1), carried)
    if isinstance(found, tuple):
        # As versions gave it that always had a number.
        return search.ReleasedShare(value, *found[:2])
    # As a search takes a round that says nothing.
    return search.ReleasedShare(value, getattr(found, "value", 0.5), getattr(found, "error", 0.5))


def answer_all() -> None:
    """One answer for each question, until the input ends."""
    while True:
        try:
            question: Grouped | Keyed | Searched = pickle.load(sys.stdin.buffer)  # noqa: S301
        except EOFError:
            return
        pickle.dump(question.shown(), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    answer_all()
