"""Least squares from one round of noised products (AdaSSP): the ridge comes from the noise itself.

The smallest eigenvalue is read off the noised matrix, which costs nothing more; the ridge is as much as it lacks of
what the noise could hide. So more inputs than patients are nothing special.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wardround.analyst.estimation.fitted import settled
from wardround.analyst.estimation.gaussian_inputs import symmetric
from wardround.federation.models.training import Matrix, Vector

_NEVER_SINGULAR = 1e-7


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Least squares in the coordinates of a step, with the noised products they come from."""

    weights: Vector
    products: Matrix
    ridge: float
    residual_variance: float
    noise_sd: float
    patients: float


def least_squares(packed: Vector, noise_sd: float, patients: float) -> LeastSquares:
    """The weights of least squares with the ridge that the noise asks for."""
    # Rows were halved so that inputs and target together are no longer than 1.
    whole, noise = 2.0 * symmetric(packed), 2.0 * noise_sd
    width = len(whole) - 1
    products, answers = whole[:width, :width], whole[:width, width]
    values, vectors = np.linalg.eigh(products)
    hidden = noise * math.sqrt(2.0 * width)
    ridge = max(0.0, hidden - float(values[0]), _NEVER_SINGULAR * patients)
    weights = settled(vectors @ ((vectors.T @ answers) / np.maximum(values + ridge, _NEVER_SINGULAR * patients)))
    left = float(whole[width, width] - 2.0 * weights @ answers + weights @ products @ weights)
    total = max(float(whole[width, width]), noise) / patients
    # Noise must not make residuals vanish, nor larger than the target itself.
    variance = min(max(left / patients, noise / patients, 0.02 * total), total)
    return LeastSquares(weights, products, ridge, variance, noise, patients)
