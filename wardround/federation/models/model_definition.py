"""What a model is: everything that is particular to one of them, in one record, and the arithmetic that all share.

The layout of a step, a site's contributions, the planner, the fitting, predictions and the model card read these
records and know no model by name. A hospital loads all of a model's file and runs `target`, `expected`, `residual`
and a hidden layer's `weights`, `score` and `gradient`; the others are about noised numbers, and nobody runs them there.

What is computed over many rows at once is, to the last bit, the same wherever a row stands: otherwise a patient who
comes or goes would move what others contribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import Protocol

import numpy as np

from wardround.federation.errors import QueryMistaken
from wardround.federation.models.training import Input, Matrix, ModelKind, Vector
from wardround.federation.study.study import Column, ColumnType

SPREADS_OF_TARGET = 3.0
"""A standardised target is divided by so many spreads, and cut to [−1, 1]."""

MOST_COLUMNS = 4096
"""Longer sums are taken in parts: numpy's loop would part them by itself, and one row alone otherwise than several."""


class TargetScale(Enum):
    """What a target is, and on which scale a score meets it.

    YES_OR_NO: 0 or 1. IN_UNITS: a number, in its own units. STANDARDISED: a number, scaled as inputs are.
    """

    YES_OR_NO = auto()
    IN_UNITS = auto()
    STANDARDISED = auto()


class Family(Protocol):
    """Functions of the score, about residuals that are cut at `limit` on both sides, if the model is true."""

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        """What cutting leaves of the residual's mean, which is 0 without it."""

    def information(self, score: Vector, limit: float) -> Vector:
        """How fast the mean of cut residuals changes as the score leaves the truth."""

    def square(self, score: Vector, limit: float) -> Vector:
        """The mean of the squared cut residual."""


@dataclass(frozen=True, slots=True)
class HiddenLayer:
    """What stands between inputs and score where a score is not linear in them.

    Inputs are rows of z·√(d + 1), the intercept's first. `score` and `gradient` are a site's, by `row_products`;
    `scores` is the analyst's.
    """

    # How many parameters, and where they begin, for so many hidden units and inputs.
    weights: Callable[[int, int], int]
    start: Callable[[int, int], Vector]
    initialisation: str
    # From rows and weights, and for a gradient the targets, with so many hidden units; not clipped yet.
    score: Callable[[Matrix, Vector, int], Vector]
    gradient: Callable[[Matrix, Vector, Vector, int], Matrix]
    scores: Callable[[Matrix, Vector, int], Vector]
    # The learning rate at which one step of everybody is right at once, as a rule.
    speed: float


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """One model: what its target is, what its scores mean and how it learns from noised sums."""

    kind: ModelKind
    # The number that a target column becomes, or `QueryMistaken` in one sentence.
    target: Callable[[Column, ModelKind], Input]
    scale: TargetScale
    # What is expected at a score, on the target's scale, of a target that is at most so high; of a target that is yes
    # or no it is one half at 0.
    expected: Callable[[Vector, float], Vector]
    # Expected minus observed, from −1 to 1 (PROOFS.md, "One patient's contribution to a step"), as a new vector.
    residual: Callable[[Vector, Vector, float], Vector]
    # How residuals are distributed, and the score to begin at, from the target and, if they were released, its mean
    # and its variance, both in [−1, 1].
    family: Callable[[Input, tuple[float, float] | None], tuple[Family, float]]
    # The share of μ² that scaling the inputs has, of the fold that learns.
    moments_share: Fraction
    # The longest gradient of one patient: few are near their largest length, so noise is saved by cutting those.
    clip: float
    # Whether one round of products, the target's among them, is the whole model.
    least_squares: bool = False
    layer: HiddenLayer | None = None


def yes_or_no(column: Column, kind: ModelKind) -> Input:
    """A target of two values."""
    if column.type is ColumnType.BOOLEAN or column.numeric_bounds == (Fraction(0), Fraction(1)):
        return Input(column.name, column.name, 0.0, 1.0)
    if column.type is ColumnType.CATEGORY and len(column.values) == 2:  # noqa: PLR2004
        return Input(f"{column.name}={column.values[1]}", column.name, 0.0, 1.0, str(column.values[1]))
    raise QueryMistaken(
        f"the target of a {kind.value} model must be yes or no: a boolean, a category of two values, or an "
        f"integer from 0 to 1; {column.name!r} is none of these."
    )


def bounded_number(column: Column, kind: ModelKind) -> Input:
    """A target that is a number with public bounds."""
    if column.type in (ColumnType.INTEGER, ColumnType.NUMBER) and column.numeric_bounds is not None:
        low, high = (float(bound) for bound in column.numeric_bounds)
        return Input(column.name, column.name, low, high)
    raise QueryMistaken(f"the target of a {kind.value} model must be a number with bounds; {column.name!r} is not.")


def row_products(rows: Matrix, others: Matrix | Vector) -> Vector:
    """One sum of products for each row, of at most `MOST_COLUMNS` terms.

    By numpy's own loop. A linear algebra library may add up a row's terms by where the row lies in memory, and a
    product of matrices by where it stands among others; either way a patient who comes would move the next one's.
    """
    found: Vector = np.einsum("...j,...j->...", rows, others, optimize=False)
    return found


def over(difference: Vector, width: float) -> Vector:
    """The difference over a width, cut to [−1, 1]."""
    if width <= 0.0:
        return np.zeros_like(difference)
    return np.clip(difference, -width, width) / width
