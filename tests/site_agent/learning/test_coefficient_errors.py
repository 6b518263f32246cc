"""Intervals of coefficients cover the truth about as often as they say, because they know of sampling and of noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.site_agent.learning.sums import Array, People, people, study_of, train, training_of
from wardround.analyst.estimation.fitted import Fitted
from wardround.federation.models.training import ModelKind, Training
from wardround.federation.study.study import Study

REPEATS = 30
FEATURES = 4
TRUTH = np.array([-0.6, 0.5, -0.4, 0.3, 0.6])
SHARES = {
    ModelKind.LOGISTIC: {"clip": 0.5},
    ModelKind.LINEAR: {"moments": 0.1, "products": 0.9},
    ModelKind.POISSON: {"moments": 0.1, "clip": 0.25},
}


def setting(kind: ModelKind, *, patients: int, seed: int) -> tuple[Study, Training, People]:
    draw = np.random.default_rng(seed)
    mixing = np.linalg.cholesky(0.4 ** np.abs(np.subtract.outer(range(FEATURES), range(FEATURES))))
    inputs = np.clip(draw.standard_normal((patients, FEATURES)) @ mixing.T, -4, 4)
    inputs[:, 0] = inputs[:, 0] > 0.3
    score = TRUTH[0] + inputs @ TRUTH[1:]
    target = {ModelKind.LINEAR: (-10.0, 10.0), ModelKind.POISSON: (0.0, 30.0)}.get(kind)
    match kind:
        case ModelKind.LINEAR:
            outcome = np.clip(score + draw.standard_normal(patients), -10, 10)
        case ModelKind.POISSON:
            outcome = np.minimum(draw.poisson(np.exp(score)), 30).astype(np.float64)
        case _:
            outcome = (draw.random(patients) < 1 / (1 + np.exp(-score))).astype(np.float64)
    training = training_of(kind, FEATURES, epsilon=1.0, **SHARES[kind])
    return study_of(FEATURES, binary=1, target=target), training, people(inputs, outcome, sites=4)


def errors_in_standard_errors(fits: list[Fitted]) -> Array:
    return np.array(
        [[(each.value - t) / each.standard_error for each, t in zip(f.coefficients, TRUTH, strict=True)] for f in fits]
    )


@pytest.mark.parametrize("kind", list(SHARES))
@pytest.mark.parametrize("patients", [2_000, 12_000])
def test_intervals_cover_the_truth_about_as_often_as_they_say(kind: ModelKind, patients: int) -> None:
    fits = []
    for seed in range(REPEATS):
        study, training, everybody = setting(kind, patients=patients, seed=seed)
        fits.append(train(training, study, everybody, seed=seed).fitted())
    found = errors_in_standard_errors(fits)
    covered = np.mean(
        [
            [each.interval[0] <= t <= each.interval[1] for each, t in zip(f.coefficients, TRUTH, strict=True)]
            for f in fits
        ]
    )
    # 150 intervals: 95 % would be missed by these ends less than once in ten thousand times.
    assert 0.87 <= covered <= 0.995
    assert 0.6 < math.sqrt(np.mean(found**2)) < 1.35


def test_intervals_that_do_not_know_of_noise_cover_too_seldom() -> None:
    ignorant = []
    for seed in range(REPEATS):
        study, training, everybody = setting(ModelKind.LOGISTIC, patients=2_000, seed=seed)
        fits = train(training, study, everybody, seed=seed).fitted()
        without = train(training, study, everybody, seed=seed, noiseless=True).fitted()
        ignorant.append(
            replace(
                fits,
                coefficients=tuple(
                    replace(own, standard_error=other.standard_error)
                    for own, other in zip(fits.coefficients, without.coefficients, strict=True)
                ),
            )
        )
    assert np.mean(np.abs(errors_in_standard_errors(ignorant)) < 1.96) < 0.85


def test_coefficients_are_named_after_columns_and_the_intercept_is_first() -> None:
    study, training, everybody = setting(ModelKind.LOGISTIC, patients=500, seed=0)
    fitted = train(training, study, everybody).fitted()
    assert [each.name for each in fitted.coefficients] == ["(intercept)", "x0", "x1", "x2", "x3"]
    for each in fitted.coefficients:
        low, high = each.interval
        assert (low + high) / 2 == pytest.approx(each.value)
        assert (high - low) / 2 == pytest.approx(1.96 * each.standard_error, rel=1e-3)


def test_more_privacy_gives_wider_intervals() -> None:
    widths = []
    for epsilon in (3.0, 1.0, 0.3):
        study, training, everybody = setting(ModelKind.LINEAR, patients=3_000, seed=1)
        training = training_of(ModelKind.LINEAR, FEATURES, epsilon=epsilon, **SHARES[ModelKind.LINEAR])
        widths.append(
            np.mean([each.standard_error for each in train(training, study, everybody).fitted().coefficients])
        )
    assert widths == sorted(widths)
