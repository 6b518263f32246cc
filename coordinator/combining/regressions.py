"""Linear regression from the sums of products: coefficients, and a sandwich of noise and sampling around them.

The ridge is taken from the noised matrix alone. It is nought as long as every direction of the predictors stands
clear of the noise; where one does not, the coefficients are shrunk and their intervals claim nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coordinator.combining.products import Products
from coordinator.combining.spread import root_of
from coordinator.combining.total import Floats, Total, estimate
from wardround.federation.answer import Estimate
from wardround.federation.quantising import Quantiser

_SINGULAR = 1e-12
_OUTCOME = 1
_LARGEST = 4.0
"""The largest square of a difference of two scaled values."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients in the scaled columns, intercept first, and their covariance; the residual variance and R².

    `clear` says that no direction of the predictors was lost in the noise; otherwise the rest claims nothing.
    """

    coefficients: Floats
    covariance: Floats
    residual: tuple[float, float]
    explained: tuple[float, float]
    clear: bool


def estimates(total: Total) -> Iterator[Estimate]:
    """A coefficient for each predictor and the intercept, then R² and the residual standard deviation."""
    aggregate, quantisers = total.part.aggregates[0], total.part.quantisers
    critical = total.noise.wide
    terms = ("intercept", *aggregate.others)
    back, shift, widest = _unscaled(quantisers)
    width = float(quantisers[0].high / quantisers[0].per_unit)
    for group, numbers in total.groups:
        fit = fitted(Products.of(total.part, numbers, total.noise.deviation), critical)
        values = np.clip(shift + back @ fit.coefficients, -widest, widest)
        errors = np.sqrt(np.maximum(np.diag(back @ fit.covariance @ back.T), 0.0))
        for place in (*range(1, len(terms)), 0):
            value, most = float(values[place]), float(widest[place])
            error = min(float(errors[place]), most) if fit.clear else most
            ends = (value - critical * error, value + critical * error) if fit.clear else (-most, most)
            yield estimate(aggregate, group, value, error, ends, term=terms[place], sampling=True)
        value, error, ends = _within(fit.explained, critical, largest=1.0, known=fit.clear)
        yield estimate(aggregate, group, value, error, ends, term="r_squared", sampling=True)
        largest = _LARGEST if fit.clear else 1.0
        value, error, ends = root_of(*_within(fit.residual, critical, largest=largest, known=fit.clear))
        half = width / 2
        scaled = (half * ends[0], half * ends[1])
        yield estimate(aggregate, group, half * value, half * error, scaled, term="residual_sd", sampling=True)


def fitted(products: Products, critical: float) -> Fit:
    """Least squares of the first column on the others and a constant."""
    chosen = [0, *range(_OUTCOME + 1, len(products.sums))]
    matrix, target = products.sums[np.ix_(chosen, chosen)], products.sums[chosen, _OUTCOME]
    eigenvalues = np.linalg.eigvalsh(matrix)
    # The eigenvalues of such noise hardly ever reach so far: two deviations of it for every direction.
    lost = critical * math.sqrt(len(chosen)) * float(products.noise[np.ix_(chosen, chosen)].max())
    lost += _SINGULAR * max(float(np.abs(matrix).max()), 1.0)
    clear = bool(eigenvalues[0] > lost) and products.number > len(chosen)
    ridge = 0.0 if clear else max(lost - float(eigenvalues[0]), 0.0)
    inverse: Floats = np.linalg.inv(matrix + ridge * np.eye(len(chosen))).astype(np.float64)
    coefficients: Floats = inverse @ target
    if not clear:
        return Fit(coefficients, np.zeros_like(inverse), (0.5, 0.5), (0.5, 0.5), clear=False)
    return _judged(products, chosen, inverse, coefficients)


def _judged(products: Products, chosen: list[int], inverse: Floats, coefficients: Floats) -> Fit:
    # With w = (β, −1) the residual sum of squares is wᵀSw, and the noise E of S moves β by −A⁻¹(Ew).
    weights = np.zeros(len(products.sums))
    weights[chosen], weights[_OUTCOME] = coefficients, -1.0
    pairs = np.outer(weights, weights)
    moved = (pairs * products.noise**2)[np.ix_(chosen, chosen)]
    np.fill_diagonal(moved, (products.noise**2 @ weights**2)[chosen])
    squares = float(weights @ products.sums @ weights)
    number, free = products.number, products.number - len(chosen)
    # β is where the sum of squares is least, so to first order it only moves with S itself.
    slopes = 2.0 * np.triu(pairs, 1) + np.diag(weights**2)
    noise = products.error(slopes)
    residual = min(max(squares / free, 0.0), _LARGEST)
    # A sum of squares that the noise has pushed to 0 is still as large as the noise allows.
    sampled = max(squares, noise, 0.0) / free
    covariance: Floats = inverse @ moved @ inverse + sampled * inverse
    whole = number * float(products.covariance()[0, 0])
    mean = float(products.sums[0, _OUTCOME]) / number
    around = np.zeros_like(slopes)
    around[_OUTCOME, _OUTCOME], around[0, _OUTCOME], around[0, 0] = 1.0, -2.0 * mean, mean**2
    if whole <= 0.0:
        return Fit(coefficients, covariance, (residual, _LARGEST), (0.5, 0.5), clear=True)
    share = min(max(squares / whole, 0.0), 1.0)
    explained_noise = products.error(slopes - share * around) / whole
    explained_sampled = 2.0 * math.sqrt(1.0 - share) * share / math.sqrt(number)
    slopes[0, 0] -= residual
    return Fit(
        coefficients,
        covariance,
        (residual, math.hypot(products.error(slopes) / free, sampled * math.sqrt(2.0 / free))),
        (1.0 - share, math.hypot(explained_noise, explained_sampled)),
        clear=True,
    )


def _within(
    found: tuple[float, float], critical: float, *, largest: float, known: bool
) -> tuple[float, float, tuple[float, float]]:
    value, error = found
    if not known:
        return value, error, (0.0, largest)
    reach = critical * error
    return value, min(error, largest / 2), (max(value - reach, 0.0), min(value + reach, largest))


def _unscaled(quantisers: tuple[Quantiser, ...]) -> tuple[Floats, Floats, Floats]:
    """From scaled coefficients to the columns' own units: a linear map, its shift, and the widest possible values.

    Two values of a predictor are at least one level apart, so a slope is at most the outcome's range over a level.
    """
    halves = [float(quantiser.high / quantiser.per_unit) / 2 for quantiser in quantisers]
    centres = [float(quantiser.value(quantiser.high // 2)) for quantiser in quantisers]
    outcome, width = halves[0], len(quantisers)
    back = np.zeros((width, width))
    back[0, 0] = outcome
    widest = np.full(width, 2.0 * outcome)
    for place in range(1, width):
        back[place, place] = outcome / halves[place]
        back[0, place] = -outcome * centres[place] / halves[place]
        widest[place] = 2.0 * outcome * float(quantisers[place].per_unit)
        widest[0] += widest[place] * abs(centres[place])
    shift = np.zeros(width)
    shift[0] = centres[0]
    widest[0] += abs(centres[0])
    return back, shift, widest
