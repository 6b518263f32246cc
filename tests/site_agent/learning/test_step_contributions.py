"""One patient moves a step's sum by whole numbers of bounded length, whoever else is there and whatever is sent."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from site_agent.learning import training_step as steps
from site_agent.learning.contributions import contribution as rule_of
from site_agent.learning.integer_vectors import whole
from site_agent.learning.training_step import take
from site_agent.reading.examples import Examples
from tests.site_agent.learning.plain_steps import (
    BOUNDS,
    EVERY,
    LAW,
    SCALE,
    Numbers,
    Patient,
    contribution,
    examples_of,
    form_of,
)
from wardround.federation.models.step_layout import (
    LENGTH,
    StepLayout,
    is_binary,
    moved,
    pack,
    step_form,
    unpack,
    weights_of,
)
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.study.study_file import parse_study
from wardround.privacy.mechanisms.randomness import SecureChance
from wardround.simulation.noise import ZeroNoise

every = pytest.mark.parametrize(("model", "stage"), EVERY, ids=[f"{m.value}-{s.value}" for m, s in EVERY])


class Taking(ZeroNoise):
    """Chance that takes every unit whose place is not among those left out."""

    def __init__(self, *left_out: int) -> None:
        self._left_out = left_out

    def sample(self, units: int, rate: Fraction) -> NDArray[np.intp]:
        return np.setdiff1d(np.arange(units), self._left_out)


def totals(form: StepLayout, patients: Sequence[Patient], *, chance: ZeroNoise | None = None) -> list[int]:
    examples = examples_of(patients, held_out=form.step.kind is StageKind.SCORES)
    return take(form, examples, LAW, chance or ZeroNoise()).tolist()


def patient(draw: random.Random, model: ModelKind, rows: int) -> Patient:
    """Rows within their bounds, often at the very ends of them."""
    return [
        (
            [draw.choice((low, high, (low + high) / 2, draw.uniform(low, high))) for low, high in BOUNDS.values()],
            float(draw.randrange(2 if is_binary(model) else 10)),
        )
        for _ in range(rows)
    ]


def crowd(model: ModelKind, seed: int, *, patients: int = 30, most_rows: int = 5) -> list[Patient]:
    draw = random.Random(seed)
    return [patient(draw, model, draw.choice((1, 1, 2, most_rows))) for _ in range(patients)]


# --- Within the norm --------------------------------------------------------------------------------------

huge = st.floats(allow_nan=False, allow_infinity=False)
usual = st.floats(-3.0, 3.0)
spreads = st.one_of(st.floats(0.05, 2.0), st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False))
sent = st.builds(
    Numbers,
    centre=st.lists(st.one_of(usual, huge), min_size=1, max_size=4),
    spread=st.lists(spreads, min_size=1, max_size=4),
    weights=st.lists(st.one_of(usual, huge), min_size=1, max_size=12),
    clip=st.one_of(st.floats(0.01, 2.0), st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False)),
)
FARTHEST = Numbers((1e308, -1e308), (5e-324,), (1e308, -1e308, 1.7e308), 5e-324)


@every
@settings(max_examples=25)
@example(numbers=FARTHEST, seed=1, rows=40)
@given(numbers=sent, seed=st.integers(0, 10_000), rows=st.sampled_from([1, 2, 40]))
def test_a_patient_is_the_same_short_vector_whoever_else_is_there(
    model: ModelKind, stage: StageKind, numbers: Numbers, seed: int, rows: int
) -> None:
    form, others = form_of(model, stage, numbers), crowd(model, seed, patients=6)
    mine = patient(random.Random(seed + 1), model, rows)
    place = seed % (len(others) + 1)
    without, alone = totals(form, others), totals(form, [mine])
    along = totals(form, [*others[:place], mine, *others[place:]])
    # Not only within the norm: what others contribute does not move by a single step.
    assert [more - less for more, less in zip(along, without, strict=True)] == alone
    assert sum(number * number for number in alone) <= LENGTH**2 == form.l2_sensitivity_squared
    assert sum(abs(number) for number in alone) <= form.l1_sensitivity


def test_clipping_rows_instead_of_patients_breaks_the_bound() -> None:
    form = form_of(ModelKind.LOGISTIC, StageKind.GRADIENT)
    mine = patient(random.Random(3), ModelKind.LOGISTIC, 1) * 40
    row_by_row = totals(form, [[row] for row in mine])
    assert sum(number * number for number in row_by_row) > LENGTH**2


@every
def test_no_order_of_units_or_place_among_them_moves_a_bit(
    model: ModelKind, stage: StageKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, patients, draw = form_of(model, stage), crowd(model, 11, patients=60, most_rows=9), random.Random(4)
    monkeypatch.setattr(steps, "CHUNK", 7 * form.width)
    whole = totals(form, patients)
    for _ in range(5):
        draw.shuffle(patients)
        assert totals(form, patients) == whole
    assert np.sum([totals(form, [each]) for each in patients], axis=0).tolist() == whole


@every
def test_rows_become_the_same_bits_alone_and_among_others(model: ModelKind, stage: StageKind) -> None:
    form, rows = form_of(model, stage), crowd(model, 12, patients=700, most_rows=1)
    examples, weights = examples_of(rows), unpack(form_of(model, stage).step.weights)
    rule = rule_of(form)
    among = rule(examples.inputs, examples.target, weights).scaled()
    for first, size in ((0, 1), (1, 2), (5, 3), (63, 66), (130, 8), (699, 1)):
        part = slice(first, first + size)
        assert rule(examples.inputs[part], examples.target[part], weights).scaled().tobytes() == among[part].tobytes()


@pytest.mark.parametrize("model", [ModelKind.LOGISTIC, ModelKind.PERCEPTRON])
def test_many_features_are_no_exception(model: ModelKind) -> None:
    draw, names = np.random.default_rng(2), tuple(f"x{place}" for place in range(203))
    columns = "".join(f'{name} = {{ type = "number", lower = -4, upper = 4 }}\n' for name in names)
    wide = parse_study(
        f'name = "wide"\nunit = "patient"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.t]\nunit_key = "p"\n'
        f'max_rows_per_unit = 1\n[tables.t.columns]\n{columns}ill = {{ type = "boolean" }}\n'
    )
    asked = Model(model, "t", "ill", names, hidden=31 if model is ModelKind.PERCEPTRON else 0)
    training = Training(asked, (Stage(StageKind.GRADIENT, SCALE),))
    weights = draw.normal(size=weights_of(asked, 203))
    scale = pack(np.zeros(203)), pack(np.full(203, 0.3))
    form = step_form(Step(training, 0, 0, *scale, pack(weights)), wide)
    inputs, target = np.clip(draw.normal(size=(300, 203)), -4.0, 4.0), draw.integers(0, 2, 300) * 1.0
    rule = rule_of(form)
    among, numbers = rule(inputs, target, weights).scaled(), whole(rule(inputs, target, weights), 0.5)
    assert form.width == (6356 if model is ModelKind.PERCEPTRON else 204)
    for first, size in ((0, 1), (1, 2), (5, 3), (63, 66), (299, 1)):
        part = slice(first, first + size)
        assert rule(inputs[part], target[part], weights).scaled().tobytes() == among[part].tobytes()
        alone = whole(rule(inputs[part], target[part], weights), 0.5)
        assert alone.tobytes() == numbers[part].tobytes()
        assert (np.einsum("ij,ij->i", alone, alone) <= LENGTH**2).all()


# --- Exactly ----------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("clip", [0.05, 0.4, 1.0, 3.0])
def test_a_sum_is_that_of_plain_python(model: ModelKind, stage: StageKind, clip: float) -> None:
    numbers = Numbers((0.1, -0.3, 0.0, 0.2), (0.3, 0.9, 0.05, 0.4), (0.3, -0.8, 1.7, 0.05, -2.0), clip)
    form, patients = form_of(model, stage, numbers), crowd(model, 5, patients=40)
    found = np.array(totals(form, patients)) / LENGTH
    expected = np.sum([contribution(form, each) for each in patients], axis=0)
    # Truncation takes less than one step a patient, toward zero.
    assert np.abs(found - expected).max() <= len(patients) / LENGTH * (1 + 1e-6)
    assert np.abs(expected).max() > 0.01


@every
def test_parts_of_a_patient_with_very_many_rows_are_one_mean(
    model: ModelKind, stage: StageKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, mine = form_of(model, stage), patient(random.Random(6), model, 50)
    at_once = np.array(totals(form, [mine]))
    monkeypatch.setattr(steps, "CHUNK", 4 * form.width)
    assert np.abs(np.array(totals(form, [mine])) - at_once).max() <= 1


@every
def test_sites_with_nobody_one_patient_or_one_class_answer_like_any_other(model: ModelKind, stage: StageKind) -> None:
    form = form_of(model, stage)
    assert totals(form, []) == [0] * form.dimension
    middle = [(low + high) / 2 for low, high in BOUNDS.values()]
    for rows in ([(middle, 0.0)], [(middle, 0.0)] * 3):
        found = totals(form, [rows])
        assert len(found) == form.dimension
        assert found == totals(form, [rows[:1]])


def test_only_the_fold_of_a_stage_is_looked_at() -> None:
    patients = crowd(ModelKind.LOGISTIC, 8)
    held_out = np.array([place % 3 == 1 for place in range(len(patients))])
    whole = examples_of(patients)
    mixed = Examples(whole.inputs, whole.target, whole.starts, held_out)
    for stage in StageKind:
        form, wanted = form_of(ModelKind.LOGISTIC, stage), stage is StageKind.SCORES
        mine = [each for each, out in zip(patients, held_out, strict=True) if out == wanted]
        assert take(form, mixed, LAW, ZeroNoise()).tolist() == totals(form, mine)


# --- Several steps, samples, noise ------------------------------------------------------------------------


@pytest.mark.parametrize("model", ModelKind)
def test_steps_of_a_round_move_the_model_as_whoever_replays_them(model: ModelKind) -> None:
    patients = crowd(model, 9)
    several = form_of(model, StageKind.GRADIENT, Numbers(steps=4))
    released = np.array(totals(several, patients)).reshape(4, -1)
    weights = unpack(several.step.weights)
    for line in released:
        single = form_of(model, StageKind.GRADIENT, Numbers(weights=weights.tolist()))
        assert totals(single, patients) == line.tolist()
        weights = moved(weights, line, several)


def test_a_step_that_goes_too_far_stays_a_number() -> None:
    form = form_of(ModelKind.LINEAR, StageKind.GRADIENT, Numbers(clip=1e308))
    far = moved(np.array([1e308, -1e308, 0.0, 1.0]), np.array([2**61, -(2**61), 0, 1]), form)
    assert np.isfinite(far).all()


@pytest.mark.parametrize("steps_at_once", [1, 3, 100])
def test_a_sample_is_the_units_whose_coins_fell_true(steps_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    patients = crowd(ModelKind.LOGISTIC, 10, patients=12)
    monkeypatch.setattr(steps, "COINS", steps_at_once * len(patients))
    form = form_of(ModelKind.LOGISTIC, StageKind.GRADIENT, Numbers(steps=1, rate=Fraction(1, 2)))
    several = form_of(ModelKind.LOGISTIC, StageKind.GRADIENT, Numbers(steps=7, rate=Fraction(1, 2)))
    found = np.array(totals(several, patients, chance=Taking())).reshape(7, -1)
    assert (
        found.tolist()
        == np.array(totals(form_of(ModelKind.LOGISTIC, StageKind.GRADIENT, Numbers(steps=7)), patients))
        .reshape(7, -1)
        .tolist()
    )
    fewer = [each for place, each in enumerate(patients) if place not in (0, 5, 11)]
    assert totals(form, patients, chance=Taking(0, 5, 11)) == totals(form, fewer, chance=Taking())


@pytest.mark.usefixtures("same_noise")
def test_coins_are_fresh_in_every_step() -> None:
    form = form_of(ModelKind.LOGISTIC, StageKind.GRADIENT, Numbers(steps=50, rate=Fraction(1, 4)))
    rows = examples_of(crowd(ModelKind.LOGISTIC, 10, patients=60)).fold(held_out=False)
    taken = list(steps._samples(rows, form.step.training.stages[0], SecureChance()))
    assert len({each.inputs.tobytes() for each in taken}) == 50
    # Six standard deviations of 3,000 coins.
    assert abs(sum(each.units for each in taken) - 750) < 6 * (3000 * 3 / 16) ** 0.5


@pytest.mark.usefixtures("same_noise")
def test_noise_of_a_round_is_as_wide_as_its_law_in_every_step() -> None:
    form = form_of(ModelKind.PERCEPTRON, StageKind.GRADIENT, Numbers(steps=400))
    nobody = examples_of([])
    found = take(form, nobody, LAW, SecureChance()).astype(np.float64) / float(LAW.scale)
    number = form.dimension
    assert found.size == number == 400 * form.width
    # Six standard deviations of a mean and of a variance: once in a billion.
    assert abs(found.mean()) < 6 / number**0.5
    for part in (found, found[: number // 2], found[number // 2 :]):
        assert abs(part.var() - 1.0) < 6 * (2 / part.size) ** 0.5
    assert np.unique(found.reshape(400, -1), axis=0).shape[0] == 400


def test_memory_does_not_grow_with_the_number_of_patients() -> None:
    form, draw = form_of(ModelKind.LOGISTIC, StageKind.PRODUCTS), np.random.default_rng(1)
    inputs = np.tile([55.0, 140.0, 0.0], (400_000, 1))
    examples = Examples(inputs, draw.integers(0, 2, 400_000) * 1.0, np.arange(400_001), np.zeros(400_000, np.bool_))
    tracemalloc.start()
    take(form, examples, LAW, ZeroNoise())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A mark for each unit, and some chunks of two mebibytes.
    assert peak < 400_000 + 10 * 2**20
