"""Histograms: how many records lie in each interval, each count with the same noise.

Counts stay as they were released, below zero too: a sum over intervals is then unbiased.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from coordinator.combining.total import Found, Total, estimate, number_text
from wardround.federation.plan.layout import Part
from wardround.federation.question.answer import Estimate


def estimates(total: Total) -> Iterator[Estimate]:
    """The count of each interval of each group."""
    aggregate, grid = total.part.aggregates[0], total.part.grid
    names = interval_terms(total.part)
    error = total.noise.deviation * float(grid)
    reach = total.noise.critical * error
    for group, numbers in total.groups:
        for name, number in zip(names, numbers, strict=True):
            value = number * grid.numerator / grid.denominator
            yield estimate(aggregate, group, Found(value, error, (value - reach, value + reach)), term=name)


def interval_terms(part: Part) -> list[str]:
    """`[80, 92)` and so on; the last interval holds its upper end."""
    quantiser, bins = part.quantisers[0], part.coordinates
    edges = [number_text(quantiser.value(quantiser.high * place // bins)) for place in range(bins + 1)]
    names = [f"[{lower}, {upper})" for lower, upper in itertools.pairwise(edges)]
    return [*names[:-1], names[-1][:-1] + "]"]
