"""Steps of a training, as messages and back.

A step is numbers, never code: every list and every byte string has a bound, whoever sends it. One that cannot
travel is the mistake of whoever made it, said before anything is sent; one that arrives and is no step is the
peer's fault. Whether its numbers are finite and fit the model is for `step_form` to say, on both sides.
"""

from __future__ import annotations

from fractions import Fraction

from protos import checks
from protos._generated import plan_pb2 as pb
from protos.codec_query import cohort_from_message, cohort_to_message, column_name
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.training import (
    MAX_EDGES,
    MAX_FEATURES,
    MAX_HIDDEN,
    MAX_ROUNDS,
    MAX_STAGES,
    MAX_WEIGHTS,
    RATE_UNIT,
    Model,
    ModelKind,
    Stage,
    StageKind,
    Step,
    Training,
)
from wardround.privacy.law import LARGEST_SCALE, SCALE_UNIT
from wardround.privacy.loss import SLACK_UNIT

NUMBER_BYTES = 8

_MODELS = {
    ModelKind.LINEAR: pb.MODEL_KIND_LINEAR,
    ModelKind.LOGISTIC: pb.MODEL_KIND_LOGISTIC,
    ModelKind.POISSON: pb.MODEL_KIND_POISSON,
    ModelKind.PERCEPTRON: pb.MODEL_KIND_PERCEPTRON,
}
_MODELS_BACK = {int(number): kind for kind, number in _MODELS.items()}
_STAGES = {
    StageKind.MOMENTS: pb.STAGE_KIND_MOMENTS,
    StageKind.PRODUCTS: pb.STAGE_KIND_PRODUCTS,
    StageKind.GRADIENT: pb.STAGE_KIND_GRADIENT,
    StageKind.SCORES: pb.STAGE_KIND_SCORES,
}
_STAGES_BACK = {int(number): kind for kind, number in _STAGES.items()}


def step_to_message(step: Step) -> pb.Step:
    """The step as a message; `QueryMistaken` when the other side would not read it."""
    try:
        message = _step_to_message(step)
        # Read back, so that the bounds of both directions are one set and cannot drift apart.
        step_from_message(message)
    except MalformedMessage as malformed:
        raise QueryMistaken(malformed.message) from None
    except ValueError:
        # protobuf's way to say that a number has no room in its field, or a text no bytes.
        raise QueryMistaken("a number or a name of the training is outside what can be sent.") from None
    return message


def step_from_message(message: pb.Step) -> Step:
    """The step in a message."""
    checks.require(message.HasField("training"), "a step has no training.")
    training = _training_from_message(message.training)
    stage = checks.whole(message.stage, "the stage of a step", upper=len(training.stages) - 1)
    checks.require(len(message.edges) <= MAX_EDGES, "a step has too many edges.")
    return Step(
        training=training,
        stage=stage,
        turn=checks.whole(message.turn, "the turn of a step", upper=training.stages[stage].rounds - 1),
        # A numeric target is scaled beside the features.
        centre=_numbers(message.centre, "a centre", most=MAX_FEATURES + 1),
        spread=_numbers(message.spread, "a spread", most=MAX_FEATURES + 1),
        weights=_numbers(message.weights, "a list of weights", most=MAX_WEIGHTS),
        learning_rate=checks.finite(message.learning_rate, "a learning rate"),
        batch=checks.finite(message.batch, "a batch"),
        edges=tuple(checks.finite(edge, "an edge") for edge in message.edges),
    )


def _step_to_message(step: Step) -> pb.Step:
    return pb.Step(
        training=_training_to_message(step.training),
        stage=step.stage,
        turn=step.turn,
        centre=step.centre,
        spread=step.spread,
        weights=step.weights,
        learning_rate=step.learning_rate,
        batch=step.batch,
        edges=step.edges,
    )


def _training_to_message(training: Training) -> pb.Training:
    return pb.Training(
        model=_model_to_message(training.model),
        stages=[_stage_to_message(stage) for stage in training.stages],
        held_out=_parts(training.held_out, RATE_UNIT),
        clip=training.clip,
        slack=training.slack,
        by_site=training.by_site,
    )


def _training_from_message(message: pb.Training) -> Training:
    checks.require(message.HasField("model"), "a training has no model.")
    checks.require(1 <= len(message.stages) <= MAX_STAGES, "a training has too few or too many stages.")
    clip = checks.finite(message.clip, "a clip", lower=0.0)
    checks.require(clip > 0.0, "a clip is not above 0.")
    return Training(
        model=_model_from_message(message.model),
        stages=tuple(_stage_from_message(stage) for stage in message.stages),
        held_out=Fraction(checks.whole(message.held_out, "a share held out", upper=RATE_UNIT - 1), RATE_UNIT),
        clip=clip,
        slack=checks.whole(message.slack, "a slack", upper=SLACK_UNIT),
        by_site=message.by_site,
    )


def _model_to_message(model: Model) -> pb.Model:
    return pb.Model(
        kind=_MODELS[model.kind],
        table=model.table,
        target=model.target,
        features=model.features,
        cohort=None if model.cohort is None else cohort_to_message(model.cohort),
        hidden=model.hidden,
    )


def _model_from_message(message: pb.Model) -> Model:
    checks.require(1 <= len(message.features) <= MAX_FEATURES, "a model has too few or too many features.")
    return Model(
        kind=checks.member(_MODELS_BACK, message.kind, "a kind of model"),
        table=column_name(message.table),
        target=column_name(message.target),
        features=tuple(column_name(name) for name in message.features),
        cohort=cohort_from_message(message.cohort) if message.HasField("cohort") else None,
        hidden=checks.whole(message.hidden, "the number of hidden units", upper=MAX_HIDDEN),
    )


def _stage_to_message(stage: Stage) -> pb.Stage:
    return pb.Stage(
        kind=_STAGES[stage.kind],
        scale_1024ths=_parts(stage.scale, SCALE_UNIT),
        rounds=stage.rounds,
        steps=stage.steps,
        rate=_parts(stage.rate, RATE_UNIT),
    )


def _stage_from_message(message: pb.Stage) -> Stage:
    largest = LARGEST_SCALE * SCALE_UNIT
    return Stage(
        kind=checks.member(_STAGES_BACK, message.kind, "a kind of stage"),
        scale=Fraction(checks.whole(message.scale_1024ths, "a noise scale", lower=1, upper=largest), SCALE_UNIT),
        rounds=checks.whole(message.rounds, "the number of rounds", lower=1, upper=MAX_ROUNDS),
        steps=checks.whole(message.steps, "the number of steps", lower=1, upper=MAX_ROUNDS),
        rate=Fraction(checks.whole(message.rate, "a rate", lower=1, upper=RATE_UNIT), RATE_UNIT),
    )


def _numbers(content: bytes, field: str, *, most: int) -> bytes:
    """Doubles, as many as there may be; what they are is not looked at here."""
    checks.require(len(content) % NUMBER_BYTES == 0, f"{field} does not hold whole numbers of {NUMBER_BYTES} bytes.")
    checks.require(len(content) <= NUMBER_BYTES * most, f"{field} has more than {most} numbers.")
    return content


def _parts(value: Fraction, unit: int) -> int:
    """How many parts of a `unit`th; a value between two of them cannot travel."""
    parts = value * unit
    if parts.denominator != 1:
        raise QueryMistaken(f"a scale, a rate or a share of the training is no whole number of 1/{unit}.")
    return parts.numerator
