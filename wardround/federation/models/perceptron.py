"""A perceptron with one hidden layer of tanh units, trained by sampled steps; its score is that of a logistic model.

Its first weights are public and the same for everybody: scattered by a fixed rule, without a generator. They are part
of a model's lineage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.models import logistic
from wardround.federation.models.model_definition import (
    HiddenLayer,
    ModelDefinition,
    TargetScale,
    row_products,
    yes_or_no,
)
from wardround.federation.models.training import Matrix, ModelKind, Vector


@dataclass(frozen=True, slots=True)
class _Layers:
    """The parameters: `inner` row by row, then `outer`, then the intercept."""

    inner: Matrix
    outer: Vector
    intercept: float

    def hidden(self, inputs: Matrix) -> Matrix:
        return np.tanh(row_products(inputs[:, np.newaxis, :], self.inner[np.newaxis]))

    def score(self, hidden: Matrix) -> Vector:
        return row_products(hidden, self.outer) + self.intercept


def _layers(weights: Vector, hidden: int) -> _Layers:
    inner = weights.size - hidden - 1
    return _Layers(weights[:inner].reshape(hidden, -1), weights[inner:-1], float(weights[-1]))


def _weights(hidden: int, inputs: int) -> int:
    return hidden * (inputs + 1) + hidden + 1


def first_weights(hidden: int, inputs: int) -> Vector:
    """Where every perceptron of this size begins: the inner layer row by row, the outer layer, the intercept."""
    inner = _scattered(hidden * (inputs + 1)) / math.sqrt(inputs + 1)
    outer = _scattered(hidden + hidden * (inputs + 1))[-hidden:] / math.sqrt(hidden)
    return np.concatenate((inner, outer, np.zeros(1)))


def _score(inputs: Matrix, weights: Vector, hidden: int) -> Vector:
    layers = _layers(weights, hidden)
    return layers.score(layers.hidden(inputs))


def _gradient(inputs: Matrix, target: Vector, weights: Vector, hidden: int) -> Matrix:
    layers = _layers(weights, hidden)
    units = layers.hidden(inputs)
    residual = logistic.residual(layers.score(units), target, 1.0)
    found = np.empty((target.size, weights.size))
    inner = layers.inner.size
    back = (1.0 - units * units) * layers.outer * residual[:, np.newaxis]
    shaped = found[:, :inner].reshape(target.size, *layers.inner.shape)
    np.multiply(back[:, :, np.newaxis], inputs[:, np.newaxis, :], out=shaped)
    np.multiply(units, residual[:, np.newaxis], out=found[:, inner:-1])
    found[:, -1] = residual
    return found


def _scores(inputs: Matrix, weights: Vector, hidden: int) -> Vector:
    layers = _layers(weights, hidden)
    found: Vector = np.tanh(inputs @ layers.inner.T) @ layers.outer + layers.intercept
    return found


def _scattered(count: int) -> Vector:
    """Numbers of mean 0 and variance 1 without visible order: places of k²·φ between whole numbers."""
    places = np.arange(1, count + 1, dtype=np.float64)
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    return math.sqrt(3.0) * (2.0 * np.mod(np.square(places) * golden, 1.0) - 1.0)


MODEL = ModelDefinition(
    kind=ModelKind.PERCEPTRON,
    target=yes_or_no,
    scale=TargetScale.YES_OR_NO,
    expected=logistic.MODEL.expected,
    residual=logistic.MODEL.residual,
    family=logistic.MODEL.family,
    moments_share=Fraction(1, 20),
    clip=1.0,
    layer=HiddenLayer(
        weights=_weights,
        start=first_weights,
        initialisation="public weights from a fixed seed",
        score=_score,
        gradient=_gradient,
        scores=_scores,
        speed=8.0,
    ),
)
