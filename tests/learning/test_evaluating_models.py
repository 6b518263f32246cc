"""Metrics from noised tables of scores: near the truth, as far as their errors say."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from tests.learning.sums import Array
from wardround.analyst.learning.evaluating import binary_metrics, doubts, edges_of, numeric_metrics
from wardround.analyst.learning.fitted import Metric, RoundSums
from wardround.federation.step_form import SCORE_BINS, Input

PATIENTS = 2_000
TARGET = Input("los", "los", 0.0, 30.0)


def cells(scores: Array, outcome: Array, edges: tuple[float, ...], noise: Array, noise_sd: float) -> RoundSums:
    place = 2 * np.searchsorted(np.array(edges), scores, side="right") + outcome.astype(int)
    return RoundSums((np.bincount(place, minlength=2 * SCORE_BINS) + noise)[np.newaxis], {}, 1, noise_sd)


def people(draw: np.random.Generator, patients: int = PATIENTS) -> tuple[Array, Array]:
    scores = -1.0 + 1.5 * draw.standard_normal(patients)
    return scores, (draw.random(patients) < 1 / (1 + np.exp(-scores))).astype(np.float64)


def truths() -> dict[str, float]:
    """Of so many patients that sampling hardly matters."""
    scores, outcome = people(np.random.default_rng(0), 1_000_000)
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
        scores, outcome = people(draw)
        noise = noise_sd * draw.standard_normal(2 * SCORE_BINS)
        for metric in binary_metrics(cells(scores, outcome, edges, noise, noise_sd), edges):
            found[metric.name].append(metric)
    for name, metrics in found.items():
        apart = np.array([(metric.value - truth[name]) / metric.standard_error for metric in metrics])
        # Bins blur scores a little, which a bias of half a standard error leaves room for.
        assert abs(apart.mean()) < 0.5, name
        assert 0.8 < apart.std() < 1.25, name


def test_numeric_metrics_err_as_much_as_they_say() -> None:
    draw, noise_sd = np.random.default_rng(2), 4.0
    found: dict[str, list[Metric]] = {"rmse": [], "r2": []}
    for _ in range(200):
        signal, error = 2.0 * draw.standard_normal(PATIENTS), 2.0 * draw.standard_normal(PATIENTS)
        outcome = np.clip(15.0 + signal + error, 0.0, 30.0)
        e, t = error / 30.0, outcome / 30.0
        sums = np.array([PATIENTS, (e**2).sum(), t.sum(), (t**2).sum()]) / 2 + noise_sd * draw.standard_normal(4)
        for metric in numeric_metrics(RoundSums(sums[np.newaxis], {}, 1, noise_sd), TARGET):
            found[metric.name].append(metric)
    for name, truth in (("rmse", 2.0), ("r2", 0.5)):
        apart = np.array([(metric.value - truth) / metric.standard_error for metric in found[name]])
        assert 0.6 < math.sqrt(float(np.mean(apart**2))) < 1.35, name


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
        *binary_metrics(sums, edges_of(0.0, 1.0)),
        *numeric_metrics(RoundSums(np.array([values[:4]]), {}, 1, noise_sd), TARGET),
    ):
        assert math.isfinite(metric.value)
        assert math.isfinite(metric.standard_error)
        if metric.name in ("auc", "accuracy", "brier"):
            assert 0.0 <= metric.value <= 1.0


@pytest.mark.parametrize(("noise_sd", "believed"), [(0.1, True), (100.0, False)])
def test_a_metric_that_noise_drowns_is_said_to_say_little(noise_sd: float, *, believed: bool) -> None:
    sums = np.array([[1000.0, 10.0, 500.0, 300.0]]) / 2
    found = numeric_metrics(RoundSums(sums, {}, 1, noise_sd), TARGET)
    assert (doubts(found) == ()) is believed
