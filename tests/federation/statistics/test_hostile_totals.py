"""Whatever sites send, every number of every statistic is finite, inside its interval and inside its bounds."""

from __future__ import annotations

import math
from functools import lru_cache

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from coordinator.rounds.combining import combine
from tests.federation.statistics.cohorts import EXACT, SITES, SUM, Aggregate, Experiment, Statistic
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.question.answer import Estimate

ASKED = {
    "spread": [Aggregate(s, "sbp") for s in (Statistic.MEAN, Statistic.VARIANCE, Statistic.STD)],
    "quantile": [Aggregate(Statistic.QUANTILE, "age", level=level) for level in (0.001, 0.5, 0.999)],
    "quantile without steps": [Aggregate(Statistic.QUANTILE, "bmi", level=0.5)],
    "histogram": [Aggregate(Statistic.HISTOGRAM, "cost", bins=7), Aggregate(Statistic.BELOW, "sbp", level=140.0)],
    "chi_square": [Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",))],
    "choice": [Aggregate(Statistic.CHOICE, "diagnosis")],
    "correlation": [Aggregate(Statistic.CORRELATION, "sbp", ("age", "smoker", "bmi"))],
    "regression": [Aggregate(Statistic.REGRESSION, "sbp", ("age", "smoker", "bmi"))],
    "survival": [Aggregate(Statistic.SURVIVAL, "months", ("died",))],
}
BOUNDS = {
    "mean": (80.0, 200.0),
    "variance": (0.0, 3600.0),
    "std": (0.0, 60.0),
    "below": (0.0, 1.0),
    "correlation": (-1.0, 1.0),
    "quantile": (0.0, 110.0),
}


@lru_cache
def experiment(name: str, epsilon: float, pure: bool) -> Experiment:
    return Experiment.of(*ASKED[name], epsilon=epsilon, pure=pure)


def check(estimates: tuple[Estimate, ...]) -> None:
    for e in estimates:
        assert all(math.isfinite(end) for end in e.interval), e
        if e.reason is None:
            assert math.isfinite(e.value), e
            assert e.interval[0] <= e.value <= e.interval[1], e
            assert 0.0 <= e.standard_error < math.inf, e
        else:
            assert (e.value, e.standard_error) == (None, None), e
        low, high = BOUNDS.get(e.statistic, (-math.inf, math.inf))
        if e.term in ("p_value", "r_squared") or (e.statistic == "survival" and e.term.isdigit()):
            low, high = 0.0, 1.0
        if e.term.endswith(" at risk"):
            low = 0.0
        assert low - 1e-9 <= e.interval[0] <= e.interval[1] <= high + 1e-9, e


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("setting", [EXACT, SITES, SUM], ids=["noiseless", "sites", "sum"])
def test_nobody_at_all_is_an_answer(name: str, setting: NoiseSetting) -> None:
    asked = experiment(name, 1.0, False)
    check(combine(asked.plan, asked.form, [np.zeros(asked.form.dimension, dtype=np.int64)] * 2, setting=setting))


@pytest.mark.parametrize("name", ASKED)
@hypothesis.given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0, 3, 10**4, 10**9, 2**40, 2**63 - 1]),
    shift=st.sampled_from([-1, 0, 1]),
    epsilon=st.sampled_from([0.001, 1.0, 50.0]),
    pure=st.booleans(),
    setting=st.sampled_from([EXACT, SITES, SUM]),
)
@hypothesis.settings(max_examples=25)
def test_whatever_sites_send_is_an_answer(
    name: str, seed: int, size: int, shift: int, epsilon: float, pure: bool, setting: NoiseSetting
) -> None:
    asked = experiment(name, epsilon, pure)
    draw = np.random.default_rng(seed)
    low, high = (-size if shift <= 0 else 0), (size if shift >= 0 else 0)
    release = draw.integers(low, high, asked.form.dimension, endpoint=True)
    check(combine(asked.plan, asked.form, [release, release], setting=setting))


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("people", [1, 2, 5])
def test_a_handful_of_patients_through_heavy_noise_is_an_answer(name: str, people: int) -> None:
    asked = experiment(name, 0.01, False)
    columns = {
        "age": np.full(people, 110),
        "sbp": np.full(people, 80.0),
        "bmi": np.full(people, 60.0),
        "cost": np.full(people, 9000.0),
        "smoker": np.ones(people),
        "diagnosis": np.full(people, "C50"),
        "ward": np.full(people, "south"),
        "months": np.zeros(people),
        "died": np.ones(people),
    }
    totals = asked.totals(columns)
    check(asked.ask(totals))
    for seed in range(5):
        check(asked.ask(totals, seed=seed))
