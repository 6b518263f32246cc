"""Poisson regression: counts whose logarithm is a linear score.

A residual is divided by the target's upper bound, so that it is at most 1. Counts vary more than Poisson's law says
as a rule; errors are widened by how much more the released variance of the target is than its mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wardround.federation.models.step_layout import Input, Vector

LEAST_RATE = 1e-3
"""Of the upper bound: a rate below it is not started from."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Counts up to `high`; `dispersion` is their variance over their mean, at least 1."""

    high: float
    dispersion: float

    def rate(self, score: Vector) -> Vector:
        """The expected count, never far above the highest."""
        return expected(score, self.high)

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        """Nothing: how a patient's residual lies around its mean is not known well enough to take anything away."""
        del limit
        return np.zeros_like(score)

    def information(self, score: Vector, limit: float) -> Vector:
        """The rate over the bound."""
        del limit
        return self.rate(score) / self.high

    def square(self, score: Vector, limit: float) -> Vector:
        """The variance over the bound's square."""
        return np.minimum(self.dispersion * self.rate(score) / self.high**2, limit**2)


def expected(score: Vector, high: float) -> Vector:
    """The expected count at a score, as a site reckons it."""
    most = math.log(high) + 1.0 if high > 0.0 else 0.0
    return np.exp(np.minimum(score, most))


def poisson_of(target: Input, released: tuple[float, float] | None) -> tuple[Poisson, float]:
    """The family, and the score of the mean count; `released` are the target's mean and variance in [−1, 1], if any."""
    high = max(target.high, np.finfo(np.float64).tiny)
    if released is None:
        return Poisson(high, 1.0), math.log(high / 2.0)
    half = (target.high - target.low) / 2.0
    mean = max(target.low + half + half * released[0], LEAST_RATE * high)
    variance = released[1] * half**2
    return Poisson(high, max(1.0, variance / mean)), math.log(mean)
