"""What distinguishes one generalised linear model from another, as its steps and its errors need it."""

from __future__ import annotations

from typing import Protocol

from wardround.federation.models.step_layout import Vector


class Family(Protocol):
    """Functions of the score, about residuals that are cut at `limit` on both sides, if the model is true."""

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        """What cutting leaves of the residual's mean, which is 0 without it."""

    def information(self, score: Vector, limit: float) -> Vector:
        """How fast the mean of cut residuals changes as the score leaves the truth."""

    def square(self, score: Vector, limit: float) -> Vector:
        """The mean of the squared cut residual."""
