"""Coefficients in the columns' own units, with errors that hold both what sampling and what noise did.

Reported coefficients are one step away from the averaged model, without the damping that keeps predictions calm, so
that they are not drawn towards zero. Their covariance is a sandwich: the spread of patients' gradients, the noise of
the averaged rounds, and what errors of the released products can do to the last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wardround.analyst.estimation.fitted import Coefficient, Standardisation
from wardround.analyst.estimation.gaussian_inputs import GaussianInputs
from wardround.analyst.estimation.least_squares import LeastSquares
from wardround.analyst.estimation.preconditioned_gradient import PreconditionedGradient
from wardround.federation.models import definition_of
from wardround.federation.models.model_definition import SPREADS_OF_TARGET, Family, TargetScale
from wardround.federation.models.training import Input, Matrix, ModelKind, Vector

INTERCEPT = "(intercept)"
_TWO_SIDED_95 = 1.959963984540054
_NEVER_SINGULAR = 1e-7
_CUT_UNSURE = 0.2
"""How much of what clipping takes may be wrong, because patients are not Gaussian."""


def of_gradients(fitted: PreconditionedGradient) -> tuple[Vector, Matrix]:
    """Weights without damping, and their covariance, from the rounds that were averaged."""
    rounds = max(fitted.averaged, 1)
    begun = fitted.begun / rounds if fitted.averaged else fitted.weights
    pull = fitted.pulls / rounds
    doubt = fitted.doubt(begun, 0.0)
    bread = np.linalg.inv(fitted.curvature(begun) + doubt * np.eye(len(begun)))
    step = bread @ pull
    weights = begun - step
    typical = doubt / fitted.error * fitted.product_noise if fitted.error > 0.0 else 0.0
    meat = fitted.gaussian.matrix(weights, lambda score: fitted.family.square(score, fitted.limit))
    cut = _CUT_UNSURE * fitted.cut(weights)
    meat += _products_error(step, typical) + doubt**2 * np.outer(step, step)
    # The noise that the step begins with is nearly that of the step, and what damping leaves of it adds up with it.
    twice = np.eye(len(begun)) + doubt * bread
    meat += fitted.noise / rounds**2 * twice @ twice + np.outer(cut, cut)
    # Where the step began is as far from the truth as the step is long and its end is unsure.
    unsure = float(np.trace(bread @ meat @ bread))
    meat += typical**2 / 2.0 * unsure * np.eye(len(begun))
    return weights, bread @ meat @ bread


def of_squares(squares: LeastSquares) -> Matrix:
    """The covariance of least squares from noised products."""
    weights, width = squares.weights, len(squares.weights)
    values, vectors = np.linalg.eigh(squares.products)
    kept = np.maximum(values + squares.ridge, _NEVER_SINGULAR * squares.patients)
    bread = (vectors / kept) @ vectors.T
    meat = squares.residual_variance * (vectors * np.maximum(values, 0.0)) @ vectors.T
    meat += _products_error(weights, squares.noise_sd) + squares.noise_sd**2 / 2.0 * np.eye(width)
    meat += squares.ridge**2 * np.outer(weights, weights)
    covariance: Matrix = bread @ meat @ bread
    return covariance


def of_samples(family: Family, gaussian: GaussianInputs, weights: Vector, noise_variance: float) -> Matrix:
    """About the covariance of the mean of many sampled steps, whose mean gradient has this noise."""
    width = len(weights)
    curvature = gaussian.matrix(weights, lambda score: family.information(score, 1.0))
    bread = np.linalg.inv(curvature + _NEVER_SINGULAR * gaussian.patients * np.eye(width))
    meat = gaussian.matrix(weights, lambda score: family.square(score, 1.0)) + noise_variance * np.eye(width)
    return bread @ meat @ bread


def coefficients(
    kind: ModelKind,
    inputs: Sequence[Input],
    target: Input,
    scaling: Standardisation,
    weights: Vector,
    covariance: Matrix,
) -> tuple[Coefficient, ...]:
    """Weights of a step as what one unit of each column adds, the intercept first."""
    number = len(inputs)
    low, high = np.array([each.low for each in inputs]), np.array([each.high for each in inputs])
    middle, half = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
    units = np.where(half > 0.0, half, np.inf) * scaling.spread[:number]
    turn = np.zeros((number + 1, number + 1))
    turn[0, 0] = 1.0
    turn[1:, 1:] = np.diag(1.0 / units)
    turn[0, 1:] = -(middle + half * scaling.centre[:number]) / units
    turn /= math.sqrt(number + 1)
    offset = 0.0
    if definition_of(kind).scale is TargetScale.STANDARDISED:
        half_target = (target.high - target.low) / 2.0
        turn *= SPREADS_OF_TARGET * float(scaling.spread[-1]) * half_target
        offset = target.low + half_target + half_target * float(scaling.centre[-1])
    values = turn @ weights
    values[0] += offset
    errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", turn, covariance, turn), 0.0))
    names = (INTERCEPT, *(each.name for each in inputs))
    return tuple(_coefficient(*each) for each in zip(names, values.tolist(), errors.tolist(), strict=True))


def _products_error(weights: Vector, noise_sd: float) -> Matrix:
    """The covariance of E·weights for symmetric noise E, whose entries off the diagonal have half the variance."""
    width = len(weights)
    return noise_sd**2 / 2.0 * (float(weights @ weights) * np.eye(width) + np.outer(weights, weights))


def _coefficient(name: str, value: float, error: float) -> Coefficient:
    reach = _TWO_SIDED_95 * error
    return Coefficient(name, value, error, (value - reach, value + reach))
