"""Models from sums: what they come to without noise, that the same sums lead the same way, that nothing breaks them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.site_agent.learning.sums import Array, People, answered, people, study_of, train, training_of
from wardround.analyst.estimation.fitted import Fitted
from wardround.analyst.learning.fitting import begin
from wardround.analyst.learning.predictor import coordinates, predicted
from wardround.federation.errors import QueryMistaken
from wardround.federation.models.perceptron import first_weights
from wardround.federation.models.step_layout import inputs_of, step_form, unpack
from wardround.federation.models.training import ModelKind, Step, Training
from wardround.federation.study.study import Study

ONLY_PRODUCTS = {"moments": 0.1, "products": 0.9}
QUARTER = Fraction(1, 4)


def drawn(kind: ModelKind, patients: int, features: int, *, seed: int = 1) -> tuple[Study, Array, Array]:
    """A study, inputs and outcomes that follow a model of this kind; the first feature is yes or no."""
    draw = np.random.default_rng(seed)
    inputs = np.clip(draw.standard_normal((patients, features)), -4, 4)
    inputs[:, 0] = inputs[:, 0] > 0
    score = inputs @ np.linspace(0.8, -0.5, features) * 0.7 - 0.5
    match kind:
        case ModelKind.LINEAR:
            return study_of(features, binary=1, target=(-10, 10)), inputs, score + draw.standard_normal(patients)
        case ModelKind.POISSON:
            counts = np.minimum(draw.poisson(np.exp(score)), 20).astype(np.float64)
            return study_of(features, binary=1, target=(0, 20)), inputs, counts
        case _:
            yes = (draw.random(patients) < 1 / (1 + np.exp(-score))).astype(np.float64)
            return study_of(features, binary=1), inputs, yes


def placed(fitted: Fitted, training: Training, study: Study, inputs: Array) -> Array:
    return coordinates(inputs, inputs_of(training.model, study)[0], fitted.standardisation)


def test_without_noise_a_logistic_model_is_the_most_likely_one() -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 3000, 4)
    training = training_of(ModelKind.LOGISTIC, 4, clip=1.0, rounds=10)
    fitted = train(training, study, people(inputs, outcome, sites=3), noiseless=True).fitted()
    rows = placed(fitted, training, study, inputs)
    best = minimize(lambda w: np.logaddexp(0, rows @ w).sum() - outcome @ (rows @ w), np.zeros(5), tol=1e-12).x
    assert fitted.weights == pytest.approx(best, abs=2e-3)


def test_clipping_at_a_half_hardly_moves_a_logistic_model() -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 20_000, 4)
    kept = {
        clip: train(
            training_of(ModelKind.LOGISTIC, 4, clip=clip, rounds=10), study, people(inputs, outcome), noiseless=True
        ).fitted()
        for clip in (0.5, 1.0)
    }
    values = {clip: np.array([each.value for each in fitted.coefficients]) for clip, fitted in kept.items()}
    assert values[0.5] == pytest.approx(values[1.0], abs=0.03)


def test_without_noise_a_poisson_model_is_the_most_likely_one() -> None:
    study, inputs, counts = drawn(ModelKind.POISSON, 3000, 4)
    training = training_of(ModelKind.POISSON, 4, clip=1.0, rounds=12)
    fitted = train(training, study, people(inputs, counts, sites=2), noiseless=True).fitted()
    rows = placed(fitted, training, study, inputs)
    best = minimize(lambda w: np.exp(rows @ w).sum() - counts @ (rows @ w), np.zeros(5), tol=1e-12).x
    assert fitted.weights == pytest.approx(best, abs=2e-3)


def test_without_noise_a_linear_model_is_least_squares() -> None:
    study, inputs, outcome = drawn(ModelKind.LINEAR, 3000, 4)
    training = training_of(ModelKind.LINEAR, 4, **ONLY_PRODUCTS)
    fitted = train(training, study, people(inputs, outcome), noiseless=True).fitted()
    rows = placed(fitted, training, study, inputs)
    spread, centre = fitted.standardisation.spread[-1], fitted.standardisation.centre[-1]
    scaled = np.clip((outcome / 10 - centre) / (3 * spread), -1, 1)
    assert fitted.weights == pytest.approx(np.linalg.lstsq(rows, scaled, rcond=None)[0], abs=1e-4)
    found, target = inputs_of(training.model, study)
    guess = predicted(fitted.kind, fitted.weights, fitted.standardisation, found, target, inputs)
    assert np.sqrt(np.mean((guess - outcome) ** 2)) == pytest.approx(1.0, abs=0.05)


def test_a_linear_model_fitted_by_gradients_is_the_same_one() -> None:
    study, inputs, outcome = drawn(ModelKind.LINEAR, 3000, 4)
    both = [
        train(training, study, people(inputs, outcome), noiseless=True).fitted()
        for training in (
            training_of(ModelKind.LINEAR, 4, **ONLY_PRODUCTS),
            training_of(ModelKind.LINEAR, 4, clip=1.0, rounds=8),
        )
    ]
    one, other = ([each.value for each in fitted.coefficients] for fitted in both)
    assert one == pytest.approx(other, abs=0.03)


@pytest.mark.parametrize("kind", [ModelKind.LOGISTIC, ModelKind.POISSON])
def test_bounds_alone_can_scale_a_model(kind: ModelKind) -> None:
    study, inputs, outcome = drawn(kind, 5000, 4)
    measured, bounds = (
        train(training_of(kind, 4, clip=1.0, moments=share, rounds=10), study, people(inputs, outcome), noiseless=True)
        for share in (0.05, 0.0)
    )
    one, other = ([each.value for each in fitting.fitted().coefficients] for fitting in (measured, bounds))
    assert one == pytest.approx(other, abs=0.12)


@pytest.mark.parametrize("steps", [1, 5])
def test_sampled_steps_come_near_the_most_likely_model(steps: int) -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 4000, 4)
    training = training_of(
        ModelKind.LOGISTIC, 4, products=0.0, clip=1.0, rounds=80 // steps, steps=steps, rate=QUARTER, sampled_noise=1.0
    )
    fitted = train(training, study, people(inputs, outcome, sites=4), seed=3).fitted()
    rows = placed(fitted, training, study, inputs)
    best = minimize(lambda w: np.logaddexp(0, rows @ w).sum() - outcome @ (rows @ w), np.zeros(5)).x
    assert np.corrcoef(rows @ fitted.weights, rows @ best)[0, 1] > 0.97
    assert fitted.notes, "errors without products say what they take for granted"


def test_a_perceptron_finds_what_no_line_can() -> None:
    draw = np.random.default_rng(4)
    inputs = np.clip(draw.standard_normal((8000, 2)), -4, 4)
    outcome = (inputs[:, 0] * inputs[:, 1] > 0).astype(np.float64)
    study = study_of(2)
    training = training_of(
        ModelKind.PERCEPTRON,
        2,
        products=0.0,
        clip=1.0,
        rounds=120,
        rate=QUARTER,
        sampled_noise=3.0,
        hidden=8,
        held_out=QUARTER,
    )
    fitted = train(training, study, people(inputs, outcome, held_out=0.25), seed=5).fitted()
    found, target = inputs_of(training.model, study)
    guess = predicted(fitted.kind, fitted.weights, fitted.standardisation, found, target, inputs, hidden=8)
    right = float(np.mean((guess > 0.5) == (outcome > 0.5)))
    assert right > 0.8
    accuracy = next(each for each in fitted.metrics if each.name == "accuracy")
    assert accuracy.value == pytest.approx(right, abs=4 * accuracy.standard_error)
    assert fitted.coefficients == ()


def test_every_perceptron_of_a_size_begins_at_the_same_scattered_weights() -> None:
    weights = first_weights(8, 10)
    assert weights.tolist() == first_weights(8, 10).tolist()
    inner = weights[:88].reshape(8, 11)
    apart = np.abs(np.corrcoef(inner)[np.triu_indices(8, 1)])
    assert apart.max() < 0.9
    assert inner.std() == pytest.approx(1 / math.sqrt(11), rel=0.15)


# --- The same way again -----------------------------------------------------------------------------------


def steps_of(training: Training, study: Study, everybody: People, *, seed: int) -> list[Step]:
    draw, fitting, steps = np.random.default_rng(seed), begin(training, study), []
    while (step := fitting.next_step()) is not None:
        steps.append(step)
        fitting = fitting.advance(answered(step, study, everybody, draw))
    return steps


@pytest.mark.parametrize("kind", list(ModelKind))
def test_the_same_sums_lead_to_the_same_steps(kind: ModelKind) -> None:
    study, inputs, outcome = drawn(kind, 300, 3)
    everybody = people(inputs, outcome, sites=2, held_out=0.2)
    hidden = 3 if kind is ModelKind.PERCEPTRON else 0
    training = training_of(kind, 3, rounds=4, hidden=hidden, held_out=QUARTER)
    steps = steps_of(training, study, everybody, seed=9)
    assert steps == steps_of(training, study, everybody, seed=9)
    assert [step.place for step in steps] == list(range(training.rounds))
    assert steps[-1] != steps_of(training, study, everybody, seed=10)[-1]


def test_last_bits_of_arithmetic_do_not_change_a_step() -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 300, 3)
    training = training_of(ModelKind.LOGISTIC, 3, rounds=4)
    draw = np.random.default_rng(2)
    one = other = begin(training, study)
    while (step := one.next_step()) is not None:
        assert step == other.next_step()
        sums = answered(step, study, people(inputs, outcome), draw)
        one = one.advance(sums)
        other = other.advance(replace(sums, totals=sums.totals * (1 + 1e-15)))


# --- Combining --------------------------------------------------------------------------------------------


def weighted(weights: Array, updates: Mapping[str, Array], examples: Mapping[str, float]) -> Array:
    """The mean of the sites' models by their patients: federated averaging."""
    del weights
    whole = sum(examples.values())
    return np.sum([examples[site] / whole * update for site, update in updates.items()], axis=0)


def equal(weights: Array, updates: Mapping[str, Array], examples: Mapping[str, float]) -> Array:
    del weights, examples
    return np.mean(list(updates.values()), axis=0)


@pytest.mark.parametrize(
    ("training", "combine"),
    [
        (training_of(ModelKind.LOGISTIC, 3, rounds=4, by_site=True), weighted),
        (training_of(ModelKind.LOGISTIC, 3, products=0.0, rounds=4, rate=QUARTER, by_site=True), weighted),
        (training_of(ModelKind.LOGISTIC, 3, products=0.0, rounds=4, steps=3, rate=QUARTER, by_site=True), equal),
    ],
    ids=["gradients", "samples", "local steps"],
)
def test_averaging_the_sites_models_is_the_sum_itself(training: Training, combine: type) -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 2000, 3)
    everybody = people(inputs, outcome, sites=3)
    summed = train(training, study, everybody, seed=1).fitted()
    combined = train(training, study, everybody, seed=1, combine=combine).fitted()
    assert combined.weights == pytest.approx(summed.weights, rel=1e-5, abs=1e-6)


def test_a_combination_sees_every_site_and_its_noised_number_of_patients() -> None:
    seen: list[Mapping[str, float]] = []

    def watching(weights: Array, updates: Mapping[str, Array], examples: Mapping[str, float]) -> Array:
        seen.append(examples)
        return weighted(weights, updates, examples)

    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 3000, 3)
    training = training_of(ModelKind.LOGISTIC, 3, rounds=2, by_site=True)
    train(training, study, people(inputs, outcome, sites=3), combine=watching)
    assert len(seen) == 2
    for examples in seen:
        assert set(examples) == {"h00", "h01", "h02"}
        assert all(value != 1000 and 600 < value < 1400 for value in examples.values())


# --- Nothing breaks it ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", list(ModelKind))
@pytest.mark.parametrize("case", ["nobody", "one patient", "more inputs than patients", "constant", "one class"])
@pytest.mark.parametrize("noiseless", [False, True])
def test_every_site_gives_a_finite_model(kind: ModelKind, case: str, *, noiseless: bool) -> None:
    study, inputs, outcome = drawn(kind, 40, 6)
    match case:
        case "nobody":
            inputs, outcome = inputs[:0], outcome[:0]
        case "one patient":
            inputs, outcome = inputs[:1], outcome[:1]
        case "more inputs than patients":
            inputs, outcome = inputs[:4], outcome[:4]
        case "constant":
            inputs[:, 1:] = 4.0
        case _:
            outcome[:] = 1.0
    everybody = People(inputs, outcome, np.zeros(len(outcome), dtype=np.intp), np.arange(len(outcome)) % 5 == 0)
    training = training_of(kind, 6, rounds=5, hidden=3 if kind is ModelKind.PERCEPTRON else 0, held_out=QUARTER)
    draw, fitting = np.random.default_rng(0), begin(training, study)
    while (step := fitting.next_step()) is not None:
        sums = answered(step, study, everybody, draw, noiseless=noiseless)
        fitting = fitting.advance(sums)
    fitted = fitting.fitted()
    numbers = [*fitted.weights, *fitted.standardisation.centre, *fitted.standardisation.spread]
    numbers += [number for each in fitted.coefficients for number in (each.value, each.standard_error, *each.interval)]
    numbers += [
        number for each in fitted.metrics if each.reason is None for number in (each.value, each.standard_error)
    ]
    assert np.isfinite(numbers).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", list(ModelKind))
@pytest.mark.parametrize("size", [1e6, -1e12])
def test_a_hostile_sum_leads_to_steps_that_can_be_taken(kind: ModelKind, size: float) -> None:
    study, inputs, outcome = drawn(kind, 200, 3)
    training = training_of(kind, 3, rounds=4, hidden=3 if kind is ModelKind.PERCEPTRON else 0, held_out=QUARTER)
    draw, fitting = np.random.default_rng(0), begin(training, study)
    while (step := fitting.next_step()) is not None:
        step_form(step, study)
        sums = answered(step, study, people(inputs, outcome, held_out=0.2), draw)
        fitting = fitting.advance(replace(sums, totals=sums.totals + size * draw.standard_normal(sums.totals.shape)))
    assert np.isfinite(fitting.fitted().weights).all()


def test_a_model_that_noise_drowns_stays_small() -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 50, 20)
    training = training_of(ModelKind.LOGISTIC, 20, epsilon=0.1)
    lengths = [
        np.linalg.norm(placed(fitted, training, study, inputs) @ fitted.weights) / math.sqrt(50)
        for fitted in (train(training, study, people(inputs, outcome), seed=seed).fitted() for seed in range(5))
    ]
    assert max(lengths) < 6


@pytest.mark.parametrize(
    "training",
    [
        training_of(ModelKind.LOGISTIC, 3, **ONLY_PRODUCTS),
        training_of(ModelKind.LOGISTIC, 3, moments=0.0, products=0.0),
        replace(training_of(ModelKind.LOGISTIC, 3), stages=training_of(ModelKind.LOGISTIC, 3).stages[::-1]),
    ],
    ids=["no gradients", "nobody counted", "backwards"],
)
def test_stages_that_make_no_model_are_refused(training: Training) -> None:
    with pytest.raises(QueryMistaken):
        begin(training, study_of(3))


def test_gradients_use_the_scale_that_products_made_more_exact() -> None:
    study, inputs, outcome = drawn(ModelKind.LOGISTIC, 3000, 3)
    inputs[:, 2] *= 0.1
    steps = steps_of(training_of(ModelKind.LOGISTIC, 3, rounds=2), study, people(inputs, outcome), seed=1)
    rough, better = unpack(steps[1].spread)[2], unpack(steps[2].spread)[2]
    true = inputs[:, 2].std() / 4
    ordinary = unpack(steps[2].spread)[1] / (inputs[:, 1].std() / 4)
    assert abs(better / true - ordinary) < abs(rough / true - ordinary)
