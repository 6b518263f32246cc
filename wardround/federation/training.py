"""The words of learning: a model, the training that was agreed on, and one step of it.

A training is exact before its first step: every noised sum it may ever ask for, with its noise, is in it, so that
its whole price is known, and is paid at once. What is decided on the way (where the model stands, how inputs are
scaled) travels in the step and changes no price.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from wardround.federation.expressions import Expression

MAX_FEATURES = 256
MAX_STAGES = 16
MAX_ROUNDS = 100_000
MAX_WEIGHTS = 100_000
MAX_HIDDEN = 256
MAX_EDGES = 256
RATE_UNIT = 2**32
"""A chance of being taken is a whole number of these parts, so that coins are exact."""


class ModelKind(StrEnum):
    """What is fitted."""

    LINEAR = "linear"
    LOGISTIC = "logistic"
    POISSON = "poisson"
    PERCEPTRON = "perceptron"


@dataclass(frozen=True, slots=True)
class Model:
    """What is predicted, from what, about whom; `hidden` is the width of a perceptron's one hidden layer."""

    kind: ModelKind
    table: str
    target: str
    features: tuple[str, ...]
    cohort: Expression | None = None
    hidden: int = 0


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

    kind: StageKind
    scale: Fraction
    rounds: int = 1
    steps: int = 1
    rate: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Training:
    """Everything that is fixed before the first step, and so the whole price.

    `held_out` is the share of patients that no step but SCORES looks at, by a keyed hash of their own key.
    `clip` is the longest gradient of one patient. `slack` is what the stages with a rate below 1 may take of δ,
    in units of 2^-60. With `by_site` each site's sums are shown to the analyst, otherwise their total alone.
    """

    model: Model
    stages: tuple[Stage, ...]
    held_out: Fraction = Fraction(0)
    clip: float = 1.0
    slack: int = 0
    by_site: bool = False

    @property
    def rounds(self) -> int:
        """How many rounds there are at most."""
        return sum(stage.rounds for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Step:
    """One round of a training, as data: numbers, never code.

    `centre` and `spread` scale the inputs (and a numeric target after them), `weights` say where the model stands;
    all are little-endian doubles, empty where a stage needs none. Within a round of several steps the model moves
    by `learning_rate` · sum / `batch` after each. `edges` cut the scores of SCORES.
    """

    training: Training
    stage: int
    turn: int
    centre: bytes = b""
    spread: bytes = b""
    weights: bytes = b""
    learning_rate: float = 0.0
    batch: float = 1.0
    edges: tuple[float, ...] = ()

    @property
    def kind(self) -> StageKind:
        """What this step adds up."""
        return self.training.stages[self.stage].kind

    @property
    def place(self) -> int:
        """Which round of the whole training it is, from 0."""
        return sum(stage.rounds for stage in self.training.stages[: self.stage]) + self.turn
