"""One round of a training at one site: bounded sums over its patients, each noised, one after another.

One unit's rows, however many, are one contribution. Contributions are whole numbers and are added without
rounding, so that the order of units changes nothing; noise is added where every release gets it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from site_agent.learning.contributions import Contribution, contribution, finite
from site_agent.learning.integer_vectors import Vectors, whole
from site_agent.reading.examples import Examples, Rows, picked
from wardround.federation.models.step_layout import StepLayout, moved, unpack
from wardround.federation.models.training import Matrix, Stage, StageKind, Vector
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.mechanisms.randomness import Chance
from wardround.privacy.noise.distribution import NoiseDistribution
from wardround.privacy.noise.vectors import Bounded, IntVector

CHUNK = 2**18
"""So many numbers at a time: two mebibytes, whatever the number of rows or the width of a contribution."""

COINS = 2**20
"""So many coins at a time, where a step alone does not need more."""

_FEW_ROWS = 16


def take(form: StepLayout, examples: Examples, law: NoiseDistribution, chance: Chance) -> NDArray[np.int64]:
    """The noised sums of one round, one after another: the whole release."""
    training, stage = form.step.training, form.step.training.stages[form.step.stage]
    rows = examples.fold(held_out=stage.kind is StageKind.SCORES)
    adding = _Adding(contribution(form), training.clip if stage.kind is StageKind.GRADIENT else 1.0, form.width)
    noise = _DrawnAhead(law, form.dimension, chance)
    weights = finite(unpack(form.step.weights))
    norms = form.l1_sensitivity, form.l2_sensitivity_squared, form.grid
    released = np.empty((stage.steps, form.width), dtype=np.int64)
    for place, taken in enumerate(_samples(rows, stage, chance)):
        total = adding.total(taken, weights)
        released[place] = apply(Bounded(total, *norms), law, noise).total
        if place + 1 < stage.steps:
            weights = moved(weights, released[place], form)
    return released.reshape(-1)


def _samples(rows: Rows, stage: Stage, chance: Chance) -> Iterator[Rows]:
    """The units of each step: all of them, or a fresh sample.

    Coins of several steps are drawn at once, one for each step and unit: each falls on its own all the same.
    """
    if stage.rate == 1:
        yield from itertools.repeat(rows, stage.steps)
        return
    units, at_once = rows.units, max(COINS // max(rows.units, 1), 1)
    for start in range(0, stage.steps, at_once):
        borders = np.arange(min(at_once, stage.steps - start) + 1) * units
        places = chance.sample(int(borders[-1]), stage.rate)
        ends = np.searchsorted(places, borders)
        for border, low, high in zip(borders[:-1], ends[:-1], ends[1:], strict=True):
            yield picked(rows, places[low:high] - border)


class _DrawnAhead:
    """The noise of all steps of a round, drawn at once and handed out once.

    Every number is independent of the others and of whatever the steps before it gave, so it does not matter when
    it was drawn; one draw of many costs far less than many draws of few.
    """

    def __init__(self, law: NoiseDistribution, size: int, chance: Chance) -> None:
        self._law, self._drawn, self._next = law, chance.draw(law, size), 0

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        end = self._next + size
        if law != self._law or end > self._drawn.size:
            raise ValueError("a step asks for more noise, or for another, than its round has")
        start, self._next = self._next, end
        return self._drawn[start:end]


class _Adding:
    """The exact sum over units of one whole contribution each."""

    def __init__(self, rule: Contribution, longest: float, width: int) -> None:
        self._rule, self._longest, self._width = rule, longest, width
        self._most_rows = max(CHUNK // width, 1)

    def total(self, rows: Rows, weights: Vector) -> IntVector:
        """The sum; whole numbers of doubles below 2^53, so that no order of adding rounds."""
        total = np.zeros(self._width, dtype=np.int64)
        for units in self._chunks(rows):
            for numbers in self._numbers(rows, units, weights):
                total += np.add.reduce(numbers, axis=0).astype(np.int64)
        return total

    def _chunks(self, rows: Rows) -> Iterator[slice]:
        """Units whose rows fit together; one alone that has more."""
        start, starts = 0, rows.starts
        while start < rows.units:
            end = int(np.searchsorted(starts, starts[start] + self._most_rows, side="right")) - 1
            yield slice(start, end := max(end, start + 1))
            start = end

    def _numbers(self, rows: Rows, units: slice, weights: Vector) -> Iterator[Matrix]:
        """One line of whole numbers for each unit.

        Units of one row and of several are worked out apart: how one is must not depend on which others are there.
        """
        starts = rows.starts[units.start : units.stop + 1]
        low, high = int(starts[0]), int(starts[-1])
        if high - low > self._most_rows:
            yield whole(Vectors(self._mean_of_many(rows, low, high, weights)), self._longest)
            return
        found = self._rule(rows.inputs[low:high], rows.target[low:high], weights)
        if high - low == starts.size - 1:
            yield whole(found, self._longest)
            return
        sizes, firsts = np.diff(starts), starts[:-1] - low
        several = np.flatnonzero(sizes > 1)
        yield whole(found.some(firsts[sizes == 1]), self._longest)
        means = _sums(found.scaled(), firsts[several], sizes[several])
        means /= sizes[several, np.newaxis]
        yield whole(Vectors(means), self._longest)

    def _mean_of_many(self, rows: Rows, low: int, high: int, weights: Vector) -> Matrix:
        """Of one unit, part by part from its first row on."""
        total = np.zeros((1, self._width))
        for start in range(low, high, self._most_rows):
            part = slice(start, min(start + self._most_rows, high))
            total += np.add.reduce(self._rule(rows.inputs[part], rows.target[part], weights).scaled(), axis=0)
        total /= high - low
        return total


def _sums(rows: Matrix, firsts: NDArray[np.intp], sizes: NDArray[np.intp]) -> Matrix:
    """Each unit's rows added up, first row first: the second rows of all units at once, then the third ones."""
    total = rows.take(firsts, axis=0)
    for place in range(1, min(int(sizes.max()), _FEW_ROWS)):
        units = np.flatnonzero((sizes > place) & (sizes <= _FEW_ROWS))
        total[units] += rows.take(firsts[units] + place, axis=0)
    for unit in np.flatnonzero(sizes > _FEW_ROWS).tolist():
        total[unit] = np.add.reduce(rows[firsts[unit] : firsts[unit] + sizes[unit]], axis=0)
    return total
