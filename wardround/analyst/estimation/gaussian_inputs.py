"""How inputs lie, as far as it was released: so many patients, around a mean, with a covariance.

Sums over patients that nobody may see (curvature, the bias of clipping, how scores spread) are computed as if inputs
were Gaussian with the released moments. They steer the steps and size the errors; what a model converges to is decided
by noised sums over the patients themselves.

Noise makes a matrix of products indefinite and its small eigenvalues meaningless. Entries are drawn towards what they
would be for unrelated inputs, as strongly as noise alone explains them; what is left below zero is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wardround.analyst.estimation.fitted import RoundSums
from wardround.federation.models.training import Matrix, Vector

Curve = Callable[[Vector], Vector]
"""A function of the score."""

_NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()
_NARROW = 1e-9


@dataclass(frozen=True, slots=True)
class GaussianInputs:
    """Inputs in the coordinates of a step: the intercept's is the same for everybody."""

    patients: float
    mean: Vector
    covariance: Matrix

    @property
    def length(self) -> float:
        """The root mean square of an input's length; no input is longer than 1."""
        square = float(self.mean @ self.mean + np.trace(self.covariance))
        return min(1.0, math.sqrt(max(square, _NARROW)))

    def scores(self, weights: Vector) -> tuple[float, float]:
        """Mean and standard deviation of the score."""
        return float(self.mean @ weights), math.sqrt(max(float(weights @ self.covariance @ weights), _NARROW**2))

    def vector(self, weights: Vector, curve: Curve) -> Vector:
        """Σ curve(score)·z over all patients."""
        middle, wide = self.scores(weights)
        values = curve(middle + wide * _NODES)
        along = self.covariance @ weights / wide
        return self.patients * (float(_WEIGHTS @ values) * self.mean + float(_WEIGHTS @ (values * _NODES)) * along)

    def matrix(self, weights: Vector, curve: Curve) -> Matrix:
        """Σ curve(score)·z zᵀ over all patients."""
        middle, wide = self.scores(weights)
        values = curve(middle + wide * _NODES)
        along = self.covariance @ weights / wide
        whole = float(_WEIGHTS @ values)
        once = float(_WEIGHTS @ (values * _NODES))
        twice = float(_WEIGHTS @ (values * np.square(_NODES)))
        mixed = np.outer(self.mean, along)
        return self.patients * (
            whole * (self.covariance + np.outer(self.mean, self.mean))
            + once * (mixed + mixed.T)
            + (twice - whole) * np.outer(along, along)
        )


def gaussian_of(products: Matrix, patients: float) -> GaussianInputs:
    """The Gaussian inputs with these products of inputs, the intercept's first."""
    first = math.sqrt(max(float(products[0, 0]) / patients, 1e-3 / len(products)))
    mean = products[0] / (patients * first)
    mean[0] = first
    values, vectors = np.linalg.eigh(products / patients - np.outer(mean, mean))
    covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    covariance[0, :] = covariance[:, 0] = 0.0
    return GaussianInputs(patients, mean, covariance)


def unrelated(width: int, patients: float) -> GaussianInputs:
    """Standardised inputs about which nothing else was released."""
    mean = np.zeros(width)
    mean[0] = 1.0 / math.sqrt(width)
    covariance = np.eye(width) / width
    covariance[0, 0] = 0.0
    return GaussianInputs(patients, mean, covariance)


# --- What can be believed of noised products -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoisedProducts:
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


def believed(noisy: Matrix, noise_sd: float) -> NoisedProducts:
    """NoisedProducts drawn towards those of unrelated inputs, as far as noise explains what differs."""
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
    return NoisedProducts(matrix, noise_sd, error)


def counts_by_product(sums: RoundSums, width: int, *, halved: bool) -> dict[str, float]:
    """About how many patients each site has, from the intercept's own product, never below what noise could say."""
    alone = sums.noise_sd / math.sqrt(max(sums.answered, 1))
    unit = (2.0 if halved else 1.0) * width
    return {site: max(float(own[0, 0]), 2.0 * alone, 1.0 / unit) * unit for site, own in sorted(sums.sites.items())}


def _explained(variance: float, values: Vector) -> float:
    """The share of the values' mean square that noise of this variance explains."""
    square = float(np.square(values).mean()) if len(values) else 0.0
    return 1.0 if square <= variance else variance / square
