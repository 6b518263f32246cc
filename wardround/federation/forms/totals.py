"""One part of an answer added up over the sites, how much noise that carries, and numbers with their errors.

What every estimate starts from: noised totals and public numbers. A hospital loads this file and never runs it.

Near the edge of what the noise leaves known a first-order error is too short: a quotient whose denominator may be
almost nothing is larger than its slope says. The ends here are those of the number over all sums within
`critical` deviations of what was released (jointly, as a length), so an interval grows to all that is possible just
where there stops being an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Aggregate
from wardround.federation.study.study import Value
from wardround.privacy.inference.error_bars import critical_value, sum_variance
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

Group = tuple[tuple[str, Value], ...]
Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_SMOOTH = Fraction(2**20)
_UNIT = NormalDist()
NORMAL = _UNIT.inv_cdf(0.5 * (1.0 + CONFIDENCE))
_RAREST = 1e-3

Sloped: TypeAlias = Callable[[Floats], tuple[float, Floats] | None]
"""A number and its slopes in the sums it is made of; None where the sums make no number."""

_STEPS, _CLOSE = 20, 1e-3


@dataclass(frozen=True, slots=True)
class NoiseSetting:
    """Where the noise is: at every site, unless a simulation leaves it out or adds it once to the total."""

    noiseless: bool = False
    trusted_total: bool = False

    def noises(self, *, sites: int) -> int:
        """How many independent noises are in a total over `sites` sites."""
        if self.noiseless:
            return 0
        return 1 if self.trusted_total else sites

    def composition(self, *, overlap: int) -> str:
        """How the loss of one unit adds up over the sites, in a word."""
        if self.trusted_total:
            return "trusted_total"
        return "parallel" if overlap == 1 else f"overlap {overlap}"


@dataclass(frozen=True, slots=True)
class TotalNoise:
    """The noise in one total, in grid units: its standard deviation, and how many of them an interval takes.

    `critical` is that of one coordinate.
    """

    deviation: float
    critical: float
    # How many Laplace draws it is the sum of; none where it is normal.
    laplaces: int = 0

    @property
    def wide(self) -> float:
        """The critical value for combinations: between one coordinate's law and the normal, so the larger of both."""
        return max(self.critical, NORMAL)

    def shown(self, *clearances: float, moved: float = 0.5) -> float:
        """The critical value of a number that is only shown when others are clear of the noise, each by its clearance.

        A clearance counts a number in its own deviations; `wide` of them are the least. Near it the noise has chosen
        which numbers are shown, with about the chance that a number like this one passes. An interval that misses as
        often among all of them as it may among those that are shown must be so much surer. Those that are shown were
        moved upwards by their noise: by `moved` deviations more than they really are clear.
        """
        if self.deviation == 0.0:
            return self.wide
        chance = math.prod(_UNIT.cdf(clearance - self.wide - moved) for clearance in clearances)
        surer = _UNIT.inv_cdf(1.0 - (1.0 - CONFIDENCE) * max(chance, _RAREST) / 2.0)
        return self.wide * max(surer / NORMAL, 1.0)

    def passed(self, *, draws: int, chance: float) -> float:
        """How many of its own deviations a sum of `draws` such noises passes upwards with at most this chance."""
        if self.laplaces == 0:
            return NormalDist().inv_cdf(1.0 - chance)
        # In its own deviations a sum of Laplace draws is the same for every large scale.
        smooth = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, _SMOOTH)
        return critical_value(smooth, terms=draws * self.laplaces, confidence=1.0 - 2.0 * chance)

    def scaled(self, factor: float) -> TotalNoise:
        return TotalNoise(self.deviation * factor, self.critical, self.laplaces)


def noise_of(law: NoiseDistribution, *, noises: int) -> TotalNoise:
    """The noise in a sum of `noises` draws; without any, what is left is sampling, which is normal."""
    if noises == 0:
        return TotalNoise(0.0, NORMAL)
    laplaces = noises if law.mechanism is Mechanism.DISCRETE_LAPLACE else 0
    critical = critical_value(law, terms=noises, confidence=CONFIDENCE)
    return TotalNoise(math.sqrt(sum_variance(law, noises)), critical, laplaces)


# Without slots, so that the floats are made once.
@dataclass(frozen=True)
class Total:
    """A part, its integers summed exactly over the sites, and the noise that is in each of them.

    `key` is the plan's id: where a number is found by simulation, its seed comes from there, so that the same
    plan has the same answer forever.
    """

    form: AnswerLayout
    part: Part
    numbers: Sequence[int]
    noise: TotalNoise
    key: str

    @property
    def groups(self) -> Iterator[tuple[Group, Sequence[int]]]:
        """Each group of the question with its own integers."""
        names = [grouping.column for grouping in self.form.query.group_by]
        width = self.part.coordinates
        for place, key in enumerate(self.form.group_keys):
            yield tuple(zip(names, key, strict=True)), self.numbers[place * width : (place + 1) * width]

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where the question lists each aggregate of the part."""
        return tuple(self.form.query.aggregates.index(aggregate) for aggregate in self.part.aggregates)

    @property
    def place(self) -> int:
        """Where the question lists the part's first aggregate."""
        return self.places[0]

    @cached_property
    def matrix(self) -> Floats:
        """The integers as floats, a line for each group."""
        return np.array(self.numbers, dtype=np.float64).reshape(self.part.groups, self.part.coordinates)

    @cached_property
    def labels(self) -> list[Group]:
        return [group for group, _ in self.groups]


@dataclass(frozen=True, slots=True)
class Estimated:
    """A number with its error and its interval."""

    value: float
    error: float
    ends: tuple[float, float]

    def scaled(self, factor: float, *, shift: float = 0.0) -> Estimated:
        ends = (shift + factor * self.ends[0], shift + factor * self.ends[1])
        return Estimated(shift + factor * self.value, factor * self.error, ends)


@dataclass(frozen=True, slots=True)
class Unknown:
    """No number: why, and between which ends it still is."""

    reason: NoEstimate
    ends: tuple[float, float]

    def scaled(self, factor: float, *, shift: float = 0.0) -> Unknown:
        return Unknown(self.reason, (shift + factor * self.ends[0], shift + factor * self.ends[1]))


def estimate(
    aggregate: Aggregate,
    group: Group,
    found: Estimated | Unknown,
    *,
    place: int | None,
    term: str = "",
    sampling: bool = False,
    column: str | None = None,
) -> Estimate:
    """The estimate, with an interval that holds its own value whatever was rounded or projected.

    `place` is where the question lists the aggregate. A number may belong to another `column` than the first.
    """
    statistic, ends = aggregate.statistic.value, found.ends
    column = aggregate.column if column is None else column
    match found:
        case Estimated(value, error):
            inside = (min(ends[0], value), max(ends[1], value))
            return Estimate(statistic, column, group, value, error, inside, CONFIDENCE, term, sampling, place=place)
        case Unknown(reason):
            return Estimate(statistic, column, group, None, None, ends, CONFIDENCE, term, sampling, reason, place)


def number_text(number: Fraction | float) -> str:
    """A number as a term shows it: `80`, `92.5`."""
    return f"{float(number):.12g}"


def farthest(number: Sloped, at: Floats, deviations: Floats, *, critical: float, upwards: bool) -> float | None:
    """The number's greatest (or least) value over the sums that the noise allows; None where it has no end.

    From each point the next is the one to which its slopes show, half of the way, until the number stays as it is.
    """
    sign, place, last = (1.0 if upwards else -1.0), at, np.inf
    for _ in range(_STEPS):
        found = number(place)
        if found is None:
            return None
        value, slopes = found
        if abs(value - last) <= _CLOSE * max(abs(value), _CLOSE):
            return value
        last = value
        pull = slopes * deviations
        length = float(np.sqrt(pull @ pull))
        if length == 0.0:
            return value
        there = at + sign * critical * deviations * pull / length
        place = there if place is at else (place + there) / 2
    return last
