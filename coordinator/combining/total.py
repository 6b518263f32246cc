"""One part of an answer, added up over the sites: what every family of statistics starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coordinator.combining.noise import CONFIDENCE, Noise
from wardround.federation.plan.layout import Part, Shape
from wardround.federation.question.answer import Estimate
from wardround.federation.question.cohort import Value
from wardround.federation.question.no_estimate import NoEstimate
from wardround.federation.question.query import Aggregate

Group = tuple[tuple[str, Value], ...]
Floats = NDArray[np.float64]


# Without slots, so that the floats are made once.
@dataclass(frozen=True)
class Total:
    """A part, its integers summed exactly over the sites, and the noise that is in each of them.

    `key` is the plan's id: where a number is found by simulation, its seed comes from there, so that the same
    plan has the same answer forever.
    """

    form: Shape
    part: Part
    numbers: Sequence[int]
    noise: Noise
    key: str

    @property
    def groups(self) -> Iterator[tuple[Group, Sequence[int]]]:
        """Each group of the question with its own integers."""
        names = [grouping.column for grouping in self.form.query.group_by]
        width = self.part.coordinates
        for place, key in enumerate(self.form.group_keys):
            yield tuple(zip(names, key, strict=True)), self.numbers[place * width : (place + 1) * width]

    @cached_property
    def matrix(self) -> Floats:
        """The integers as floats, a line for each group."""
        return np.array(self.numbers, dtype=np.float64).reshape(self.part.groups, self.part.coordinates)

    @cached_property
    def labels(self) -> list[Group]:
        """The groups alone."""
        return [group for group, _ in self.groups]


@dataclass(frozen=True, slots=True)
class Found:
    """A number with its error and its interval."""

    value: float
    error: float
    ends: tuple[float, float]

    def scaled(self, factor: float, *, shift: float = 0.0) -> Found:
        """The same in another unit."""
        ends = (shift + factor * self.ends[0], shift + factor * self.ends[1])
        return Found(shift + factor * self.value, factor * self.error, ends)


@dataclass(frozen=True, slots=True)
class Unknown:
    """No number: why, and between which ends it still is."""

    reason: NoEstimate
    ends: tuple[float, float]

    def scaled(self, factor: float, *, shift: float = 0.0) -> Unknown:
        """The same in another unit."""
        return Unknown(self.reason, (shift + factor * self.ends[0], shift + factor * self.ends[1]))


def estimate(
    aggregate: Aggregate, group: Group, found: Found | Unknown, *, term: str = "", sampling: bool = False
) -> Estimate:
    """The estimate, with an interval that holds its own value whatever was rounded or projected."""
    return of_column(aggregate, aggregate.column, group, found, term=term, sampling=sampling)


def of_column(
    aggregate: Aggregate, column: str | None, group: Group, found: Found | Unknown, *, term: str, sampling: bool
) -> Estimate:
    """The same for a number that belongs to another of the aggregate's columns."""
    statistic, ends = aggregate.statistic.value, found.ends
    match found:
        case Found(value, error):
            inside = (min(ends[0], value), max(ends[1], value))
            return Estimate(statistic, column, group, value, error, inside, CONFIDENCE, term, sampling)
        case Unknown(reason):
            return Estimate(statistic, column, group, None, None, ends, CONFIDENCE, term, sampling, reason)


def number_text(number: Fraction | float) -> str:
    """A number as a term shows it: `80`, `92.5`."""
    return f"{float(number):.12g}"
