"""Decision 18's table once more, in plain Python, one patient and one row after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from site_agent.reading.examples import Examples
from wardround.federation.models.step_layout import (
    SCORE_BINS,
    StepLayout,
    is_binary,
    measured,
    pack,
    step_form,
    unpack,
    weights_of,
)
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

SCALE = Fraction(2**20)
LAW = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, SCALE)
BOUNDS = {"age": (0.0, 110.0), "sbp": (80.0, 200.0), "gain": (-50.0, 20.0)}
EVERY = tuple((model, stage) for model in ModelKind for stage in StageKind)

Patient = Sequence[tuple[Sequence[float], float]]
"""The rows of one patient: inputs and target."""


def study(*, unit: str = "patient") -> Study:
    columns = "".join(
        f'{name} = {{ type = "number", lower = {low}, upper = {high} }}\n' for name, (low, high) in BOUNDS.items()
    )
    return parse_study(
        f'name = "trial"\nunit = "{unit}"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\n'
        f'unit_key = "patient_id"\nmax_rows_per_unit = 3\n[tables.visits.columns]\n{columns}'
        'ill = { type = "boolean" }\nvisits = { type = "integer", lower = 0, upper = 9 }\n'
    )


@dataclass(frozen=True)
class Numbers:
    """What a step carries; lists are cut or repeated to the length that its model needs."""

    centre: Sequence[float] = (0.0,)
    spread: Sequence[float] = (0.5,)
    weights: Sequence[float] = (0.3, -0.8, 1.7, 0.05)
    clip: float = 1.0
    steps: int = 1
    rate: Fraction = Fraction(1)


def form_of(kind: ModelKind, stage: StageKind, numbers: Numbers | None = None, features: int = 3) -> StepLayout:
    given = numbers or Numbers()
    target = "ill" if is_binary(kind) else "visits"
    hidden = 2 if kind is ModelKind.PERCEPTRON else 0
    model = Model(kind, "visits", target, tuple(BOUNDS)[:features], hidden=hidden)
    is_gradient = stage is StageKind.GRADIENT
    steps, rate = (given.steps, given.rate) if is_gradient else (1, Fraction(1))
    stages = (Stage(stage, SCALE, 1, steps, rate),)
    training = Training(model, stages, Fraction(1, 4), clip=given.clip, slack=1)
    columns = measured(kind, features) if stage is not StageKind.MOMENTS else 0
    number = weights_of(model, features) if stage in (StageKind.GRADIENT, StageKind.SCORES) else 0
    edges = stage is StageKind.SCORES and is_binary(kind)
    return step_form(
        Step(
            training,
            0,
            0,
            pack(np.resize(np.array(given.centre), columns)),
            pack(np.resize(np.array(given.spread), columns)),
            pack(np.resize(np.array(given.weights), number)),
            learning_rate=0.7,
            batch=5.0,
            edges=tuple(np.linspace(-1.0, 1.0, SCORE_BINS - 1)) if edges else (),
        ),
        study(),
    )


def examples_of(patients: Sequence[Patient], *, held_out: bool = False, features: int = 3) -> Examples:
    rows = [row for patient in patients for row in patient]
    starts = np.cumsum([0, *(len(patient) for patient in patients)])
    inputs = np.array([inputs for inputs, _ in rows], dtype=np.float64).reshape(len(rows), features)
    target = np.array([target for _, target in rows], dtype=np.float64)
    return Examples(inputs, target, starts.astype(np.intp), np.full(len(patients), held_out))


def contribution(form: StepLayout, patient: Patient) -> list[float]:
    """One patient's vector: the mean over its rows, shortened and divided by the clip."""
    rows = [_row(form, inputs, target) for inputs, target in patient]
    mean = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
    longest = form.step.training.clip if form.step.kind is StageKind.GRADIENT else 1.0
    length = math.hypot(*mean)
    return [value / max(length, longest) for value in mean]


def _row(form: StepLayout, inputs: Sequence[float], target: float) -> list[float]:
    step, kind = form.step, form.step.training.model.kind
    low, high = form.target.low, form.target.high
    y = [_between(value, each.low, each.high) for value, each in zip(inputs, form.inputs, strict=True)]
    y_target = _between(target, low, high)
    if step.kind is StageKind.MOMENTS:
        seen = y if is_binary(kind) else [*y, y_target]
        return [value / math.sqrt(1 + 1.25 * len(seen)) for value in (1, *seen, *(each**2 - 0.5 for each in seen))]
    centre, spread = unpack(step.centre).tolist(), unpack(step.spread).tolist()
    s = [(value - c) / w for value, c, w in zip(y, centre, spread, strict=False)]
    root = math.sqrt(len(s) + 1)
    z = [value / root for value in (1.0, *s)]
    z = [value / max(math.hypot(*z), 1.0) for value in z]
    t = 0.0 if is_binary(kind) else _cut((y_target - centre[-1]) / (3 * spread[-1]))
    if step.kind is StageKind.PRODUCTS:
        seen = [value / math.sqrt(2) for value in (*z, t)] if kind is ModelKind.LINEAR else z
        both = [(i, j) for i in range(len(seen)) for j in range(i, len(seen))]
        return [seen[i] * seen[j] * (1 if i == j else math.sqrt(2)) for i, j in both]
    weights = unpack(step.weights).tolist()
    if kind is ModelKind.PERCEPTRON:
        return _perceptron(form, [value * root for value in z], target, weights)
    score = math.sumprod(weights, z) if hasattr(math, "sumprod") else math.fsum(map(float.__mul__, weights, z))
    if step.kind is StageKind.SCORES:
        if kind is ModelKind.LOGISTIC:
            return _cell(form, score, target)
        predicted = 3 * spread[-1] * score + centre[-1]
        if kind is ModelKind.POISSON:
            predicted = _between(math.exp(score), low, high)
        error = _cut((predicted - y_target) / (3 * spread[-1]))
        return [value / 2 for value in (1.0, error**2, t, t**2)]
    residual = {
        ModelKind.LOGISTIC: lambda: _chance(score) - target,
        ModelKind.LINEAR: lambda: _cut(score - t),
        ModelKind.POISSON: lambda: _cut((math.exp(score) - target) / high),
    }[kind]()
    return [residual * value for value in z]


def _perceptron(form: StepLayout, u: list[float], target: float, weights: list[float]) -> list[float]:
    hidden, width = form.step.training.model.hidden, len(u)
    layer = [weights[place * width : (place + 1) * width] for place in range(hidden)]
    outer, intercept = weights[hidden * width : -1], weights[-1]
    h = [math.tanh(math.fsum(map(float.__mul__, line, u))) for line in layer]
    score = math.fsum(map(float.__mul__, outer, h)) + intercept
    if form.step.kind is StageKind.SCORES:
        return _cell(form, score, target)
    e = _chance(score) - target
    inner = [e * v * (1 - value**2) * each for v, value in zip(outer, h, strict=True) for each in u]
    return [*inner, *(e * value for value in h), e]


def _cell(form: StepLayout, score: float, target: float) -> list[float]:
    found = [0.0] * form.width
    found[2 * sum(edge <= score for edge in form.step.edges) + int(target)] = 1.0
    return found


def _between(value: float, low: float, high: float) -> float:
    return (value - (low + high) / 2) / ((high - low) / 2)


def _chance(score: float) -> float:
    return 1 / (1 + math.exp(-score)) if score > 0 else math.exp(score) / (1 + math.exp(score))


def _cut(value: float) -> float:
    return min(max(value, -1.0), 1.0)
