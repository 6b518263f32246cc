"""How inputs lie, as far as it was released: so many patients, around a mean, with a covariance.

Sums over patients that nobody may see (curvature, the bias of clipping, how scores spread) are computed for a normal
cloud with the released moments. They steer the steps and size the errors; what a model converges to is decided by
noised sums over the patients themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wardround.analyst.estimation.fitted import Matrix
from wardround.federation.models.step_layout import Vector

Curve = Callable[[Vector], Vector]
"""A function of the score."""

_NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()
_NARROW = 1e-9


@dataclass(frozen=True, slots=True)
class Cloud:
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


def cloud_of(products: Matrix, patients: float) -> Cloud:
    """The cloud with these products of inputs, the intercept's first."""
    first = math.sqrt(max(float(products[0, 0]) / patients, 1e-3 / len(products)))
    mean = products[0] / (patients * first)
    mean[0] = first
    values, vectors = np.linalg.eigh(products / patients - np.outer(mean, mean))
    covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    covariance[0, :] = covariance[:, 0] = 0.0
    return Cloud(patients, mean, covariance)


def unrelated(width: int, patients: float) -> Cloud:
    """The cloud of standardised inputs about which nothing else was released."""
    mean = np.zeros(width)
    mean[0] = 1.0 / math.sqrt(width)
    covariance = np.eye(width) / width
    covariance[0, 0] = 0.0
    return Cloud(patients, mean, covariance)
