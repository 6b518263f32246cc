"""Bounds, scales and weights at the ends of what doubles hold: nobody's part moves another's, and nothing is said.

A warning of numpy would be a line in a log that depends on rows; warnings are errors here.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from site_agent.learning import training_step as steps
from site_agent.learning.training_step import take
from tests.site_agent.learning.plain_steps import EVERY, LAW, Numbers, Patient, examples_of, form_of
from wardround.federation.models.step_layout import LENGTH, StepLayout, is_binary
from wardround.federation.models.training import Input, ModelKind, StageKind
from wardround.simulation.noise import ZeroNoise

NUMBERS = (0.0, -0.0, 1.0, -2.7, 37.0, -745.2, 709.9, 1e16, 1e100, -1e154, 1.7e308, -1e308, 5e-324, 1e-160)
BOUNDS = (
    (-1.0, 1.0),
    (0.0, 100.0),
    (5.0, 5.0),
    (0.0, 5e-324),
    (1e15, 1e15 + 1),
    (1e16, 1e16 + 4),
    (0.0, 1e300),
    (1e308, 1.1e308),
    (-1.7e308, 1.7e308),
    (-1e-200, 1e-200),
)
ROWS = (1, 1, 2, 3, 16, 17, 33)
every = pytest.mark.parametrize(("model", "stage"), EVERY, ids=[f"{m.value}-{s.value}" for m, s in EVERY])


def number(draw: random.Random) -> float:
    sign = draw.choice((1.0, -1.0))
    return draw.choice((draw.choice(NUMBERS), draw.gauss(0.0, 2.0), sign * 10.0 ** draw.uniform(-320.0, 308.0)))


def several(draw: random.Random, most: int) -> list[float]:
    return [number(draw) for _ in range(draw.randint(1, most))]


def extreme(draw: random.Random, model: ModelKind, stage: StageKind) -> StepLayout:
    spread = [abs(each) or 0.5 for each in several(draw, 4)]
    numbers = Numbers(several(draw, 4), spread, several(draw, 12), clip=abs(number(draw)) or 1.0)
    form = form_of(model, stage, numbers)
    inputs = tuple(Input(each.name, each.column, *draw.choice(BOUNDS)) for each in form.inputs)
    possible = [bounds for bounds in BOUNDS if bounds[0] >= 0.0 or model is ModelKind.LINEAR]
    outcome = (0.0, 1.0) if is_binary(model) else draw.choice([*possible, (0.0, 1.7e308)])
    return dataclasses.replace(form, inputs=inputs, target=Input("outcome", "outcome", *outcome))


def value(draw: random.Random, each: Input) -> float:
    inside = each.low + (each.high / 2 - each.low / 2) * draw.uniform(0.0, 2.0)
    return draw.choice((each.low, each.high, each.low / 2 + each.high / 2, min(max(inside, each.low), each.high)))


def patient(draw: random.Random, form: StepLayout) -> Patient:
    binary = is_binary(form.step.training.model.kind)
    return [
        (
            [value(draw, each) for each in form.inputs],
            float(draw.randrange(2)) if binary else value(draw, form.target),
        )
        for _ in range(draw.choice(ROWS))
    ]


def total(form: StepLayout, patients: list[Patient]) -> list[int]:
    examples = examples_of(patients, held_out=form.step.kind is StageKind.SCORES)
    found: list[int] = take(form, examples, LAW, ZeroNoise()).tolist()
    return found


@every
def test_no_extreme_moves_another_patients_part_or_is_told_by_a_warning(
    model: ModelKind, stage: StageKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(f"{model} {stage}")
    for _ in range(25):
        form = extreme(draw, model, stage)
        monkeypatch.setattr(steps, "CHUNK", draw.choice((1, 7, 64, 2**18)) * form.width)
        patients = [patient(draw, form) for _ in range(6)]
        place = draw.randrange(6)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            whole, without = total(form, patients), total(form, patients[:place] + patients[place + 1 :])
            alone = total(form, [patients[place]])
        assert [more - less for more, less in zip(whole, without, strict=True)] == alone
        assert sum(each * each for each in alone) <= LENGTH**2


def test_a_count_near_the_last_of_doubles_is_no_warning() -> None:
    form = form_of(ModelKind.POISSON, StageKind.GRADIENT, Numbers(weights=(1e3,)))
    form = dataclasses.replace(form, target=Input("outcome", "outcome", 0.0, 1.7e308))
    with np.errstate(over="raise"):
        assert sum(each * each for each in total(form, [[([110.0, 200.0, 20.0], 0.0)]])) <= LENGTH**2
