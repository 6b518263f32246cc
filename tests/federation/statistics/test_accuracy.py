"""The accuracy that is promised: the median of 20,000 patients in ten hospitals at ε = 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.federation.statistics.cohorts import SITES, SUM, Aggregate, Experiment, Statistic
from wardround.federation.question.answer import Estimate

HOSPITALS, PEOPLE, RUNS = 10, 20_000, 250


def pressures() -> np.ndarray:
    return np.round(np.clip(np.random.default_rng(7).normal(128, 18, PEOPLE), 80, 200), 1)


def medians(*, sites: int, level: float = 0.5) -> tuple[Estimate, ...]:
    """The medians of the same patients through independent noise: one noise, or one for every site."""
    asked = Aggregate(Statistic.QUANTILE, "sbp", level=level)
    exact = Experiment.of(asked).totals({"sbp": pressures()})
    many = Experiment.of(asked, runs=RUNS, sites=HOSPITALS)
    return many.ask(np.tile(exact, RUNS), seed=17, sites=sites, setting=SUM if sites == 1 else SITES)


def rmse(estimates: tuple[Estimate, ...], truth: float) -> float:
    return math.sqrt(sum((e.value - truth) ** 2 for e in estimates) / len(estimates))


def test_the_median_is_within_a_tenth_and_noise_at_ten_sites_costs_the_root_of_ten() -> None:
    truth = float(np.quantile(pressures(), 0.5, method="inverted_cdf"))
    once, everywhere = medians(sites=1), medians(sites=HOSPITALS)
    assert rmse(once, truth) <= 0.1
    assert rmse(everywhere, truth) <= 0.1 * math.sqrt(HOSPITALS)
    # In steps of a tenth the grain hides part of the ratio.
    ratio = np.std([e.value for e in everywhere]) / np.std([e.value for e in once])
    assert ratio == pytest.approx(math.sqrt(HOSPITALS), rel=0.35)


def test_an_extreme_quantile_is_within_a_millimetre() -> None:
    truth = float(np.quantile(pressures(), 0.99, method="inverted_cdf"))
    assert rmse(medians(sites=1, level=0.99), truth) <= 1.0
