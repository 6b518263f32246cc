"""One whole training after another, and what all its noised sums together tell about one patient.

Whoever asks knows every other patient, and everything about the canary but whether it is there. Where the model
stands is public, so each sum has a likelihood ratio of its own; the product of them is the best statistic there is.

The canary stands in a corner of the bounds and is ill where its neighbours are well, so that in every step its
contribution is as long as one may be: nothing that a training is charged for is left unused by this patient.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from site_agent.learning.training_step import take
from site_agent.reading.dataset import Dataset, TableSource
from site_agent.reading.examples import Examples, Folds, Rows
from site_agent.serving.open_dataset import open_dataset
from wardround.federation.models.step_layout import LENGTH, SCORE_BINS, StepLayout, moved, pack, step_form
from wardround.federation.models.training import Matrix, Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.plan import Plan, price
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT
from wardround.privacy.inference.audit_bounds import Statistic
from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.vectors import IntVector
from wardround.simulation.noise import ZeroNoise

TABLE = "visits"
EPSILON = 12.0
"""Of one training: a few hundred of them prove over half of it, and could prove half as much again were it there."""
CANARY_ROWS = 50
PATIENTS = 8
HELD_OUT = Fraction(1, 4)
MODEL = Model(ModelKind.LOGISTIC, TABLE, "ill", ("dose", "age"))

_KEY = hashlib.sha256(b"audited").digest()
_Row = tuple[str, float, float, int]

SITE = "north"
START = np.array([-2.0, -2.0, -2.0])
"""Where the model begins: sure that the canary is well."""

_SPREAD = 0.5
_LEARNING_RATE = 0.5
_EDGES = tuple(np.linspace(-3.0, 3.0, SCORE_BINS - 1).tolist())

Releasing = Callable[[StepLayout], IntVector]
"""From one round of a training to what a site hands out for it."""


def training_text(*, epsilon: float) -> str:
    """The study of the hospital as its file says it, with room for as many trainings as are tried."""
    return (
        'name = "audit"\nunit = "patient"\noverlap = 1\nmin_sites = 1\n'
        f"[budget]\nepsilon = {epsilon}\ndelta = 1e-6\n"
        f'[tables.{TABLE}]\nunit_key = "patient_id"\nmax_rows_per_unit = 1\n'
        f"[tables.{TABLE}.columns]\n"
        'dose = { type = "number", lower = -1, upper = 1 }\n'
        'age = { type = "number", lower = -1, upper = 1 }\n'
        'ill = { type = "boolean" }\n'
    )


def training_study(*, epsilon: float = EPSILON) -> Study:
    """The study of the hospital."""
    return parse_study(training_text(epsilon=epsilon))


@dataclass(frozen=True, slots=True)
class Hospitals:
    """One hospital in three worlds: without the canary, learning from it, and holding it out."""

    without: Examples
    learning: Examples
    trying: Examples


def hospitals(folder: Path, *, learning_from_others: bool = True) -> Hospitals:
    """The worlds, read as a site reads them; others may all be held out, so that the canary is learnt from alone."""
    others = list(_others(learning_from_others=learning_from_others))
    found = [
        _examples(folder / name, [*others, *canary])
        for name, canary in (("without", ()), ("learning", _canary(held_out=False)), ("trying", _canary(held_out=True)))
    ]
    return Hospitals(*found)


def _canary(*, held_out: bool) -> Iterator[_Row]:
    name = next(_names("canary", held_out=held_out))
    for _ in range(CANARY_ROWS):
        yield name, 1.0, 1.0, 1


def _others(*, learning_from_others: bool) -> Iterator[_Row]:
    learnt, tried = _names("patient", held_out=False), _names("patient", held_out=True)
    for i in range(PATIENTS):
        name = next(learnt if learning_from_others and i % 4 else tried)
        for row in range(1 + i % 3):
            yield name, (37 * i + 11 * row) % 20 / 10 - 1, (53 * i + 7 * row) % 20 / 10 - 1, (i + row) % 2


def _names(stem: str, *, held_out: bool) -> Iterator[str]:
    """Keys of one fold: whose it is decided by a hash, so one asks until it says so."""
    folds, number = Folds(_KEY, HELD_OUT), 0
    while True:
        number += 1
        name = f"{stem}-{number}"
        if bool(folds.held_out([name], 1)[0]) is held_out:
            yield name


def _examples(folder: Path, rows: Iterable[_Row]) -> Examples:
    # Which step is asked does not matter: all of a training look at the same rows.
    training = Training(MODEL, (Stage(StageKind.MOMENTS, Fraction(LENGTH)),), HELD_OUT)
    return _dataset(folder, rows).examples(step_form(Step(training, 0, 0), training_study()))


def _dataset(folder: Path, rows: Iterable[_Row]) -> Dataset:
    folder.mkdir(parents=True)
    path = folder / f"{TABLE}.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(("patient_id", "dose", "age", "ill"))
        table.writerows((name, dose, age, "true" if ill else "false") for name, dose, age, ill in rows)
    return open_dataset({TABLE: TableSource(str(path))}, folder=folder, key=_KEY)


@dataclass(frozen=True, slots=True)
class TrainingClaim:
    """What a training is charged: μ, but for a slack in δ."""

    mu: float
    slack: float


@dataclass(frozen=True, slots=True)
class Tried:
    """A training in two worlds."""

    training: Training
    study: Study
    with_unit: Examples
    without: Examples

    def claim(self) -> TrainingClaim:
        """What a site's ledger is charged."""
        step = next(iter(rounds_of(self.training)))[1](START)
        cost = price(plan_of(step, self.study, nonce=""), self.study).cost
        return TrainingClaim(math.sqrt(cost.mu_squared / MU_UNIT), cost.slack / SLACK_UNIT)


def plan_of(step: Step, study: Study, *, nonce: str) -> Plan:
    """One round as a coordinator asks it."""
    scale = step.training.stages[step.stage].scale
    return Plan(study.study_hash, step, Mechanism.DISCRETE_GAUSSIAN, (scale,), (SITE,), nonce)


def site(examples: Examples, chance: Chance | None = None) -> Releasing:
    """A site over these rows, with the chance of production unless told otherwise."""
    drawn = SecureChance() if chance is None else chance
    return lambda form: take(form, examples, law_of(form.step), drawn)


def law_of(step: Step) -> NoiseDistribution:
    """The noise of a round."""
    return NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, step.training.stages[step.stage].scale)


# --- Training ---------------------------------------------------------------------------------------------


def trained(training: Training, study: Study, release: Releasing) -> IntVector:
    """Every noised sum of one training; the model moves by each gradient before the next is asked for."""
    weights, released = START, []
    for stage, asked in rounds_of(training):
        form = step_form(asked(weights), study)
        values = release(form)
        released.append(values)
        if stage.kind is StageKind.GRADIENT:
            for line in values.reshape(stage.steps, -1):
                weights = moved(weights, line, form)
    return np.concatenate(released)


def rounds_of(training: Training) -> Iterator[tuple[Stage, Callable[[Matrix], Step]]]:
    """Each round: its stage, and the step it is when the model stands somewhere."""
    scale = pack(np.zeros(START.size - 1)), pack(np.full(START.size - 1, _SPREAD))
    for place, stage in enumerate(training.stages):
        for turn in range(stage.rounds):
            yield stage, partial(_step, training, place, turn, scale)


def _step(training: Training, place: int, turn: int, scale: tuple[bytes, bytes], weights: Matrix) -> Step:
    match training.stages[place].kind:
        case StageKind.MOMENTS:
            return Step(training, place, turn)
        case StageKind.PRODUCTS:
            return Step(training, place, turn, *scale)
        case StageKind.GRADIENT:
            return Step(training, place, turn, *scale, pack(weights), _LEARNING_RATE, PATIENTS)
        case StageKind.SCORES:
            # Of the model as it began: a site scores any weights that it is sent.
            return Step(training, place, turn, *scale, pack(START), edges=_EDGES)


# --- Telling ----------------------------------------------------------------------------------------------


def telling(released: IntVector, tried: Tried) -> Statistic:
    """The log-likelihood ratio of each training, one a row, between the two worlds.

    Where units are sampled, the canary must be the only one that is learnt from.
    """
    count, column = released.shape[0], 0
    found, weights = np.zeros(count), np.tile(START, (count, 1))
    for stage, asked in rounds_of(tried.training):
        form = step_form(asked(START), tried.study)
        for _ in range(stage.steps):
            line = released[:, column : column + form.width]
            without = _expected(form, tried.without, weights)
            move = _expected(form, tried.with_unit, weights) - without
            ratio = ((line / LENGTH - without - move / 2) * move).sum(axis=1) * (LENGTH / float(stage.scale)) ** 2
            if stage.rate < 1:
                rate = float(stage.rate)
                ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
            found += ratio
            if stage.kind is StageKind.GRADIENT:
                weights = moved(weights, line, form)
            column += form.width
    return found


def _expected(form: StepLayout, examples: Examples, weights: Matrix) -> Matrix:
    """The sum without noise, of each training or of all alike, in lengths of one contribution."""
    if form.step.kind is StageKind.GRADIENT:
        return _gradients(examples.fold(held_out=False), weights, form.step.training.clip)
    return take(form, examples, law_of(form.step), ZeroNoise())[np.newaxis] / LENGTH


def _gradients(rows: Rows, weights: Matrix, clip: float) -> Matrix:
    """Decision 18's gradients of a logistic model, for many weights at once."""
    if rows.units == 0:
        return np.zeros_like(weights)
    z = np.column_stack((np.ones(rows.target.size), rows.inputs / _SPREAD)) / math.sqrt(START.size)
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1.0)
    residuals = 1.0 / (1.0 + np.exp(-(weights @ z.T))) - rows.target
    sizes = np.diff(rows.starts)[:, np.newaxis]
    means = np.add.reduceat(residuals[:, :, np.newaxis] * z, rows.starts[:-1], axis=1) / sizes
    lengths = np.linalg.norm(means, axis=2, keepdims=True)
    return np.asarray((means / np.maximum(lengths, clip)).sum(axis=1), np.float64)
