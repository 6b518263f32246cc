"""What a fitted model says about new rows: the same function of a row that steps and scores used.

Inputs go through the study's bounds and the released scaling, and a row that is longer than 1 is shortened, as it was
for every patient the model was fitted to and tried on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wardround.analyst.estimation.fitted import Matrix, Standardisation
from wardround.analyst.estimation.least_squares import SPREADS_OF_TARGET
from wardround.federation.models.logistic import chance
from wardround.federation.models.perceptron import perceptron_scores
from wardround.federation.models.poisson import expected
from wardround.federation.models.step_layout import Input, Vector
from wardround.federation.models.training import ModelKind


def coordinates(values: Matrix, inputs: Sequence[Input], scaling: Standardisation) -> Matrix:
    """Rows of inputs in their own units as the z of a step."""
    low, high = np.array([each.low for each in inputs]), np.array([each.high for each in inputs])
    half = high / 2.0 - low / 2.0
    number = len(inputs)
    within = (np.clip(values, low, high) - (low / 2.0 + high / 2.0)) / np.where(half > 0.0, half, 1.0)
    placed = (within - scaling.centre[:number]) / scaling.spread[:number]
    rows = np.column_stack((np.ones(len(values)), placed)) / math.sqrt(number + 1)
    shortened: Matrix = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    return shortened


def scores(kind: ModelKind, weights: Vector, rows: Matrix, *, hidden: int = 0) -> Vector:
    """The linear or hidden-layer score of rows of z."""
    if kind is ModelKind.PERCEPTRON:
        return perceptron_scores(weights, rows * math.sqrt(rows.shape[1]), hidden)
    return rows @ weights


def predicted(
    kind: ModelKind,
    weights: Vector,
    scaling: Standardisation,
    inputs: Sequence[Input],
    target: Input,
    values: Matrix,
    *,
    hidden: int = 0,
) -> Vector:
    """Chances for a binary outcome, expected values in the target's own units otherwise."""
    found = scores(kind, weights, coordinates(values, inputs, scaling), hidden=hidden)
    match kind:
        case ModelKind.LOGISTIC | ModelKind.PERCEPTRON:
            return chance(found)
        case ModelKind.POISSON:
            return expected(found, target.high)
        case ModelKind.LINEAR:
            half = (target.high - target.low) / 2.0
            between = SPREADS_OF_TARGET * float(scaling.spread[-1]) * found + float(scaling.centre[-1])
            return target.low + half + half * between
