"""Linear regression: a number whose standardised value is a linear score.

Products of inputs and target are all that least squares need, so one round of them is the model. Where it is fitted by
gradients all the same, residuals have a known variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.models.model_definition import SPREADS_OF_TARGET, ModelDefinition, TargetScale, bounded_number
from wardround.federation.models.training import ModelKind, Vector


@dataclass(frozen=True, slots=True)
class GaussianFamily:
    """Residuals of a known variance."""

    variance: float = 1.0 / SPREADS_OF_TARGET**2

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        """Nothing: residuals are as often cut above as below."""
        del limit
        return np.zeros_like(score)

    def information(self, score: Vector, limit: float) -> Vector:
        del limit
        return np.ones_like(score)

    def square(self, score: Vector, limit: float) -> Vector:
        """At most that of the target itself."""
        return np.full_like(score, min(self.variance, limit**2))


MODEL = ModelDefinition(
    kind=ModelKind.LINEAR,
    target=bounded_number,
    scale=TargetScale.STANDARDISED,
    expected=lambda score, _high: score,
    residual=lambda score, target, _high: np.clip(score - target, -1.0, 1.0),
    family=lambda _target, _released: (GaussianFamily(), 0.0),
    moments_share=Fraction(1, 10),
    clip=1.0,
    least_squares=True,
)
