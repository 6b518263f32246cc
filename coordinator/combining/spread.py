"""Variance and standard deviation, and the mean that shares their part: ratios of three noised sums.

With y = (x − centre)/H in [−1, 1] a part holds n, Σy and Σ(y² − ½), each with the same noise. The variance is that
of the records themselves, Σ(x − x̄)²/n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.combining.noise import Noise
from coordinator.combining.total import Total, estimate
from wardround.federation.answer import Estimate
from wardround.federation.query import Statistic
from wardround.privacy.uncertainty import ratio_interval

_Found = tuple[float, float, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Moments:
    """n, Σy and Σ(y² − ½), in units of one record, and the noise of each in the same unit."""

    number: float
    first: float
    second: float
    noise: Noise

    @property
    def swallowed(self) -> bool:
        """Whether there may be nobody at all."""
        return self.number <= 0.0 or self.number <= self.noise.wide * self.noise.deviation

    def mean(self) -> _Found:
        """The mean of y, its error and its interval, within [−1, 1]."""
        if self.number <= 0.0:
            return 0.0, 1.0, (-1.0, 1.0)
        value = min(max(self.first / self.number, -1.0), 1.0)
        if self.noise.deviation == 0.0:
            return value, 0.0, (value, value)
        error = self.noise.deviation * math.hypot(1.0, value) / self.number
        ends = ratio_interval(self.first, self.number, sd=self.noise.deviation, critical=self.noise.wide, bound=1.0)
        return value, min(error, 1.0), ends

    def variance(self) -> _Found:
        """The variance of y, its error and its interval, within [0, 1]."""
        if self.swallowed:
            return 0.5, 0.5, (0.0, 1.0)
        sd, n = self.noise.deviation, self.number
        mean = min(max(self.first / n, -1.0), 1.0)
        plain = self.second / n + 0.5 - mean * mean
        value = min(max(plain, 0.0), 1.0)
        # The slopes of M₂ − M₁² in Σ(y² − ½), Σy and n.
        error = sd * math.sqrt(1.0 + 4.0 * mean**2 + (0.5 + mean**2 - plain) ** 2) / n
        if sd == 0.0:
            return value, 0.0, (value, value)
        lower, upper = self._ends(mean, plain)
        return value, min(error, 0.5), (lower, upper)

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
    for aggregate in total.part.aggregates:
        for group, (number, first, second) in total.groups:
            found = Moments(number / half**2, first / half**2, second / half**2, noise)
            match aggregate.statistic:
                case Statistic.MEAN:
                    value, error, ends = found.mean()
                    shifted = (centre + reach * ends[0], centre + reach * ends[1])
                    yield estimate(aggregate, group, centre + reach * value, reach * error, shifted)
                case Statistic.VARIANCE:
                    value, error, ends = found.variance()
                    squared = reach * reach
                    yield estimate(
                        aggregate, group, squared * value, squared * error, (squared * ends[0], squared * ends[1])
                    )
                case _:
                    value, error, ends = root_of(*found.variance())
                    yield estimate(aggregate, group, reach * value, reach * error, (reach * ends[0], reach * ends[1]))


def root_of(value: float, error: float, ends: tuple[float, float]) -> _Found:
    """The root of a number at or above 0; near 0 its error is the root of the error."""
    root = math.sqrt(value)
    near = math.sqrt(error)
    slope = error / (2.0 * root) if root > near else near
    return root, min(slope, near), (math.sqrt(max(ends[0], 0.0)), math.sqrt(max(ends[1], 0.0)))
