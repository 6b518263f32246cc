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

_EDGE, _LEAST = 1.0 - 1e-12, 1e-15
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
    width, n, noise = len(products.sums) - 1, products.number, products.noise**2
    if n <= max(critical * math.sqrt(noise[0, 0]), 0.0):
        return np.eye(width), np.full((width, width), math.inf)
    covariance, means = products.covariance(), products.sums[0, 1:] / n
    variances, second = np.diag(covariance), products.sums[1:, 1:] / n
    # The slopes of a variance, times n: 1 in its square, −2·mean in its sum, and this in the number.
    own = 2.0 * means**2 - np.diag(second)
    errors = np.sqrt(np.diag(noise)[1:] + (2.0 * means) ** 2 * noise[0, 1:] + own**2 * noise[0, 0]) / n
    sure = variances > np.maximum(critical * errors, _LEAST)
    safe = np.where(sure, variances, 1.0)
    roots = np.sqrt(np.outer(safe, safe))
    plain = np.where(np.outer(sure, sure), covariance / roots, 0.0)
    # Those of a correlation, by the pair's product, its two squares, its two sums, and the number.
    square = plain / (2.0 * safe[:, None])
    added = plain * (means / safe)[:, None] - means[None, :] / roots
    number = (2.0 * np.outer(means, means) - second) / roots - plain / 2.0 * (own / safe + (own / safe)[:, None])
    each = square**2 * np.diag(noise)[1:, None] + added**2 * noise[0, 1:, None]
    squared = noise[1:, 1:] / roots**2 + each + each.T + number**2 * noise[0, 0]
    found = np.clip(plain, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found, np.where(np.outer(sure, sure), np.sqrt(squared) / n, math.inf)


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
