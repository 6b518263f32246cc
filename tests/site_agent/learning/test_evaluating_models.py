"""Metrics from noised tables of scores: near the truth, as far as their errors say."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from tests.site_agent.learning.sums import Array, people, study_of, train, training_of
from wardround.analyst.estimation.fitted import Metric, RoundSums
from wardround.analyst.learning.evaluating import binary_metrics, doubts, edges_of, numeric_metrics
from wardround.federation.models.logistic import chance
from wardround.federation.models.step_layout import LENGTH, SCORE_BINS
from wardround.federation.models.training import ModelKind
from wardround.federation.question.answer import NoEstimate

PATIENTS = 2_000


def cells(scores: Array, outcome: Array, edges: tuple[float, ...], noise: Array, noise_sd: float) -> RoundSums:
    place = 2 * np.searchsorted(np.array(edges), scores, side="right") + outcome.astype(int)
    return RoundSums((np.bincount(place, minlength=2 * SCORE_BINS) + noise)[np.newaxis], {}, 1, noise_sd)


def scored(draw: np.random.Generator, patients: int = PATIENTS) -> tuple[Array, Array]:
    scores = -1.0 + 1.5 * draw.standard_normal(patients)
    return scores, (draw.random(patients) < 1 / (1 + np.exp(-scores))).astype(np.float64)


def truths() -> dict[str, float]:
    """Of so many patients that sampling hardly matters."""
    scores, outcome = scored(np.random.default_rng(0), 1_000_000)
    chance = 1 / (1 + np.exp(-scores))
    ranks, yes = rankdata(scores), outcome.sum()
    return {
        "auc": (ranks[outcome == 1].sum() - yes * (yes + 1) / 2) / (yes * (len(scores) - yes)),
        "accuracy": float(np.mean((scores >= 0) == (outcome == 1))),
        "brier": float(np.mean((chance - outcome) ** 2)),
        "calibration": 0.0,
    }


@pytest.mark.parametrize("noise_sd", [0.0, 4.0, 13.0])
def test_binary_metrics_err_as_much_as_they_say(noise_sd: float) -> None:
    draw, truth = np.random.default_rng(1), truths()
    edges = edges_of(-1.0, 1.5)
    found: dict[str, list[Metric]] = {name: [] for name in truth}
    for _ in range(150):
        scores, outcome = scored(draw)
        noise = noise_sd * draw.standard_normal(2 * SCORE_BINS)
        for metric in binary_metrics(cells(scores, outcome, edges, noise, noise_sd), edges, chance):
            found[metric.name].append(metric)
    for name, metrics in found.items():
        apart = np.array([(metric.value - truth[name]) / metric.standard_error for metric in metrics])
        # Bins blur scores a little, which a bias of half a standard error leaves room for.
        assert abs(apart.mean()) < 0.5, name
        assert 0.8 < apart.std() < 1.25, name


@pytest.mark.parametrize("noise_sd", [0.0, 4.0, 13.0])
@pytest.mark.parametrize("middle", [15.0, 15.5])
def test_numeric_metrics_err_as_much_as_they_say(noise_sd: float, middle: float) -> None:
    # The spread of the outcome is 2.8, as it was released; its mean may have been released a little wrong.
    draw, reach = np.random.default_rng(2), 3 * math.sqrt(8.0)
    found: dict[str, list[Metric]] = {"rmse": [], "r2": []}
    for _ in range(200):
        signal, error = 2.0 * draw.standard_normal(PATIENTS), 2.0 * draw.standard_normal(PATIENTS)
        outcome = middle + signal + error
        e, t = np.clip(error / reach, -1, 1), np.clip((outcome - 15.0) / reach, -1, 1)
        sums = np.array([PATIENTS, (e**2).sum(), t.sum(), (t**2).sum()]) / 2 + noise_sd * draw.standard_normal(4)
        for metric in numeric_metrics(RoundSums(sums[np.newaxis], {}, 1, noise_sd), reach):
            found[metric.name].append(metric)
    for name, truth in (("rmse", 2.0), ("r2", 0.5)):
        apart = np.array([(metric.value - truth) / metric.standard_error for metric in found[name]])
        assert abs(apart.mean()) < 0.5, name
        assert 0.8 < apart.std() < 1.25, name


@pytest.mark.parametrize("kind", [ModelKind.LINEAR, ModelKind.POISSON])
def test_wide_bounds_do_not_drown_what_a_model_explains(kind: ModelKind) -> None:
    """Eight thousand patients at four sites with a noise each, a quarter of them held out, and bounds of 0 to 60."""
    draw, sites, patients = np.random.default_rng(4), 4, 8_000
    inputs = np.clip(draw.standard_normal((patients, 3)), -4, 4)
    score = inputs @ (0.5, -0.3, 0.2)
    if kind is ModelKind.LINEAR:
        target = np.clip(20.0 + 6.0 * score + 3.0 * draw.standard_normal(patients), 0.0, 60.0)
    else:
        target = np.minimum(draw.poisson(np.exp(1.5 + score)).astype(np.float64), 60.0)
    everybody = people(inputs, target, sites=sites, held_out=0.25)
    study = study_of(3, target=(0.0, 60.0))
    linear = kind is ModelKind.LINEAR
    shares = {"moments": 0.1, "products": 0.9 if linear else 0.2, "clip": 1.0 if linear else 0.25}
    training = training_of(kind, 3, held_out=Fraction(1, 4), **shares)  # type: ignore[arg-type]
    exact = {each.name: each.value for each in train(training, study, everybody, noiseless=True).fitted().metrics}
    errors: dict[str, list[float]] = {"rmse": [], "r2": []}
    for seed in range(9):
        fitted = train(training, study, everybody, seed=seed).fitted()
        for metric in fitted.metrics:
            errors[metric.name].append(metric.standard_error)
            assert abs(metric.value - exact[metric.name]) < 4 * metric.standard_error, metric.name
        assert any("up to" in note for note in fitted.notes), "errors were cut, and it is said where"
    # Errors over the width of the bounds would be the square of 60/(3·spread) as noisy, 16 to 20 times here, and say
    # nothing: 5 of an rmse of 3. Where noise makes the released spread wider, some of that is lost again.
    noise = 2 * math.sqrt(sites) * float(training.stages[-1].scale) / LENGTH / (patients / 4)
    over_width = {"rmse": noise * 60.0**2 / (2 * exact["rmse"]), "r2": noise * 60.0**2 / float(target.var())}
    assert all(np.median(errors[name]) < wide / 10 for name, wide in over_width.items())


@pytest.mark.parametrize("spreads", [1.5, 2.0, 3.0, 6.0])
def test_what_the_cut_takes_from_normal_errors_is_given_back_and_not_all_of_a_long_tail(spreads: float) -> None:
    draw = np.random.default_rng(5)
    for law, least, most in (
        (draw.standard_normal(400_000), 0.99, 1.01),
        (draw.exponential(size=400_000) - 1.0, {1.5: 0.5, 2.0: 0.6, 3.0: 0.8, 6.0: 0.97}[spreads], 1.01),
    ):
        outcome, error = np.clip(law / spreads, -1, 1), np.clip(law / 2 / spreads, -1, 1)
        sums = np.array([[law.size, (error**2).sum(), outcome.sum(), (outcome**2).sum()]]) / 2
        rmse, r2 = numeric_metrics(RoundSums(sums, {}, 1, 0.0), spreads)
        assert least < (2 * rmse.value) ** 2 < most
        assert abs(r2.value - 0.75) < (0.01 if least > 0.9 else 0.15)


@given(
    st.floats(-1e6, 1e6),
    st.one_of(st.just(0.0), st.floats(1e-12, 1e6)),
)
def test_edges_rise_and_one_of_them_is_chance_one_half(middle: float, wide: float) -> None:
    edges = edges_of(middle, wide)
    assert len(edges) == SCORE_BINS - 1
    assert 0.0 in edges
    assert all(left < right for left, right in pairwise(edges))


@given(st.lists(st.floats(-1e9, 1e9), min_size=2 * SCORE_BINS, max_size=2 * SCORE_BINS), st.floats(0.0, 1e6))
def test_metrics_of_anything_are_numbers_in_their_range(values: list[float], noise_sd: float) -> None:
    sums = RoundSums(np.array([values]), {}, 1, noise_sd)
    for metric in (
        *binary_metrics(sums, edges_of(0.0, 1.0), chance),
        *numeric_metrics(RoundSums(np.array([values[:4]]), {}, 1, noise_sd), 4.5),
    ):
        if metric.reason is not None:
            assert (metric.value, metric.standard_error) == (None, None)
            continue
        assert math.isfinite(metric.value)
        assert math.isfinite(metric.standard_error)
        if metric.name in ("auc", "accuracy", "brier"):
            assert 0.0 <= metric.value <= 1.0


def test_metrics_of_nobody_are_none_and_the_reason_is_told() -> None:
    """They were 0 ± something, or 1: the noise of too few patients looked like a perfect model."""
    cells = np.array([np.linspace(1.0, 2.0, 2 * SCORE_BINS)])
    found = binary_metrics(RoundSums(cells, {}, 1, 10.0), edges_of(0.0, 1.0), chance)
    assert {(each.value, each.standard_error, each.reason) for each in found} == {(None, None, NoEstimate.TOO_FEW)}
    (told,) = doubts(found)
    assert told.startswith(
        "no estimate of auc and accuracy and brier and calibration on held-out patients: too few patients"
    )
    # Many patients whose outcomes hardly differ: an error, but no share of a variance.
    root, share = numeric_metrics(RoundSums(np.array([[500.0, 5.0, 0.0, 0.5]]), {}, 1, 5.0), 4.5)
    assert root.value is not None
    assert (share.value, share.reason) == (None, NoEstimate.NO_SPREAD)


@pytest.mark.parametrize(("noise_sd", "believed"), [(0.1, True), (100.0, False)])
def test_a_metric_that_noise_drowns_is_said_to_say_little(noise_sd: float, *, believed: bool) -> None:
    sums = np.array([[1000.0, 50.0, 10.0, 110.0]]) / 2
    found = numeric_metrics(RoundSums(sums, {}, 1, noise_sd), 4.5)
    assert (doubts(found) == ()) is believed


def test_an_auc_that_may_be_anything_is_said_to_say_little() -> None:
    """1.0 ± 1.0 looks perfect."""
    told = doubts((Metric("auc", 1.0, 1.0), Metric("accuracy", 1.0, 0.66), Metric("brier", 0.0, 0.6)))
    assert told == ("too few held-out patients for the noise: auc and accuracy say little; see the standard error",)
    assert doubts((Metric("auc", 0.71, 0.1), Metric("accuracy", 0.9, 0.02))) == ()
