"""Rounds of a training without a federation: decision 18's sums over one row a patient, with normal noise.

Written from the decision's table and in plain numpy, so that it also says whether sites and models mean the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wardround.analyst.estimation.fitted import Combine, RoundSums
from wardround.analyst.learning.fitting import Fitting, begin
from wardround.federation.models.step_layout import LENGTH, StepLayout, step_form, unpack
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit
from wardround.privacy.accounting.gaussian_dp import mu_of
from wardround.privacy.budget.filter import Cap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class People:
    """Everybody's inputs and outcome, at which site each is, and who is held out."""

    inputs: Array
    target: Array
    site: NDArray[np.intp]
    held_out: NDArray[np.bool_]


def people(inputs: Array, target: Array, *, sites: int = 1, held_out: float = 0.0) -> People:
    places = np.arange(len(target))
    return People(inputs, target, places % sites, places % 1000 < 1000 * held_out)


def study_of(features: int, *, binary: int = 0, high: float = 4.0, target: tuple[float, float] | None = None) -> Study:
    """A study with so many features x0 …, the first of them yes or no, and an outcome."""
    columns = [
        Column(f"x{place}", ColumnType.BOOLEAN)
        if place < binary
        else Column(f"x{place}", ColumnType.NUMBER, Fraction(-high), Fraction(high))
        for place in range(features)
    ]
    outcome = (
        Column("y", ColumnType.BOOLEAN)
        if target is None
        else Column("y", ColumnType.NUMBER, Fraction(target[0]), Fraction(target[1]))
    )
    table = Table("visits", "patient", 1, 1, (*columns, outcome))
    return Study("models", Unit.PATIENT, 1, Cap(10.0, 1e-4), (table,), 1, 10.0, 10.0)


def training_of(
    kind: ModelKind,
    features: int,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    moments: float = 0.05,
    products: float = 0.2,
    rounds: int = 7,
    steps: int = 1,
    rate: Fraction = Fraction(1),
    sampled_noise: float = 1.0,
    clip: float = 0.5,
    held_out: Fraction = Fraction(0),
    hidden: int = 0,
    by_site: bool = False,
) -> Training:
    """Shares of μ² as noise; a sampled stage is told its noise, because accounting is tested elsewhere."""
    mu = mu_of(epsilon, delta)
    gradients = 1.0 - moments - products

    def scale(share: float) -> Fraction:
        return Fraction(round(LENGTH * 1024 / (mu * math.sqrt(share))), 1024)

    stages = []
    if moments:
        stages.append(Stage(StageKind.MOMENTS, scale(moments)))
    if products:
        stages.append(Stage(StageKind.PRODUCTS, scale(products)))
    if gradients > 1e-9:
        noise = scale(gradients / (rounds * steps)) if rate == 1 else Fraction(round(sampled_noise * LENGTH))
        stages.append(Stage(StageKind.GRADIENT, noise, rounds, steps, rate))
    if held_out:
        stages.append(Stage(StageKind.SCORES, scale(1.0)))
    names = tuple(f"x{place}" for place in range(features))
    model = Model(kind, "visits", "y", names, hidden=hidden)
    return Training(model, tuple(stages), held_out, clip, 1 if rate < 1 else 0, by_site)


def train(
    training: Training,
    study: Study,
    everybody: People,
    *,
    seed: int = 0,
    one_noise: bool = False,
    noiseless: bool = False,
    combine: Combine | None = None,
) -> Fitting:
    """The fitting after its last round."""
    draw = np.random.default_rng(seed)
    fitting = begin(training, study, combine=combine)
    while (step := fitting.next_step()) is not None:
        fitting = fitting.advance(answered(step, study, everybody, draw, one_noise=one_noise, noiseless=noiseless))
    return fitting


def answered(
    step: Step,
    study: Study,
    everybody: People,
    draw: np.random.Generator,
    *,
    one_noise: bool = False,
    noiseless: bool = False,
) -> RoundSums:
    """What a round of this step gives."""
    form = step_form(step, study)
    scale = 0.0 if noiseless else float(step.training.stages[step.stage].scale) / LENGTH
    sites = int(everybody.site.max(initial=0)) + 1
    fold = everybody.held_out if step.kind is StageKind.SCORES else ~everybody.held_out
    found: dict[str, Array] = {}
    for site in range(sites):
        mine = fold & (everybody.site == site)
        noise = 0.0 if one_noise and site else scale
        found[f"h{site:02}"] = _walk(form, everybody.inputs[mine], everybody.target[mine], draw, noise)
    totals = np.sum(list(found.values()), axis=0)
    shown = found if step.training.by_site else {}
    return RoundSums(totals, shown, sites, scale * (1.0 if one_noise else math.sqrt(sites)))


def _walk(form: StepLayout, inputs: Array, target: Array, draw: np.random.Generator, noise: float) -> Array:
    """The noised sums of one site's round, whole numbers of 1/LENGTH."""
    step, stage = form.step, form.step.training.stages[form.step.stage]
    weights, sums = unpack(step.weights), []
    for _ in range(stage.steps):
        taken = draw.random(len(target)) < float(stage.rate)
        rows = contributions(form, inputs[taken], target[taken], weights)
        total = np.trunc(rows * LENGTH).sum(axis=0) + np.rint(noise * LENGTH * draw.standard_normal(form.width))
        sums.append(total / LENGTH)
        if stage.steps > 1:
            weights = weights - step.learning_rate * step.training.clip / step.batch * sums[-1]
    return np.array(sums)


def contributions(form: StepLayout, inputs: Array, target: Array, weights: Array) -> Array:
    """One row for each patient, as decision 18 has them."""
    model, step = form.step.training.model, form.step
    low, high = (np.array([getattr(each, end) for each in form.inputs]) for end in ("low", "high"))
    y = (np.clip(inputs, low, high) - (low + high) / 2) / ((high - low) / 2)
    half = (form.target.high - form.target.low) / 2
    numeric = model.kind in (ModelKind.LINEAR, ModelKind.POISSON)
    y_target = (target - form.target.low) / half - 1
    if step.kind is StageKind.MOMENTS:
        columns = np.column_stack((y, y_target)) if numeric else y
        width = columns.shape[1]
        return np.column_stack((np.ones(len(y)), columns, columns**2 - 0.5)) / math.sqrt(1 + 5 * width / 4)
    centre, spread = unpack(step.centre), unpack(step.spread)
    d = y.shape[1]
    z = np.column_stack((np.ones(len(y)), (y - centre[:d]) / spread[:d])) / math.sqrt(d + 1)
    z /= np.maximum(1.0, np.linalg.norm(z, axis=1, keepdims=True))
    t = np.clip((y_target - centre[-1]) / (3 * spread[-1]), -1, 1)
    if step.kind is StageKind.PRODUCTS:
        both = np.column_stack((z, t)) / math.sqrt(2) if model.kind is ModelKind.LINEAR else z
        rows, columns = np.triu_indices(both.shape[1])
        return both[:, rows] * both[:, columns] * np.where(rows == columns, 1.0, math.sqrt(2))
    hidden: Array = np.zeros((0, 0))
    if model.kind is ModelKind.PERCEPTRON:
        u, split = z * math.sqrt(d + 1), model.hidden * (d + 1)
        hidden = np.tanh(u @ weights[:split].reshape(model.hidden, d + 1).T)
        score = hidden @ weights[split:-1] + weights[-1]
    else:
        score = z @ weights
    if step.kind is StageKind.SCORES and not numeric:
        cell = 2 * np.searchsorted(np.array(step.edges), score, side="right") + (target > 0)
        return np.eye(form.width)[cell]
    expected = {
        ModelKind.LINEAR: score,
        ModelKind.POISSON: np.exp(np.minimum(score, 30.0)),
    }.get(model.kind, 1 / (1 + np.exp(-np.clip(score, -500, 500))))
    if step.kind is StageKind.SCORES:
        linear = model.kind is ModelKind.LINEAR
        guess = expected * 3 * spread[-1] + centre[-1] if linear else (expected - form.target.low) / half - 1
        e = np.clip((guess - y_target) / (3 * spread[-1]), -1, 1)
        return np.column_stack((np.ones(len(y)), e**2, t, t**2)) / 2
    match model.kind:
        case ModelKind.LINEAR:
            rows_ = np.clip(expected - t, -1, 1)[:, None] * z
        case ModelKind.POISSON:
            rows_ = np.clip((expected - target) / form.target.high, -1, 1)[:, None] * z
        case ModelKind.LOGISTIC:
            rows_ = (expected - target)[:, None] * z
        case ModelKind.PERCEPTRON:
            residual = expected - target
            back = residual[:, None] * weights[split:-1] * (1 - hidden**2)
            inner = (back[:, :, None] * u[:, None, :]).reshape(len(y), split)
            rows_ = np.column_stack((inner, residual[:, None] * hidden, residual))
    return rows_ / np.maximum(np.linalg.norm(rows_, axis=1, keepdims=True), step.training.clip)
