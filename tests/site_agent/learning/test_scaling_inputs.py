"""Scaling from released moments: near the truth, and never near zero because of noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.learning.training_step import take
from site_agent.reading.examples import Examples
from tests.site_agent.learning.sums import Array, answered, contributions, people, study_of, training_of
from wardround.analyst.estimation.fitted import RoundSums, Standardisation, settled
from wardround.analyst.estimation.gaussian_inputs import believed, symmetric
from wardround.analyst.estimation.standardising import LEAST_SPREAD, moments_of, room, standardised, two_valued
from wardround.analyst.learning.predictor import coordinates, scores
from wardround.federation.models.step_layout import (
    LENGTH,
    SCORE_BINS,
    StepLayout,
    inputs_of,
    measured,
    pack,
    step_form,
    weights_of,
)
from wardround.federation.models.training import ModelKind, StageKind, Step
from wardround.federation.study.study import Column, ColumnType, Table
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.simulation.noise import ZeroNoise


def moments(values: Array, *, noise: Array | None = None, noise_sd: float = 0.0) -> RoundSums:
    rows, columns = values.shape
    whole = np.concatenate(([rows], values.sum(axis=0), (values**2 - 0.5).sum(axis=0)))
    whole = whole / math.sqrt(1 + 5 * columns / 4)
    return RoundSums((whole if noise is None else whole + noise)[np.newaxis], {}, 1, noise_sd)


def test_without_noise_moments_are_exact() -> None:
    draw = np.random.default_rng(0)
    values = np.clip(draw.normal((0.1, -0.3), (0.2, 0.4), (500, 2)), -1, 1)
    found = moments_of(moments(values), np.array([False, False]))
    assert found.patients == pytest.approx(500)
    assert found.mean == pytest.approx(values.mean(axis=0))
    assert found.variance == pytest.approx(values.var(axis=0))


def test_a_column_of_two_values_spreads_as_its_mean_says() -> None:
    table = Table(
        "t",
        "p",
        1,
        1,
        (
            Column("a", ColumnType.BOOLEAN),
            Column("b", ColumnType.INTEGER, Fraction(0), Fraction(1)),
            Column("c", ColumnType.NUMBER, Fraction(0), Fraction(1)),
            Column("d", ColumnType.CATEGORY, values=("x", "y", "z")),
            Column("y", ColumnType.BOOLEAN),
        ),
    )
    study = study_of(1)
    study = type(study)(
        study.name, study.unit, study.overlap, study.cap, (table,), 1, study.deadline_seconds, study.approval_seconds
    )
    training = training_of(ModelKind.LOGISTIC, 1)
    model = type(training.model)(ModelKind.LOGISTIC, "t", "y", ("a", "b", "c", "d"))
    inputs, _ = inputs_of(model, study)
    assert two_valued(inputs, table, columns=len(inputs)).tolist() == [True, True, False, True, True]


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 100.0), st.integers(0, 60), st.integers(1, 20))
def test_noise_cannot_make_a_spread_small(seed: int, noise_sd: float, rows: int, columns: int) -> None:
    draw = np.random.default_rng(seed)
    sums = moments(np.zeros((rows, columns)), noise=noise_sd * draw.standard_normal(1 + 2 * columns), noise_sd=noise_sd)
    found = moments_of(sums, draw.random(columns) < 0.5)
    scaling = standardised(found, inputs=columns, noise=0.1)
    assert (scaling.spread >= LEAST_SPREAD * (1 - 1e-6)).all()
    assert (np.abs(scaling.centre) <= 1.0).all()
    assert found.patients >= max(1.0, noise_sd)


def test_room_is_largest_for_few_inputs_and_little_noise() -> None:
    assert room(1, 0.0) > room(10, 0.0) > room(100, 0.0) > 1.0
    assert room(10, 0.0) > room(10, 0.02) > room(10, 1.0) >= 1.0


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.0, 1e3))
def test_believed_products_are_never_indefinite(seed: int, width: int, noise_sd: float) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((30, width)) / math.sqrt(width)
    packed = (rows.T @ rows)[np.triu_indices(width)] + noise_sd * draw.standard_normal(width * (width + 1) // 2)
    found = believed(symmetric(packed), noise_sd)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-9 * max(1.0, noise_sd)
    assert np.array_equal(symmetric(packed), symmetric(packed).T)


def test_drawing_products_in_brings_them_nearer_the_truth() -> None:
    draw, width = np.random.default_rng(3), 20
    rows = draw.standard_normal((2000, width)) / math.sqrt(width)
    true = rows.T @ rows
    noise = 30.0 * draw.standard_normal((width, width))
    noisy = true + (np.triu(noise, 1) + np.triu(noise, 1).T) / math.sqrt(2) + np.diag(np.diag(noise))
    assert np.linalg.norm(believed(noisy, 30.0).matrix - true) < 0.6 * np.linalg.norm(noisy - true)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
def test_settled_numbers_stay_where_they_are_and_do_not_move_again(values: list[float]) -> None:
    once = settled(np.array(values))
    assert np.abs(once - values).max() <= np.abs(values).max() * 2.0**-31
    assert settled(once).tolist() == once.tolist()


# --- Sites, models and this decision's table mean the same -------------------------------------------------


def forms(kind: ModelKind) -> list[StepLayout]:
    target = None if kind in (ModelKind.LOGISTIC, ModelKind.PERCEPTRON) else (0.0, 20.0)
    study = study_of(3, binary=1, target=target)
    training = training_of(
        kind, 3, hidden=2 if kind is ModelKind.PERCEPTRON else 0, held_out=Fraction(1, 4), products=0.2, clip=0.3
    )
    draw, columns = np.random.default_rng(5), measured(kind, 3)
    centre, spread = pack(0.1 * draw.standard_normal(columns)), pack(0.3 + draw.random(columns))
    weights = pack(draw.standard_normal(weights_of(training.model, 3)))
    edges = tuple(np.linspace(-2, 2, SCORE_BINS - 1).tolist()) if target is None else ()
    found = []
    for place, stage in enumerate(training.stages):
        step = Step(training, place, 0)
        if stage.kind is not StageKind.MOMENTS:
            step = Step(training, place, 0, centre, spread)
        if stage.kind is StageKind.GRADIENT:
            step = Step(training, place, 0, centre, spread, weights)
        if stage.kind is StageKind.SCORES:
            step = Step(training, place, 0, centre, spread, weights, edges=edges)
        found.append(step_form(step, study))
    return found


def taken(form: StepLayout, inputs: Array, outcome: Array) -> Array:
    """What a site would release of these patients, one row each, without noise."""
    everybody = np.full(len(outcome), form.step.kind is StageKind.SCORES)
    examples = Examples(inputs, outcome, np.arange(len(outcome) + 1), everybody)
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, form.step.training.stages[form.step.stage].scale)
    return take(form, examples, law, ZeroNoise()) / LENGTH


@pytest.mark.parametrize("kind", list(ModelKind))
def test_a_site_contributes_what_the_decision_says(kind: ModelKind) -> None:
    draw = np.random.default_rng(6)
    inputs = np.clip(draw.standard_normal((200, 3)) * 2, -4, 4)
    inputs[:, 0] = inputs[:, 0] > 0
    outcome = draw.integers(0, 20 if kind in (ModelKind.LINEAR, ModelKind.POISSON) else 2, 200).astype(np.float64)
    for form in forms(kind):
        ours = contributions(form, inputs, outcome, np.frombuffer(form.step.weights)).sum(axis=0)
        # Each patient's numbers are cut to whole ones.
        assert taken(form, inputs, outcome) == pytest.approx(ours, abs=200 / LENGTH), form.step.kind


@pytest.mark.parametrize("kind", [ModelKind.LOGISTIC, ModelKind.PERCEPTRON])
def test_a_prediction_is_the_score_that_was_tried(kind: ModelKind) -> None:
    draw = np.random.default_rng(7)
    inputs = np.clip(draw.standard_normal((300, 3)) * 2, -4, 4)
    inputs[:, 0] = inputs[:, 0] > 0
    form = forms(kind)[-1]
    scaling = Standardisation(np.frombuffer(form.step.centre), np.frombuffer(form.step.spread))
    found = scores(kind, np.frombuffer(form.step.weights), coordinates(inputs, form.inputs, scaling), hidden=2)
    bins = np.bincount(np.searchsorted(np.array(form.step.edges), found, side="right"), minlength=SCORE_BINS)
    assert taken(form, inputs, np.zeros(300))[::2].tolist() == bins.tolist()


def test_a_round_has_the_noise_it_says() -> None:
    study, training = study_of(2), training_of(ModelKind.LOGISTIC, 2)
    step = Step(training, 0, 0)
    draw = np.random.default_rng(8)
    nobody = people(np.zeros((2, 2)), np.zeros(2), sites=2, held_out=1.0)
    rounds = [answered(step, study, nobody, draw) for _ in range(300)]
    assert np.std([one.totals for one in rounds]) == pytest.approx(rounds[0].noise_sd, rel=0.1)
