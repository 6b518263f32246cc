"""A perceptron with one hidden layer of tanh units, trained by sampled steps.

Its first weights are public and the same for everybody: scattered by a fixed rule, without a generator. They are part
of a model's lineage.
"""

from __future__ import annotations

import math

import numpy as np

from wardround.federation.models.step_layout import Vector

INITIALISATION = "quadratic golden-ratio sequence, inner layer of variance 1/(inputs + 1), outer 1/hidden, version 1"
SPEED = 8.0


def first_weights(hidden: int, inputs: int) -> Vector:
    """Where every perceptron of this size begins: the inner layer row by row, the outer layer, the intercept."""
    inner = _scattered(hidden * (inputs + 1)) / math.sqrt(inputs + 1)
    outer = _scattered(hidden + hidden * (inputs + 1))[-hidden:] / math.sqrt(hidden)
    return np.concatenate((inner, outer, np.zeros(1)))


def perceptron_scores(weights: Vector, inputs: Vector, hidden: int) -> Vector:
    """The score of each row of z·√(d + 1)."""
    inner = hidden * inputs.shape[1]
    layer = weights[:inner].reshape(hidden, inputs.shape[1])
    found: Vector = np.tanh(inputs @ layer.T) @ weights[inner:-1] + weights[-1]
    return found


def _scattered(count: int) -> Vector:
    """Numbers of mean 0 and variance 1 without visible order: places of k²·φ between whole numbers."""
    places = np.arange(1, count + 1, dtype=np.float64)
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    return math.sqrt(3.0) * (2.0 * np.mod(np.square(places) * golden, 1.0) - 1.0)
