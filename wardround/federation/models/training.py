"""The words of learning: a model, the training that was agreed on, and one step of it.

A training is exact before its first step: every noised sum it may ever ask for, with its noise, is in it, so that
its whole price is known, and is paid at once. What is decided on the way (where the model stands, how inputs are
scaled) travels in the step and changes no price.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from wardround.federation.limits import Above, Doubles, Finite, Many, Member, Parts, Whole
from wardround.federation.question.cohort import ColumnName, Expression
from wardround.privacy.accounting.cost import SLACK_UNIT
from wardround.privacy.noise.distribution import LARGEST_SCALE, SCALE_UNIT

MAX_FEATURES = 256
MAX_STAGES = 16
MAX_ROUNDS = 100_000
MAX_WEIGHTS = 100_000
MAX_HIDDEN = 256
MAX_EDGES = 256
RATE_UNIT = 2**32
"""A chance of being taken is a whole number of these parts, so that coins are exact."""

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

Scale = Annotated[Fraction, Parts("a noise scale", SCALE_UNIT, 1, LARGEST_SCALE * SCALE_UNIT)]
"""Of noise, in steps of a grid."""


class ModelKind(StrEnum):
    """What is fitted."""

    LINEAR = "linear"
    LOGISTIC = "logistic"
    POISSON = "poisson"
    PERCEPTRON = "perceptron"


@dataclass(frozen=True, slots=True)
class Model:
    """What is predicted, from what, about whom; `hidden` is the width of a perceptron's one hidden layer."""

    kind: Annotated[ModelKind, Member("a kind of model")]
    table: ColumnName
    target: ColumnName
    features: Annotated[
        tuple[ColumnName, ...], Many("a model has too few or too many features.", MAX_FEATURES, least=1)
    ]
    cohort: Expression | None = None
    hidden: Annotated[int, Whole("the number of hidden units", upper=MAX_HIDDEN)] = 0


@dataclass(frozen=True, slots=True)
class Input:
    """One number that a row becomes: a column between its public bounds, or whether a category has one value.

    `low` and `high` are the bounds; an indicator's are 0 and 1, and `value` is the value it is about.
    """

    name: str
    column: str
    low: float
    high: float
    value: str | None = None


class StageKind(StrEnum):
    """What a step adds up over patients.

    MOMENTS: how many there are, and each column's first two moments. PRODUCTS: products of inputs, pair by pair.
    GRADIENT: clipped gradients of the loss. SCORES: how predictions and outcomes agree, of held-out patients.
    """

    MOMENTS = "moments"
    PRODUCTS = "products"
    GRADIENT = "gradient"
    SCORES = "scores"


@dataclass(frozen=True, slots=True)
class Stage:
    """Some rounds of the same kind, with the noise of each sum in steps of its grid.

    A round has `steps` noised sums one after another, each over patients that are taken with chance `rate`, in
    secret and anew.
    """

    kind: Annotated[StageKind, Member("a kind of stage")]
    scale: Scale
    rounds: Annotated[int, Whole("the number of rounds", 1, MAX_ROUNDS)] = 1
    steps: Annotated[int, Whole("the number of steps", 1, MAX_ROUNDS)] = 1
    rate: Annotated[Fraction, Parts("a rate", RATE_UNIT, 1, RATE_UNIT)] = Fraction(1)


@dataclass(frozen=True, slots=True)
class Training:
    """Everything that is fixed before the first step, and so the whole price.

    `held_out` is the share of patients that no step but SCORES looks at, by a keyed hash of their own key.
    `clip` is the longest gradient of one patient. `slack` is what the stages with a rate below 1 may take of δ,
    in units of 2^-60. With `by_site` each site's sums are shown to the analyst, otherwise their total alone.
    """

    model: Model
    stages: Annotated[tuple[Stage, ...], Many("a training has too few or too many stages.", MAX_STAGES, least=1)]
    held_out: Annotated[Fraction, Parts("a share held out", RATE_UNIT, 0, RATE_UNIT - 1)] = Fraction(0)
    clip: Annotated[float, Finite("a clip", lower=0.0), Above("a clip", 0.0)] = 1.0
    slack: Annotated[int, Whole("a slack", upper=SLACK_UNIT)] = 0
    by_site: bool = False

    @property
    def rounds(self) -> int:
        return sum(stage.rounds for stage in self.stages)


_Edge = Annotated[float, Finite("an edge")]


@dataclass(frozen=True, slots=True)
class Step:
    """One round of a training, as data: numbers, never code.

    `centre` and `spread` scale the inputs (and a numeric target after them), `weights` say where the model stands;
    all are little-endian doubles, empty where a stage needs none. Within a round of several steps the model moves
    by `learning_rate` · sum / `batch` after each. `edges` cut the scores of SCORES.
    """

    training: Training
    stage: Annotated[int, Whole("the stage of a step", upper=MAX_STAGES - 1)]
    turn: Annotated[int, Whole("the turn of a step", upper=MAX_ROUNDS - 1)]
    # A numeric target is scaled beside the features.
    centre: Annotated[bytes, Doubles("a centre", MAX_FEATURES + 1)] = b""
    spread: Annotated[bytes, Doubles("a spread", MAX_FEATURES + 1)] = b""
    weights: Annotated[bytes, Doubles("a list of weights", MAX_WEIGHTS)] = b""
    learning_rate: Annotated[float, Finite("a learning rate")] = 0.0
    batch: Annotated[float, Finite("a batch")] = 1.0
    edges: Annotated[tuple[_Edge, ...], Many("a step has too many edges.", MAX_EDGES)] = ()

    def fault(self) -> str | None:
        """A step is one of its training's rounds."""
        if self.stage >= len(self.training.stages):
            return "the stage of a step is out of bounds."
        return None if self.turn < self.training.stages[self.stage].rounds else "the turn of a step is out of bounds."

    @property
    def kind(self) -> StageKind:
        return self.training.stages[self.stage].kind

    @property
    def place(self) -> int:
        """Which round of the whole training it is, from 0."""
        return sum(stage.rounds for stage in self.training.stages[: self.stage]) + self.turn
