"""The form of a training step: which numbers a patient becomes, how many there are, and within which norm.

As with a question, sensitivity is never sent: both sides derive it here. Whatever a step adds up, one patient's
contribution is a vector no longer than 1, brought to whole numbers no longer than `LENGTH` (PROOFS.md, "One
patient's contribution to a step").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wardround.federation import canonical
from wardround.federation.errors import QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.models.model_definition import TargetScale
from wardround.federation.models.training import (
    MAX_EDGES,
    MAX_FEATURES,
    MAX_HIDDEN,
    MAX_ROUNDS,
    MAX_STAGES,
    MAX_WEIGHTS,
    RATE_UNIT,
    Input,
    Model,
    ModelKind,
    StageKind,
    Step,
    Training,
    Vector,
)
from wardround.federation.question.query import MAX_DIMENSION
from wardround.federation.question.typed_cohort import typed_cohort
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit

LENGTH = 2**20
"""The longest contribution of one patient, in steps of the grid."""

_FARTHEST = 1e100


@dataclass(frozen=True, slots=True)
class StepLayout:
    """One step made exact: inputs, the target, and how many integers a release of it holds.

    `width` is the length of one noised sum; a round of several steps holds one after another.
    """

    step: Step
    table: Table
    unit: Unit
    inputs: tuple[Input, ...]
    target: Input
    width: int

    @property
    def steps(self) -> int:
        return self.step.training.stages[self.step.stage].steps

    @property
    def dimension(self) -> int:
        return self.width * self.steps

    @property
    def grid(self) -> Fraction:
        """What one whole number is worth, of a contribution whose length is at most 1."""
        return Fraction(1, LENGTH)

    @property
    def l2_sensitivity_squared(self) -> int:
        return LENGTH**2

    @property
    def l1_sensitivity(self) -> int:
        return LENGTH * (math.isqrt(self.width - 1) + 1)


def step_form(step: Step, study: Study) -> StepLayout:
    """The form of a step; `QueryMistaken` when the study does not allow it."""
    training = step.training
    table = study.table(training.model.table)
    inputs, target = inputs_of(training.model, study)
    _require_training(training, study)
    if not (0 <= step.stage < len(training.stages) and 0 <= step.turn < training.stages[step.stage].rounds):
        raise QueryMistaken("the step is none of its training's.")
    if (most := largest_round(training, len(inputs))) > MAX_DIMENSION:
        # Of every round, whichever this is: the first pays for all, so that none may be impossible afterwards.
        raise QueryMistaken(
            f"a round would hold {most} numbers; at most {MAX_DIMENSION} are possible; take fewer steps."
        )
    form = StepLayout(step, table, study.unit, inputs, target, width_of(step.kind, training.model, len(inputs)))
    _require_step(form)
    return form


def inputs_of(model: Model, study: Study) -> tuple[tuple[Input, ...], Input]:
    """What a row becomes, and what is predicted; `QueryMistaken` with the nearest thing that works."""
    table = study.table(model.table)
    if not 1 <= len(model.features) <= MAX_FEATURES or len(set(model.features)) != len(model.features):
        raise QueryMistaken(f"a model has 1 to {MAX_FEATURES} features, each once.")
    if model.target in model.features:
        raise QueryMistaken(f"the target {model.target!r} cannot be one of the features.")
    inputs = tuple(found for name in model.features for found in _inputs(table.column(name)))
    if len(inputs) > MAX_FEATURES:
        raise QueryMistaken(f"the features are {len(inputs)} inputs; at most {MAX_FEATURES} are possible.")
    definition = definition_of(model.kind)
    if (definition.layer is not None) != (model.hidden > 0) or model.hidden > MAX_HIDDEN:
        raise QueryMistaken(f"a perceptron, and no other model, has 1 to {MAX_HIDDEN} hidden units.")
    return inputs, definition.target(table.column(model.target), model.kind)


def weights_of(model: Model, inputs: int) -> int:
    """How many parameters a model has: the intercept first; of a perceptron the hidden layer's, row by row, first."""
    layer = definition_of(model.kind).layer
    return inputs + 1 if layer is None else layer.weights(model.hidden, inputs)


def measured(kind: ModelKind, inputs: int) -> int:
    """How many columns are standardised: the inputs, and a numeric target after them."""
    return inputs + (not is_binary(kind))


def width_of(stage: StageKind, model: Model, inputs: int) -> int:
    """How many numbers one sum of the stage has.

    MOMENTS: the count, the means, the squares. PRODUCTS: z zᵀ by rows from the diagonal on, with z = (1, inputs
    and, for least squares, the target). SCORES: for a binary outcome the cells (below each edge, outcome no and yes),
    otherwise the count, the error's square, the outcome and its square.
    """
    columns = measured(model.kind, inputs)
    match stage:
        case StageKind.MOMENTS:
            return 1 + 2 * columns
        case StageKind.PRODUCTS:
            width = 1 + inputs + definition_of(model.kind).least_squares
            return width * (width + 1) // 2
        case StageKind.GRADIENT:
            return weights_of(model, inputs)
        case StageKind.SCORES:
            return 2 * SCORE_BINS if is_binary(model.kind) else 4


def largest_round(training: Training, inputs: int) -> int:
    """How many integers the largest release of the training holds."""
    return max(width_of(stage.kind, training.model, inputs) * stage.steps for stage in training.stages)


SCORE_BINS = 32


def is_binary(kind: ModelKind) -> bool:
    """Whether the outcome is yes or no."""
    return definition_of(kind).scale is TargetScale.YES_OR_NO


def pack(values: Vector) -> bytes:
    """Numbers as they travel in a step."""
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def unpack(values: bytes) -> Vector:
    """Numbers of a step."""
    return np.frombuffer(values, dtype="<f8").astype(np.float64)


def moved(weights: Vector, total: NDArray[np.int64], form: StepLayout) -> Vector:
    """The weights after one noised sum of gradients; finite, however far a step was told to go.

    A site that takes several steps in a round, and whoever replays them from its released sums, call this.
    """
    step = form.step
    factor = min(step.learning_rate * step.training.clip / step.batch, _FARTHEST)
    found = weights - max(factor, -_FARTHEST) * (total / LENGTH)
    return np.minimum(np.maximum(found, -_FARTHEST), _FARTHEST)


def _inputs(column: Column) -> list[Input]:
    match column.type:
        case ColumnType.CATEGORY if not column.open:
            # The first value is what the others are compared with.
            return [Input(f"{column.name}={value}", column.name, 0.0, 1.0, str(value)) for value in column.values[1:]]
        case ColumnType.BOOLEAN:
            return [Input(column.name, column.name, 0.0, 1.0)]
        case _ if column.numeric_bounds is not None:
            low, high = (float(bound) for bound in column.numeric_bounds)
            return [Input(column.name, column.name, low, high)]
        case _:
            raise QueryMistaken(
                f"the column {column.name!r} has no public bounds or values, so it cannot be a feature; "
                "give it some in study.toml, or leave it out."
            )


def _require_training(training: Training, study: Study) -> None:
    cohort = training.model.cohort
    if cohort is not None:
        exact = typed_cohort(cohort, study.table(training.model.table))
        # Compared as bytes, as a question is: 40 and 40.0 are equal numbers but two encodings.
        if canonical.encode(exact) != canonical.encode(cohort):
            raise QueryMistaken("the cohort of a training is not in canonical form.")
    sound = 1 <= len(training.stages) <= MAX_STAGES and training.rounds <= MAX_ROUNDS
    for stage in training.stages:
        sound = sound and stage.rounds >= 1 and stage.steps >= 1 and stage.rounds * stage.steps <= MAX_ROUNDS
        sound = sound and 0 < stage.rate <= 1 and (stage.rate * RATE_UNIT).denominator == 1
        # Only gradients are sampled and repeated inside a round; a sampled sum needs slack to be charged.
        sound = sound and (stage.kind is StageKind.GRADIENT or (stage.rate == 1 and stage.steps == 1))
        sound = sound and (stage.rate == 1 or training.slack > 0)
        sound = sound and (stage.kind is not StageKind.SCORES or training.held_out > 0)
    sound = sound and 0 <= training.held_out < 1 and (training.held_out * RATE_UNIT).denominator == 1
    if not (sound and math.isfinite(training.clip) and training.clip > 0.0 and training.slack >= 0):
        raise QueryMistaken("the training's stages are not ones that can be taken.")


def _require_step(form: StepLayout) -> None:
    """The numbers of a step: as many as its stage needs, and all finite."""
    step, model = form.step, form.step.training.model
    columns, inputs = measured(model.kind, len(form.inputs)), len(form.inputs)
    needs_scale = step.kind is not StageKind.MOMENTS
    needs_weights = step.kind in (StageKind.GRADIENT, StageKind.SCORES)
    number = weights_of(model, inputs)
    expected = (8 * columns * needs_scale, 8 * columns * needs_scale, 8 * number * needs_weights)
    if (len(step.centre), len(step.spread), len(step.weights)) != expected or number > MAX_WEIGHTS:
        raise QueryMistaken("the step does not hold as many numbers as its model has.")
    scores = step.kind is StageKind.SCORES and is_binary(model.kind)
    if len(step.edges) != (SCORE_BINS - 1 if scores else 0) or len(step.edges) > MAX_EDGES:
        raise QueryMistaken("the step does not cut its scores as its stage needs.")
    numbers = np.concatenate((unpack(step.centre), unpack(step.spread), unpack(step.weights), np.array(step.edges)))
    rates = math.isfinite(step.learning_rate) and math.isfinite(step.batch) and step.batch > 0.0
    if not (np.isfinite(numbers).all() and rates and (unpack(step.spread) > 0.0).all()):
        raise QueryMistaken("the numbers of a step must be finite, and spreads and batches above 0.")
    if any(right <= left for left, right in zip(step.edges, step.edges[1:], strict=False)):
        raise QueryMistaken("the edges of scores must rise.")
