"""A site whose totals no table gives is left out and named; one that is merely large, or unlucky, never is."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coordinator.rounds.combining import CHANCE, impossible, least_totals
from tests.coordinator.hospitals import oracle
from tests.federation.statistics.cohorts import Aggregate, Experiment, Statistic
from wardround.analyst.showing.result import Result
from wardround.federation.errors import TooFewSites
from wardround.federation.forms.release import Release
from wardround.privacy.inference.error_bars import passed_with_chance
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

END = 2**61


@pytest.mark.parametrize("total", [-(10**9), -(2**63), END + 1, 2**63 - 1])
def test_an_impossible_total_is_left_out_and_its_site_is_named(tmp_path: Path, total: int) -> None:
    world = oracle(tmp_path)
    two = world.hospitals["two"]
    two.values = lambda plan: np.array([total])  # type: ignore[method-assign]
    answer = world.ask()
    # 111 without the ten of site two.
    assert answer.estimates[0].value == 101
    assert (answer.answered, answer.left_out, answer.missing) == (("one", "three"), ("two",), ())
    assert "Left out: two; it sent totals that no table can give" in str(Result(answer))
    assert "Left out: two" in Result(answer)._repr_html_()
    assert json.loads(json.dumps(Result(answer).document()))["sites"]["left_out"] == ["two"]
    world.restart()
    again = world.watch(answer.plan_id)
    assert dataclasses.replace(again, replayed=answer.replayed) == answer
    assert world.verified().valid


def test_more_patients_than_a_site_declared_are_no_fault(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    two = world.hospitals["two"]
    two.values = lambda plan: np.array([64 * 10**9])  # type: ignore[method-assign]
    answer = world.ask()
    assert (answer.left_out, answer.estimates[0].value) == ((), 10**9 + 101)


def test_without_it_too_few_may_be_left_and_the_refusal_names_it(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=3)
    world.hospitals["two"].values = lambda plan: np.array([-(2**60)])  # type: ignore[method-assign]
    with pytest.raises(TooFewSites, match=r"2 of 3 sites answered.*left out: two.*--fresh"):
        world.ask()
    world.restart()
    with pytest.raises(TooFewSites, match="left out: two"):
        world.ask()


def edge(*aggregates: Aggregate, pure: bool = False) -> tuple[Experiment, np.ndarray]:
    experiment = Experiment.of(*aggregates, sites=2, pure=pure)
    return experiment, least_totals(experiment.plan, experiment.form)


def left_out(experiment: Experiment, values: np.ndarray) -> bool:
    release = Release(experiment.plan.plan_id, "s0", "2026-01-01", values)
    return impossible(experiment.plan, experiment.form, [release]) == ("s0",)


EVERY = {
    "count": (Aggregate(Statistic.COUNT, "patient_id"),),
    "sum above nought": (Aggregate(Statistic.SUM, "sbp"),),
    "sum of either sign": (Aggregate(Statistic.SUM, "cost"),),
    "mean": (Aggregate(Statistic.MEAN, "sbp"),),
    "moments": (Aggregate(Statistic.VARIANCE, "sbp"),),
    "products": (Aggregate(Statistic.CORRELATION, "sbp", ("age",)),),
    "tree": (Aggregate(Statistic.QUANTILE, "age", level=0.5),),
    "survival": (Aggregate(Statistic.SURVIVAL, "months", ("died",)),),
    "table": (Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",)),),
    "two parts": (Aggregate(Statistic.COUNT, "patient_id"), Aggregate(Statistic.HISTOGRAM, "sbp", bins=4)),
}
SIGNED = {"sum of either sign": [0], "moments": [1, 2], "products": [1, 2, 4]}


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_every_number_has_an_end_of_its_own(name: str, pure: bool) -> None:
    experiment, lowest = edge(*EVERY[name], pure=pure)
    assert not left_out(experiment, lowest)
    assert np.flatnonzero(lowest == -END).tolist() == SIGNED.get(name, [])
    for place in {0, lowest.size // 2, lowest.size - 1}:
        below, above = lowest.copy(), lowest.copy()
        below[place] -= 1
        above[place] = END + 1
        assert left_out(experiment, below)
        assert left_out(experiment, above)
        above[place] = END
        assert not left_out(experiment, above)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(7, 2), Fraction(40)])
@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("chance", [0.01, 1e-6, CHANCE, CHANCE / 4_000_000])
def test_noise_passes_the_end_with_that_chance_and_a_nearer_one_more_often(
    mechanism: Mechanism, scale: Fraction, chance: float
) -> None:
    """By adding up the law itself."""
    end = passed_with_chance(NoiseDistribution(mechanism, scale), chance)
    width = float(scale)
    power = 2 if mechanism is Mechanism.DISCRETE_GAUSSIAN else 1

    def weight(number: int) -> float:
        return math.exp(-((number / width) ** 2) / 2) if power == 2 else math.exp(-number / width)

    whole = 1.0 + 2.0 * math.fsum(weight(number) for number in range(1, 4000))
    beyond = math.fsum(weight(number) for number in range(end + 1, end + 4000)) / whole
    assert beyond <= chance
    nearer = max(end - math.ceil(0.1 * end) - 3, 0)
    assert math.fsum(weight(number) for number in range(nearer, nearer + 4000)) / whole > chance


def test_an_end_is_for_all_numbers_of_a_release_together() -> None:
    one, few = edge(Aggregate(Statistic.HISTOGRAM, "sbp", bins=1))
    many, lots = edge(Aggregate(Statistic.HISTOGRAM, "sbp", bins=1000))
    assert one.plan.scales == many.plan.scales
    law = many.plan.laws()[0]
    assert few[0] == -passed_with_chance(law, CHANCE)
    assert set(lots.tolist()) == {-passed_with_chance(law, CHANCE / 1000)}
