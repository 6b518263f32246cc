"""The noised matrix of products of inputs, and what can be believed of it.

Noise makes a matrix of products indefinite and its small eigenvalues meaningless. Entries are drawn towards what they
would be for unrelated inputs, as strongly as noise alone explains them; what is left below zero is cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wardround.analyst.estimation.fitted import Matrix, RoundSums
from wardround.federation.models.step_layout import Vector


@dataclass(frozen=True, slots=True)
class Products:
    """A positive semidefinite matrix of products, the noise of one of its diagonal entries, and its error at most."""

    matrix: Matrix
    noise_sd: float
    error: float


def symmetric(packed: Vector) -> Matrix:
    """The matrix whose upper half, row by row and times √2 off the diagonal, this is."""
    width = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    upper = np.zeros((width, width))
    rows, columns = np.triu_indices(width)
    upper[rows, columns] = np.where(rows == columns, packed, packed / math.sqrt(2.0))
    return upper + np.triu(upper, 1).T


def believed(noisy: Matrix, noise_sd: float) -> Products:
    """Products drawn towards those of unrelated inputs, as far as noise explains what differs."""
    width = len(noisy)
    diagonal = np.diag(noisy)
    level = max(float(diagonal.mean()), noise_sd)
    apart = diagonal - level
    off = noisy[np.triu_indices(width, 1)]
    kept_apart = 1.0 - _explained(noise_sd**2, apart)
    kept_off = 1.0 - _explained(noise_sd**2 / 2.0, off)
    matrix = noisy * kept_off
    np.fill_diagonal(matrix, level + apart * kept_apart)
    values, vectors = np.linalg.eigh(matrix)
    matrix = (vectors * np.maximum(values, 0.0)) @ vectors.T
    # The largest eigenvalue of such noise is about sd·√(2·width); of it what was not drawn in is left.
    error = noise_sd * math.sqrt(2.0 * width * kept_off * (1.0 - kept_off))
    return Products(matrix, noise_sd, error)


def counts_by_product(sums: RoundSums, width: int, *, halved: bool) -> dict[str, float]:
    """About how many patients each site has, from the intercept's own product, never below what noise could say."""
    alone = sums.noise_sd / math.sqrt(max(sums.answered, 1))
    unit = (2.0 if halved else 1.0) * width
    return {site: max(float(own[0, 0]), 2.0 * alone, 1.0 / unit) * unit for site, own in sorted(sums.sites.items())}


def _explained(variance: float, values: Vector) -> float:
    """The share of the values' mean square that noise of this variance explains."""
    square = float(np.square(values).mean()) if len(values) else 0.0
    return 1.0 if square <= variance else variance / square
