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
from coordinator.combining.reaching import farthest
from coordinator.combining.total import Floats, Found, Total, Unknown, of_column
from wardround.federation.plan.layout import PRODUCT_WEIGHT, SQUARE_WEIGHT, Part
from wardround.federation.question.answer import Estimate
from wardround.federation.question.no_estimate import NoEstimate

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
        raw, errors, clear = _correlations(products, total.noise.wide)
        shown = nearest_correlation(raw)
        fewest = max(total.noise.wide * float(products.noise[0, 0]), _FEWEST)
        for i, j in itertools.combinations(range(len(names)), 2):
            if products.number <= fewest:
                found: Found | Unknown = Unknown(NoEstimate.TOO_FEW, (-1.0, 1.0))
            elif not math.isfinite(errors[i, j]):
                found = Unknown(NoEstimate.NO_SPREAD, (-1.0, 1.0))
            else:
                reached = _reached(products, i, j, total.noise.shown(float(clear[i]), float(clear[j])))
                error, ends = _with_sampling(float(raw[i, j]), errors[i, j], products.number, reached)
                found = Found(float(shown[i, j]), error, ends)
            yield of_column(aggregate, names[i], group, found, term=names[j], sampling=True)


def _correlations(products: Products, critical: float) -> tuple[Floats, Floats, Floats]:
    """The plain correlations, the noise of each, and how many deviations each column's variance is clear of 0.

    The noise is infinite where it may be all there is.
    """
    width, n, noise = len(products.sums) - 1, products.number, products.noise**2
    if n <= max(critical * math.sqrt(noise[0, 0]), 0.0):
        return np.eye(width), np.full((width, width), math.inf), np.zeros(width)
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
    clear = variances / np.where(errors > 0.0, errors, _LEAST)
    return found, np.where(np.outer(sure, sure), np.sqrt(squared) / n, math.inf), clear


def _reached(products: Products, i: int, j: int, critical: float) -> tuple[float, float]:
    """The least and the greatest correlation of two columns that the noise allows."""
    if not products.noise.any():
        found = _pair(_entries(products.sums, i, j))
        value = 0.0 if found is None else min(max(found[0], -1.0), 1.0)
        return value, value
    at, deviations = _entries(products.sums, i, j), _entries(products.noise, i, j)
    low, high = (farthest(_pair, at, deviations, critical=critical, upwards=up) for up in (False, True))
    return -1.0 if low is None else min(max(low, -1.0), 1.0), 1.0 if high is None else max(min(high, 1.0), -1.0)


def _entries(matrix: Floats, i: int, j: int) -> Floats:
    first, second = i + 1, j + 1
    pairs = ((0, 0), (0, first), (0, second), (first, first), (first, second), (second, second))
    return np.array([matrix[pair] for pair in pairs])


def _pair(entries: Floats) -> tuple[float, Floats] | None:
    """The correlation of two columns and its slopes in n, their sums, squares and product."""
    n, a, b, aa, ab, bb = (float(entry) for entry in entries)
    if n <= 0.0:
        return None
    left, right = a / n, b / n
    first, second, both = aa / n - left**2, bb / n - right**2, ab / n - left * right
    if min(first, second) <= _LEAST:
        return None
    root = math.sqrt(first * second)
    value = both / root
    of_first = np.array([2.0 * left**2 - aa / n, -2.0 * left, 0.0, 1.0, 0.0, 0.0])
    of_second = np.array([2.0 * right**2 - bb / n, 0.0, -2.0 * right, 0.0, 0.0, 1.0])
    of_both = np.array([2.0 * left * right - ab / n, -right, -left, 0.0, 1.0, 0.0])
    slopes: Floats = (of_both / root - value / 2.0 * (of_first / first + of_second / second)) / n
    return value, slopes


def _with_sampling(
    value: float, noise: float, number: float, reached: tuple[float, float]
) -> tuple[float, tuple[float, float]]:
    """The error and the interval: Fisher's for the sample, widened on each side by the noise."""
    error = math.hypot(noise, (1.0 - value * value) / math.sqrt(number))
    middle, reach = math.atanh(min(max(value, -_EDGE), _EDGE)), NORMAL / math.sqrt(number - 3.0)
    below = math.hypot(value - math.tanh(middle - reach), value - reached[0])
    above = math.hypot(math.tanh(middle + reach) - value, reached[1] - value)
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
