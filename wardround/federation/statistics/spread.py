"""VARIANCE(x) and STDDEV(x), and the mean that shares their part: ratios of three noised sums.

A record at level q adds (h², h·t, t² − h²/2) with t = q − h and K = 2h: a unit moves it by at most 5h²/2, and 3h²/2 in
length, so the three share one charge. With y = (x − centre)/H in [−1, 1] a part holds n, Σy and Σ(y² − ½), each with
the same noise. The variance is that of the records themselves, Σ(x − x̄)²/n.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.forms.definition import EVEN, Definition, Function, MeasuredIn, need_numbers
from wardround.federation.forms.grids import MOMENT_LEVELS, level_quantiser
from wardround.federation.forms.parts import Frame, Part, Records, Sums, Tally
from wardround.federation.forms.totals import Estimated, Total, TotalNoise, Unknown, estimate
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.privacy.inference.error_bars import ratio_interval


def together(aggregate: Aggregate) -> Hashable:
    """Variance and standard deviation of a column within the same bounds."""
    return Statistic.VARIANCE, aggregate.column, aggregate.clips


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """(h², h·t, t² − h²/2) for each group."""
    quantiser = level_quantiser(frame.column(aggregates[0]), rows=frame.rows, most=MOMENT_LEVELS, multiple=4)
    half = quantiser.high // 2
    return frame.part(
        aggregates,
        Records.MEANS,
        Sums.PRODUCTS,
        coordinates=3,
        grid=Fraction(1, half**2),
        increment=1,
        l1_sensitivity=frame.max_groups * (5 * half**2 // 2),
        l2_sensitivity_squared=frame.max_groups * (9 * half**4 // 4),
        largest=half**2,
        quantisers=(quantiser,),
    )


def coordinates(part: Part, tally: Tally) -> Tally:
    """From n, Σq and Σq²."""
    half = part.quantisers[0].high // 2
    number, levels, squares = tally[:, 0], tally[:, 1], tally[:, 2]
    centred = squares - 2 * half * levels + half**2 * number
    first = half * (levels - half * number)
    return np.stack((half**2 * number, first, centred - half**2 // 2 * number), axis=1)


@dataclass(frozen=True, slots=True)
class Moments:
    """n, Σy and Σ(y² − ½), in units of one record, and the noise of each in the same unit."""

    number: float
    first: float
    second: float
    noise: TotalNoise

    @property
    def swallowed(self) -> bool:
        """Whether there may be nobody at all."""
        return self.number <= 0.0 or self.number <= self.noise.wide * self.noise.deviation

    def mean(self) -> Estimated | Unknown:
        """The mean of y, within [−1, 1]."""
        if self.swallowed:
            return Unknown(NoEstimate.TOO_FEW, (-1.0, 1.0))
        value = min(max(self.first / self.number, -1.0), 1.0)
        if self.noise.deviation == 0.0:
            return Estimated(value, 0.0, (value, value))
        error = self.noise.deviation * math.hypot(1.0, value) / self.number
        ends = ratio_interval(self.first, self.number, sd=self.noise.deviation, critical=self.noise.wide, bound=1.0)
        return Estimated(value, min(error, 1.0), ends)

    def variance(self) -> Estimated | Unknown:
        """The variance of y, within [0, 1]."""
        if self.swallowed:
            return Unknown(NoEstimate.TOO_FEW, (0.0, 1.0))
        sd, n = self.noise.deviation, self.number
        mean = min(max(self.first / n, -1.0), 1.0)
        plain = self.second / n + 0.5 - mean * mean
        value = min(max(plain, 0.0), 1.0)
        # The slopes of M₂ − M₁² in Σ(y² − ½), Σy and n.
        error = sd * math.sqrt(1.0 + 4.0 * mean**2 + (0.5 + mean**2 - plain) ** 2) / n
        if sd == 0.0:
            return Estimated(value, 0.0, (value, value))
        return Estimated(value, min(error, 0.5), self._ends(mean, plain))

    def _ends(self, mean: float, plain: float) -> tuple[float, float]:
        """Every v for which n(plain − v) is within its own noise, which depends on v: Fieller's set, cut to [0, 1]."""
        n, reach = self.number, self.noise.wide * self.noise.deviation
        # {v: n²(plain − v)² ≤ reach²(fixed + (middle − v)²)}
        fixed, middle = 1.0 + 4.0 * mean**2, 0.5 + mean**2
        curve = n * n - reach * reach
        half = n * n * plain - reach * reach * middle
        rest = n * n * plain * plain - reach * reach * (fixed + middle * middle)
        root = math.sqrt(max(half * half - curve * rest, 0.0))
        # The noise of M₁ enters squared: it can only have made the variance look smaller.
        squared = (reach / n) ** 2
        return min(max((half - root) / curve, 0.0), 1.0), min(max((half + root) / curve + squared, 0.0), 1.0)


def estimates(total: Total) -> Iterator[Estimate]:
    """Mean, variance and standard deviation of each group, aggregate by aggregate."""
    quantiser = total.part.quantisers[0]
    half = quantiser.high // 2
    reach, centre = float(half / quantiser.per_unit), float(quantiser.value(half))
    noise = total.noise.scaled(1.0 / half**2)
    for place, aggregate in zip(total.places, total.part.aggregates, strict=True):
        for group, (number, first, second) in total.groups:
            found = Moments(number / half**2, first / half**2, second / half**2, noise)
            match aggregate.statistic:
                case Statistic.MEAN:
                    yield estimate(aggregate, group, found.mean().scaled(reach, shift=centre), place=place)
                case Statistic.VARIANCE:
                    yield estimate(aggregate, group, found.variance().scaled(reach * reach), place=place)
                case _:
                    yield estimate(aggregate, group, root_of(found.variance()).scaled(reach), place=place)


def root_of(found: Estimated | Unknown) -> Estimated | Unknown:
    """The root of a number at or above 0; near 0 its error is the root of the error."""
    ends = (math.sqrt(max(found.ends[0], 0.0)), math.sqrt(max(found.ends[1], 0.0)))
    match found:
        case Estimated(value, error):
            root, near = math.sqrt(value), math.sqrt(error)
            slope = error / (2.0 * root) if root > near else near
            return Estimated(root, min(slope, near), ends)
        case Unknown(reason):
            return Unknown(reason, ends)


def typical(part: Part, number: float) -> list[int]:
    """Values spread evenly over their bounds."""
    square = (part.quantisers[0].high // 2) ** 2
    return [round(number * square), 0, -round(number * square / 6)]


def _definition(statistic: Statistic, measure: MeasuredIn, *names: str) -> Definition:
    return Definition(
        statistic=statistic,
        functions=tuple(Function(name) for name in names),
        check=need_numbers,
        part=part,
        coordinates=coordinates,
        estimates=estimates,
        together=together,
        absorbs=(Statistic.MEAN,),
        never_below_nought=lambda _: [True, False, False],
        typical=typical,
        assumed=EVEN,
        measure=measure,
    )


# All spreads are those of the patients who are there, whatever a database calls them.
VARIANCE = _definition(Statistic.VARIANCE, MeasuredIn.SQUARE, "VARIANCE", "VAR_SAMP", "VAR_POP")
STD = _definition(Statistic.STD, MeasuredIn.COLUMN, "STDDEV", "STDDEV_SAMP", "STDDEV_POP")
