"""Logistic regression from clipped, noised gradients.

Half a patient's largest residual is where clipping costs least and halves the noise. It would pull chances towards
one half; because the pull is a known function of the score, it is taken away again (`mean_residual`), and what a
model converges to is what it would be without clipping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wardround.federation.models.step_layout import Vector


def chance(score: Vector) -> Vector:
    """The chance of the outcome, by a function that cannot overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * score)


@dataclass(frozen=True, slots=True)
class Logistic:
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
