"""The error bars tell the truth: noise as drawn by the pipeline, and whole questions asked many times.

Every band is wide enough that a right program would leave it less than once in a million runs; the first test
computes those chances from the laws. The noise is the true one, and falls the same way in every run.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.simulation.hospitals_on_disk import random_rows, study_text, write_site
from tests.site_agent.lone_site import LoneSite, Rows
from wardround.analyst.showing.result import Result
from wardround.federation.forms.release import decode_release
from wardround.federation.plan.task import Released
from wardround.federation.study.study_file import parse_study
from wardround.privacy.budget.filter import Cap
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.sampler import SecureNoise, prefers_table
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.sites import find_sites
from wardround.simulation.trial import Trial, run_trials

DRAWS = 100_000
ASKS = 2_000
FALSE_ALARM = 1e-6
SLOW = pytest.mark.slow
pytestmark = pytest.mark.usefixtures("same_noise")


def deviates(*, numbers: int, kurtosis: float, tolerance: float) -> float:
    """The chance that the standard deviation of so many numbers is off by `tolerance`, by the normal limit."""
    return 2 * float(stats.norm.sf(2 * tolerance / math.sqrt((kurtosis - 1) / numbers)))


def test_a_right_program_fails_these_tests_less_than_once_in_a_million() -> None:
    covered = stats.binom(ASKS, 0.95)
    assert covered.cdf(0.925 * ASKS - 1) + covered.sf(0.975 * ASKS) < FALSE_ALARM
    # One Gaussian has kurtosis 3; one Laplace 6, the sum of two 4.5.
    assert deviates(numbers=DRAWS, kurtosis=3, tolerance=0.03) < FALSE_ALARM
    assert deviates(numbers=DRAWS, kurtosis=6, tolerance=0.03) < FALSE_ALARM
    assert deviates(numbers=ASKS, kurtosis=3, tolerance=0.10) < FALSE_ALARM
    assert deviates(numbers=2 * ASKS, kurtosis=4.5, tolerance=0.10) < FALSE_ALARM


# --- the pipeline's noise step ------------------------------------------------------------------------------


def wide_study(groups: int) -> str:
    """A study whose question has many groups, so that one release holds many draws."""
    values = ", ".join(f'"{number}"' for number in range(groups))
    return (
        'name = "wide"\noverlap = 1\n[budget]\nepsilon = 1000.0\ndelta = 1e-6\npure_epsilon = 900.0\n'
        '[tables.visits]\nunit_key = "patient_id"\nmax_rows_per_unit = 1\n[tables.visits.columns]\n'
        f'code = {{ type = "category", values = [{values}] }}\n'
        'sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }\n'
    )


def released(site: LoneSite, sql: str, mechanism: Mechanism, *, nonce: str = "") -> tuple[np.ndarray, float]:
    """The integers of one release of nothing, which are its noise, and the deviation that the plan promises."""
    plan = site.plan(sql, epsilon=1.0, mechanism=mechanism, nonce=nonce)
    kept = site.pipeline.run(site.task(plan))
    assert isinstance(kept, Released)
    return decode_release(kept.payload).values, math.sqrt(plan.laws()[0].variance)


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_hundred_thousand_draws_of_the_pipeline_deviate_as_reported(tmp_path: Path, mechanism: Mechanism) -> None:
    site = LoneSite(
        tmp_path, study=wide_study(DRAWS), noise=SecureNoise(), rows=Rows(total=0), max_epsilon_per_plan=9.0
    )
    values, deviation = released(site, "SELECT code, COUNT(*) FROM visits GROUP BY code", mechanism)
    assert values.size == DRAWS
    assert np.std(values) == pytest.approx(deviation, rel=0.03)
    assert abs(np.mean(values)) < 6 * deviation / math.sqrt(DRAWS)
    site.ledger.close()


@pytest.mark.parametrize("mechanism", Mechanism)
def test_draws_of_many_small_releases_deviate_as_reported(tmp_path: Path, mechanism: Mechanism) -> None:
    """Small releases are drawn by another sampler than large ones; a mean's grid is fine and its noise wide."""
    site = LoneSite(tmp_path, study=wide_study(DRAWS // 40), noise=SecureNoise(), max_epsilon_per_plan=9.0)
    sql = "SELECT code, AVG(sbp) FROM visits GROUP BY code"
    parts = [released(site, sql, mechanism, nonce=f"{number:02x}") for number in range(20)]
    values = np.concatenate([part for part, _ in parts]).astype(np.float64)
    assert values.size == DRAWS
    assert not prefers_table(site.plan(sql, epsilon=1.0, mechanism=mechanism).laws()[0], DRAWS // 20)
    assert np.std(values) == pytest.approx(parts[0][1], rel=0.03)
    site.ledger.close()


# --- whole questions ----------------------------------------------------------------------------------------


def errors(results: list[Result], truth: Result, index: int) -> tuple[np.ndarray, float]:
    """(answer − truth)/reported standard error of one number in every run, and how often its interval covers."""
    true = truth.answer.estimates[index].value
    found = [result.answer.estimates[index] for result in results]
    covered = np.mean([low <= true <= high for low, high in (estimate.interval for estimate in found)])
    return np.array([(estimate.value - true) / estimate.standard_error for estimate in found]), float(covered)


def ask_often(
    folder: Path, sql: str, *, epsilon: float, asks: int, pure: float = 0.0, patients: int = 60
) -> tuple[list[Result], Result]:
    for seed, name in enumerate(("north", "south")):
        write_site(folder / name, random_rows(seed, patients=patients, most=2))
    # One federation with a budget for all of them: asked afresh, each answer is another plan with noise of its own.
    study = dataclasses.replace(parse_study(study_text(rows=2)), cap=Cap(9000.0, 1e-6, pure))
    (truth,) = run_trials(study, folder, Trial(sql, epsilon=epsilon, noiseless=True))
    sites = {name: SimulatedSite(dataset, patients=2 * patients) for name, dataset in find_sites(folder, study).items()}
    (folder / "ledgers").mkdir()
    federation = SimulatedFederation(study, sites, folder=folder / "ledgers")
    try:
        return [federation.client.ask(sql, epsilon=epsilon, fresh=True) for _ in range(asks)], truth
    finally:
        federation.close()


@pytest.mark.parametrize(("asks", "by"), [(ASKS // 4, "diagnosis"), pytest.param(ASKS, "", marks=SLOW)])
def test_counts_and_means_err_as_reported_under_gaussian_noise(tmp_path: Path, asks: int, by: str) -> None:
    """Every group has a noise of its own: 500 asks of four groups are 2,000 numbers, as 2,000 asks of the whole are."""
    sql = (
        f"SELECT {by}, COUNT(*), AVG(sbp) FROM encounters GROUP BY {by}"
        if by
        else "SELECT COUNT(*), AVG(sbp) FROM encounters"
    )
    # Enough of them that no group's mean is lost in the noise.
    results, truth = ask_often(tmp_path, sql, epsilon=5.0, asks=asks, patients=600)
    assert {result.answer.privacy.mechanism for result in results} == {"discrete_gaussian"}
    assert len({result.answer.estimates[0].value for result in results}) > asks / 4
    for statistic in ("count", "mean"):
        places = [place for place, each in enumerate(truth.answer.estimates) if each.statistic == statistic]
        assert asks * len(places) == ASKS
        groups = [errors(results, truth, place) for place in places]
        deviations = np.concatenate([found for found, _ in groups])
        assert np.std(deviations) == pytest.approx(1.0, rel=0.10)
        assert abs(np.mean(deviations)) < 6 / math.sqrt(ASKS)
        assert 0.925 <= np.mean([covered for _, covered in groups]) <= 0.975


@pytest.mark.parametrize(("asks", "by"), [(ASKS // 4, "diagnosis, urgent"), pytest.param(ASKS, "urgent", marks=SLOW)])
def test_counts_err_as_reported_under_laplace_noise(tmp_path: Path, asks: int, by: str) -> None:
    """Every group has a noise of its own: 500 asks of eight groups are 4,000 numbers, as 2,000 asks of two are."""
    sql = f"SELECT {by}, COUNT(*) FROM encounters GROUP BY {by}"
    results, truth = ask_often(tmp_path, sql, epsilon=1.0, asks=asks, pure=4000.0)
    assert {result.answer.privacy.mechanism for result in results} == {"discrete_laplace"}
    groups = [errors(results, truth, index) for index in range(len(truth))]
    assert asks * len(groups) == 2 * ASKS
    assert np.std(np.concatenate([deviations for deviations, _ in groups])) == pytest.approx(1.0, rel=0.10)
    assert 0.925 <= np.mean([covered for _, covered in groups]) <= 0.975
