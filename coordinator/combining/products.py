"""Sums of products: the matrix Σuᵢuⱼ that correlation and regression are made of, and the noise of each entry.

u₀ = 1 and every other u is a column brought to [−1, 1] by its own public bounds. A record's products were weighted so
that one noise fits all (shape.py); here the weights are undone, so entries differ in their noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coordinator.combining.noise import NORMAL
from coordinator.combining.total import Floats, Total, estimate
from wardround.federation.answer import Estimate
from wardround.federation.shape import PRODUCT_WEIGHT, SQUARE_WEIGHT, Part

_EDGE = 1.0 - 1e-12
_FEWEST = 4.0
"""Fisher's transform says nothing about fewer records."""


@dataclass(frozen=True, slots=True)
class Products:
    """Σuᵢuⱼ as a symmetric matrix, and the standard deviation of the noise in each of its entries."""

    sums: Floats
    noise: Floats

    @classmethod
    def of(cls, part: Part, numbers: Sequence[int], deviation: float) -> Products:
        """The matrix of one group."""
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
        """How many records there are."""
        return float(self.sums[0, 0])

    def covariance(self) -> Floats:
        """The covariance of the columns."""
        means = self.sums[0, 1:] / self.number
        found: Floats = self.sums[1:, 1:] / self.number - np.outer(means, means)
        return found

    def slopes(self, first: int, second: int) -> Floats:
        """The slopes of the covariance of two columns in the entries above and on the diagonal."""
        width, n = len(self.sums), self.number
        found = np.zeros((width, width))
        a, b = first + 1, second + 1
        mean_a, mean_b = self.sums[0, a] / n, self.sums[0, b] / n
        found[min(a, b), max(a, b)] += 1.0 / n
        found[0, b] -= mean_a / n
        found[0, a] -= mean_b / n
        found[0, 0] += (2.0 * mean_a * mean_b - self.sums[a, b] / n) / n
        return found

    def error(self, slopes: Floats) -> float:
        """The noise of a number with these slopes in the entries above and on the diagonal."""
        return math.sqrt(float(((slopes * self.noise) ** 2).sum()))


def correlations(total: Total) -> Iterator[Estimate]:
    """The correlation of every two columns of each group, with the error of noise and of sampling."""
    aggregate = total.part.aggregates[0]
    names = aggregate.columns
    for group, numbers in total.groups:
        products = Products.of(total.part, numbers, total.noise.deviation)
        raw, errors = _correlations(products, total.noise.wide)
        shown = nearest_correlation(raw)
        for i, j in itertools.combinations(range(len(names)), 2):
            noise = errors[i, j]
            if not math.isfinite(noise):
                value, error, ends = 0.0, 1.0, (-1.0, 1.0)
            else:
                value = float(shown[i, j])
                error, ends = _with_sampling(float(raw[i, j]), noise, products.number, total.noise.wide)
            found = estimate(aggregate, group, value, error, ends, term=names[j], sampling=True)
            yield _of_column(found, names[i])


def _of_column(found: Estimate, column: str) -> Estimate:
    return Estimate(
        found.statistic,
        column,
        found.group,
        found.value,
        found.standard_error,
        found.interval,
        found.confidence,
        found.term,
        found.sampling,
    )


def _correlations(products: Products, critical: float) -> tuple[Floats, Floats]:
    """The plain correlations and the noise of each; infinite where the noise may be all there is."""
    width = len(products.sums) - 1
    found, errors = np.eye(width), np.full((width, width), math.inf)
    if products.number <= max(critical * products.noise[0, 0], 0.0):
        return found, errors
    covariance = products.covariance()
    variances = np.diag(covariance)
    sure = [
        variances[place] > max(critical * products.error(products.slopes(place, place)), 1e-15)
        for place in range(width)
    ]
    for i, j in itertools.combinations(range(width), 2):
        if not (sure[i] and sure[j]):
            continue
        root = math.sqrt(variances[i] * variances[j])
        value = covariance[i, j] / root
        slopes = products.slopes(i, j) / root
        slopes = slopes - value / 2.0 * products.slopes(i, i) / variances[i]
        slopes = slopes - value / 2.0 * products.slopes(j, j) / variances[j]
        found[i, j] = found[j, i] = min(max(value, -1.0), 1.0)
        errors[i, j] = errors[j, i] = products.error(slopes)
    return found, errors


def _with_sampling(value: float, noise: float, number: float, critical: float) -> tuple[float, tuple[float, float]]:
    """The error and the interval: Fisher's for the sample, widened on each side by the noise."""
    error = math.hypot(noise, (1.0 - value * value) / math.sqrt(number))
    if number <= _FEWEST:
        return 1.0, (-1.0, 1.0)
    middle, reach = math.atanh(min(max(value, -_EDGE), _EDGE)), NORMAL / math.sqrt(number - 3.0)
    below = math.hypot(value - math.tanh(middle - reach), critical * noise)
    above = math.hypot(math.tanh(middle + reach) - value, critical * noise)
    return min(error, 1.0), (max(value - below, -1.0), min(value + above, 1.0))


def nearest_correlation(raw: Floats) -> Floats:
    """The matrix without its negative eigenvalues, brought back to ones on the diagonal: for display only."""
    eigenvalues, vectors = np.linalg.eigh(raw)
    if eigenvalues[0] >= 0.0:
        return raw
    clipped: Floats = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    roots = np.sqrt(np.maximum(np.diag(clipped), 1e-12))
    found: Floats = np.clip(clipped / np.outer(roots, roots), -1.0, 1.0)
    return found
