"""CORR(x, y, …): the correlation of every two columns from their sums of products, with noise and sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from wardround.federation.forms.definition import EVEN, Definition, Function, MeasuredIn, need_numbers, the_first
from wardround.federation.forms.totals import NORMAL, Estimated, Floats, Total, Unknown, estimate, farthest
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import MAX_COLUMNS, Statistic
from wardround.federation.statistics.products import Products, coordinates, never_below_nought, part, typical

_EDGE, _LEAST = 1.0 - 1e-12, 1e-15
_FEWEST = 4.0
"""Fisher's transform says nothing about fewer records."""


def estimates(total: Total) -> Iterator[Estimate]:
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
                found: Estimated | Unknown = Unknown(NoEstimate.TOO_FEW, (-1.0, 1.0))
            elif not math.isfinite(errors[i, j]):
                found = Unknown(NoEstimate.NO_SPREAD, (-1.0, 1.0))
            else:
                reached = _reached(products, i, j, total.noise.shown(float(clear[i]), float(clear[j])))
                error, ends = _with_sampling(float(raw[i, j]), errors[i, j], products.number, reached)
                found = Estimated(float(shown[i, j]), error, ends)
            yield estimate(aggregate, group, found, place=total.place, term=names[j], sampling=True, column=names[i])


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


CORRELATION = Definition(
    statistic=Statistic.CORRELATION,
    functions=(Function("CORR", "CORR({x}, {y})"),),
    check=need_numbers,
    part=part,
    coordinates=coordinates,
    estimates=estimates,
    columns=(2, MAX_COLUMNS),
    never_below_nought=never_below_nought,
    typical=typical,
    assumed=f"unrelated columns, {EVEN}, sampling included",
    stands_for=the_first,
    one_number=False,
    pairs=True,
    measure=MeasuredIn.NOTHING,
    term_axis="columns",
    limits=(-1.0, 1.0),
)
