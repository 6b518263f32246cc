"""Poisson regression: counts whose logarithm is a linear score.

A residual is divided by the target's upper bound, so that it is at most 1. Counts vary more than Poisson's law says
as a rule; errors are widened by how much more the released variance of the target is than its mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.errors import QueryMistaken
from wardround.federation.models.model_definition import Family, ModelDefinition, TargetScale, bounded_number, over
from wardround.federation.models.training import Input, ModelKind, Vector
from wardround.federation.study.study import Column

LEAST_RATE = 1e-3
"""Of the upper bound: a rate below it is not started from."""

_LARGEST_POWER = 709.0
"""e to this is a double still, and beyond the outcome that a row could have but for those near the last of doubles."""


@dataclass(frozen=True, slots=True)
class PoissonFamily:
    """Counts up to `high`; `dispersion` is their variance over their mean, at least 1."""

    high: float
    dispersion: float

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        """Nothing: how a patient's residual lies around its mean is not known well enough to take anything away."""
        del limit
        return np.zeros_like(score)

    def information(self, score: Vector, limit: float) -> Vector:
        """The rate over the bound."""
        del limit
        return _expected(score, self.high) / self.high

    def square(self, score: Vector, limit: float) -> Vector:
        """The variance over the bound's square."""
        return np.minimum(self.dispersion * _expected(score, self.high) / self.high**2, limit**2)


def _target(column: Column, kind: ModelKind) -> Input:
    found = bounded_number(column, kind)
    if found.low < 0.0:
        raise QueryMistaken(
            f"the target of a Poisson model must not be below 0; {column.name!r} may be, by its bounds."
        )
    return found


def _expected(score: Vector, high: float) -> Vector:
    """exp, cut where twice the highest outcome is passed: a residual is cut before."""
    most = min(math.log(high) + 1.0, _LARGEST_POWER) if high > 0.0 else 0.0
    return np.exp(np.minimum(score, most))


def _residual(score: Vector, target: Vector, high: float) -> Vector:
    return over(_expected(score, high) - target, high)


def _family(target: Input, released: tuple[float, float] | None) -> tuple[Family, float]:
    """From the mean count on, where it was released."""
    high = max(target.high, np.finfo(np.float64).tiny)
    if released is None:
        return PoissonFamily(high, 1.0), math.log(high / 2.0)
    half = (target.high - target.low) / 2.0
    mean = max(target.low + half + half * released[0], LEAST_RATE * high)
    variance = released[1] * half**2
    return PoissonFamily(high, max(1.0, variance / mean)), math.log(mean)


MODEL = ModelDefinition(
    kind=ModelKind.POISSON,
    target=_target,
    scale=TargetScale.IN_UNITS,
    expected=_expected,
    residual=_residual,
    family=_family,
    moments_share=Fraction(1, 10),
    clip=0.25,
)
