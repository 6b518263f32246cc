"""Counts and sums: the noised total itself, in the column's own unit."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.combining.total import Found, Total, estimate
from wardround.federation.question.answer import Estimate


def estimates(total: Total) -> Iterator[Estimate]:
    """The total of each group; its error is the noise's alone and the same for all."""
    grid = total.part.grid
    error = total.noise.deviation * float(grid)
    reach = total.noise.critical * error
    for group, (number,) in total.groups:
        # Python's division of integers is correctly rounded, so a noiseless total is exact.
        value = number * grid.numerator / grid.denominator
        yield estimate(total.part.aggregates[0], group, Found(value, error, (value - reach, value + reach)))
