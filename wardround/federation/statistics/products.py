"""Sums of products, which correlation and regression share: their part, and the matrix Σuᵢuⱼ with its noise.

A record adds 29·zᵢ² and 41·zᵢzⱼ for i < j, with z₀ = h and |zᵢ| ≤ h: at most 29·(d + 1)·h² in length (PROOFS.md).
u₀ = 1 and every other u is a column brought to [−1, 1] by its own public bounds. A record's products were weighted so
that one noise fits all; in the matrix the weights are undone, so entries differ in their noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.forms.grids import PRODUCT_NORM, level_quantiser
from wardround.federation.forms.parts import Frame, Part, Records, Sums, Tally
from wardround.federation.forms.totals import Floats
from wardround.federation.question.query import Aggregate

SQUARE_WEIGHT, PRODUCT_WEIGHT = 29, 41
"""A square counts 29 times and a product 41: 41² ≤ 2·29², so the whole is no longer than 29 squared norms."""


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """29·zᵢ² and 41·zᵢzⱼ for each group."""
    (aggregate,) = aggregates
    columns = [frame.column(aggregate, name) for name in aggregate.columns]
    width = len(columns) + 1
    half = math.isqrt(PRODUCT_NORM // width)
    quantisers = tuple(level_quantiser(column, rows=frame.rows, most=2 * half, multiple=2) for column in columns)
    # Columns may have fewer levels than fit; z is then in steps of its own, and no longer for it.
    norm = half**2 + sum((quantiser.high // 2) ** 2 for quantiser in quantisers)
    halves = [half, *(quantiser.high // 2 for quantiser in quantisers)]
    products = sum(left * right for left, right in itertools.combinations(halves, 2))
    return frame.part(
        aggregates,
        Records.MEANS,
        Sums.PRODUCTS,
        coordinates=width * (width + 1) // 2,
        grid=Fraction(1, SQUARE_WEIGHT),
        increment=half,
        l1_sensitivity=frame.max_groups * (SQUARE_WEIGHT * norm + PRODUCT_WEIGHT * products),
        l2_sensitivity_squared=frame.max_groups * (SQUARE_WEIGHT * norm) ** 2,
        largest=SQUARE_WEIGHT * half**2,
        quantisers=quantisers,
    )


def coordinates(part: Part, tally: Tally) -> Tally:
    """Σzᵢzⱼ from Σqᵢqⱼ with z = q − h; z₀ is the same for every record."""
    columns = len(part.columns)
    halves = [quantiser.high // 2 for quantiser in part.quantisers]
    number, sums = tally[:, 0], [tally[:, 1 + place] for place in range(columns)]
    pairs = list(itertools.combinations_with_replacement(range(columns), 2))
    first = part.increment
    found = [SQUARE_WEIGHT * first**2 * number]
    found += [PRODUCT_WEIGHT * first * (sums[i] - halves[i] * number) for i in range(columns)]
    for place, (i, j) in enumerate(pairs):
        raw = tally[:, 1 + columns + place]
        centred = raw - halves[j] * sums[i] - halves[i] * sums[j] + halves[i] * halves[j] * number
        found.append((SQUARE_WEIGHT if i == j else PRODUCT_WEIGHT) * centred)
    return np.stack(found, axis=1)


def never_below_nought(part: Part) -> list[bool]:
    """The number of records and the squares."""
    columns = len(part.columns)
    squares = [i == j for i in range(columns) for j in range(i, columns)]
    return [True, *([False] * columns), *squares]


def typical(part: Part, number: float) -> list[int]:
    """Unrelated columns, spread evenly: n, no sums, a third of the squares and no products."""
    halves = [quantiser.high // 2 for quantiser in part.quantisers]
    found = [round(number * SQUARE_WEIGHT * part.increment**2), *([0] * len(halves))]
    for place, half in enumerate(halves):
        square = SQUARE_WEIGHT * half**2 / 3
        found += [round(number * square), *([0] * (len(halves) - place - 1))]
    return found


@dataclass(frozen=True, slots=True)
class Products:
    """Σuᵢuⱼ as a symmetric matrix, and the standard deviation of the noise in each of its entries."""

    sums: Floats
    noise: Floats

    @classmethod
    def of(cls, part: Part, numbers: Sequence[int], deviation: float) -> Products:
        halves = [part.increment, *(quantiser.high // 2 for quantiser in part.quantisers)]
        width = len(halves)
        places = [
            (0, 0),
            *((0, place) for place in range(1, width)),
            *itertools.combinations_with_replacement(range(1, width), 2),
        ]
        sums, noise = np.zeros((width, width)), np.zeros((width, width))
        for (i, j), number in zip(places, numbers, strict=True):
            weight = (SQUARE_WEIGHT if i == j else PRODUCT_WEIGHT) * halves[i] * halves[j]
            sums[i, j] = sums[j, i] = number / weight
            noise[i, j] = noise[j, i] = deviation / weight
        return cls(sums, noise)

    @property
    def number(self) -> float:
        return float(self.sums[0, 0])

    def covariance(self) -> Floats:
        means = self.sums[0, 1:] / self.number
        found: Floats = self.sums[1:, 1:] / self.number - np.outer(means, means)
        return found

    def error(self, slopes: Floats) -> float:
        """The noise of a number with these slopes in the entries above and on the diagonal."""
        return math.sqrt(float(((slopes * self.noise) ** 2).sum()))
