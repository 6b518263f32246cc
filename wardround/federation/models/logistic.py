"""Logistic regression from clipped, noised gradients.

Half a patient's largest residual is where clipping costs least and halves the noise. It would pull chances towards
one half; because the pull is a known function of the score, it is taken away again (`mean_residual`), and what a
model converges to is what it would be without clipping.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.models.model_definition import ModelDefinition, TargetScale, yes_or_no
from wardround.federation.models.training import ModelKind, Vector

_HALF = 0.5


def chance(score: Vector, high: float = 1.0) -> Vector:
    """The chance of the outcome, by a function that cannot overflow."""
    del high
    found = np.tanh(score * _HALF)
    found *= _HALF
    found += _HALF
    return found


def residual(score: Vector, target: Vector, high: float) -> Vector:
    """The chance minus the outcome."""
    return chance(score, high) - target


@dataclass(frozen=True, slots=True)
class LogisticFamily:
    """Outcomes yes or no; the residual is the chance minus the outcome."""

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        """With chance p the residual is p − 1, otherwise it is p."""
        yes = chance(score)
        no = chance(-score)
        return no * np.minimum(yes, limit) - yes * np.minimum(no, limit)

    def information(self, score: Vector, limit: float) -> Vector:
        """p(1 − p) where nothing is cut."""
        yes = chance(score)
        no = chance(-score)
        change: Vector = yes * no * (np.minimum(yes, limit) + np.minimum(no, limit))
        return change

    def square(self, score: Vector, limit: float) -> Vector:
        """p(1 − p) where nothing is cut."""
        yes = chance(score)
        no = chance(-score)
        return no * np.square(np.minimum(yes, limit)) + yes * np.square(np.minimum(no, limit))


MODEL = ModelDefinition(
    kind=ModelKind.LOGISTIC,
    target=yes_or_no,
    scale=TargetScale.YES_OR_NO,
    expected=chance,
    residual=residual,
    family=lambda _target, _released: (LogisticFamily(), 0.0),
    moments_share=Fraction(1, 20),
    clip=0.5,
)
