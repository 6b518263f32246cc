"""Edges that intervals and margins have, each pinned, and the mutants that would move them: every one is noticed."""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.federation.statistics.cohorts import Aggregate, Experiment, Statistic, study
from wardround.federation.forms.definition import Received
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NORMAL, NoiseSetting, TotalNoise, noise_of
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Loss
from wardround.privacy.accounting.gaussian_dp import epsilon_of, mu_of
from wardround.privacy.budget.calibration import without_slack
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.noise.distribution import Mechanism

ROOT = Path(__file__).parents[3]


def pins_the_noise_in_an_area(evaluating: types.ModuleType) -> None:
    """By central differences: what each cell's noise does to the area, beside Hanley and McNeil's sampling."""
    no, yes = np.linspace(60.0, 5.0, 16), np.linspace(4.0, 70.0, 16)
    sd, step = 3.0, 1e-4

    def area(cells: np.ndarray) -> float:
        without, outcome = cells[:16], cells[16:]
        below = np.cumsum(without) - without / 2
        return float(outcome @ below) / (without.sum() * outcome.sum())

    at = np.concatenate((no, yes))
    slopes = [(area(at + moved) - area(at - moved)) / (2 * step) for moved in np.eye(32) * step]
    a, n, m = area(at), no.sum(), yes.sum()
    sampling = a * (1 - a) + (m - 1) * (a / (2 - a) - a**2) + (n - 1) * (2 * a**2 / (1 + a) - a**2)
    metric = evaluating._area(no, yes, sd)
    assert metric.value == pytest.approx(a)
    exact = math.sqrt(sd**2 * float(np.square(slopes).sum()) + sampling / (n * m))
    assert metric.standard_error == pytest.approx(exact, rel=1e-5)


def pins_both_ends_of_a_variance(spread: types.ModuleType) -> None:
    """At each end the distance from the plain variance is the noise's reach there; above, M₁'s own as well."""
    for number, first, second in ((800.0, -430.0, -90.0), (300.0, 20.0, -60.0)):
        noise = TotalNoise(3.0, NORMAL)
        found = spread.Moments(number, first, second, noise).variance()
        mean, reach = first / number, NORMAL * 3.0
        plain = second / number + 0.5 - mean**2

        def reached(end: float, mean: float = mean, number: float = number, reach: float = reach) -> float:
            return reach * math.sqrt(1.0 + 4.0 * mean**2 + (0.5 + mean**2 - end) ** 2) / number

        low, high = found.ends[0], found.ends[1] - (reach / number) ** 2
        assert plain - low == pytest.approx(reached(low), rel=1e-9)
        assert high - plain == pytest.approx(reached(high), rel=1e-9)


def pins_both_ends_of_a_keys_count(keys: types.ModuleType) -> None:
    """Far above the threshold the noise's own reach on each side; near it, and at a handful, as low as it may be."""
    experiment = Experiment.of(Aggregate(Statistic.KEYS, "run"), sites=2)
    (law,), (part,), threshold = experiment.plan.laws(), experiment.form.parts, experiment.plan.threshold
    step, sigma = part.increment, float(law.scale)

    def interval(*numbers: int, plan: Plan = experiment.plan) -> tuple[float, tuple[float, float]]:
        releases = [
            Release(plan.plan_id, f"s{site}", "2026-01-01", np.array([number]), ("k",))
            for site, number in enumerate(numbers)
        ]
        fact = SelectionFact(plan.laws()[0], plan.threshold, max_keys=1, steps=1)
        (found,) = keys.shown_keys(Received(experiment.form, releases, fact, NoiseSetting(), {}))
        return found.value, found.interval

    reach = noise_of(law, noises=2).critical * math.sqrt(2) * sigma / step
    value, ends = interval(100 * threshold, 100 * threshold)
    assert ends == pytest.approx((value - reach, value + reach), rel=1e-9)
    # Laplace noise is cut off at the threshold; its own reach is on the safe side.
    cut = dataclasses.replace(experiment.plan, mechanism=Mechanism.DISCRETE_LAPLACE)
    value, ends = interval(100 * threshold, plan=cut)
    one = noise_of(cut.laws()[0], noises=1)
    reach_of_one = one.critical * one.deviation / step
    assert ends == pytest.approx((value - reach_of_one, value + reach_of_one), rel=1e-9)
    # A single count at the threshold, whose law is that of noise that has passed it.
    value, ends = interval(threshold + 1)
    assert ends[1] == pytest.approx(value + noise_of(law, noises=1).critical * sigma / step, rel=1e-9)
    assert ends[0] == 1.0
    # Somewhat above it: lower than the noise alone says, and where a count that passed would be just as far up.
    numbers = (threshold + round(2.2 * sigma),) * 2
    value, ends = interval(*numbers)
    assert 2.0 < ends[0] < value - 1.02 * reach
    count = ends[0] / 2 * step
    edge = (threshold - count) / sigma
    density = math.exp(-edge * edge / 2) / math.sqrt(2 * math.pi)
    hazard = density / (math.erfc(edge / math.sqrt(2)) / 2)
    spread = sigma * math.sqrt(2 * (1 - hazard * (hazard - edge)))
    above = sum(numbers) - 2 * (count + sigma * hazard)
    assert above == pytest.approx(noise_of(law, noises=2).critical * spread, rel=1e-3)
    # Nobody's key is never shown: two sites have at least two patients.
    assert interval(threshold + 1, threshold + 1)[1][0] == 2.0


def pins_the_margin_of_a_course(courses: types.ModuleType) -> None:
    """All rounds together stay within what was asked by more than the arithmetic errs, and by hardly more."""
    agreed = study()
    # Where the lane of pure noise is too narrow, rounds share squares of μ.
    narrow = dataclasses.replace(agreed, cap=dataclasses.replace(agreed.cap, pure_epsilon=0.0))
    for rounds in (2, 3, 7, 10):
        for epsilon in (0.1, 0.3, 1.0, 2.7):
            each = courses.round_epsilon(epsilon, 0.0, rounds, agreed)
            whole = rounds * Fraction(each) / Fraction(epsilon)
            assert 1 - Fraction(2, 10**9) < whole < 1 - Fraction(5, 10**10)
            alone = without_slack(1e-6)
            exact = epsilon_of(alone, mu_of(epsilon, alone) / math.sqrt(rounds))
            squared = courses.round_epsilon(epsilon, 1e-6, rounds, narrow)
            assert 5e-10 < 1.0 - squared / exact < 2e-9
            assert courses.composed([Loss(squared, 1e-6)] * rounds).epsilon < epsilon


EVALUATING, SPREAD, KEYS = (
    "wardround.analyst.learning.evaluating",
    "wardround.federation.statistics.spread",
    "wardround.federation.statistics.keys",
)
COURSES = "wardround.analyst.asking.multi_round"
LAWS = {
    EVALUATING: pins_the_noise_in_an_area,
    SPREAD: pins_both_ends_of_a_variance,
    KEYS: pins_both_ends_of_a_keys_count,
    COURSES: pins_the_margin_of_a_course,
}
MUTANTS = {
    "an area without noise": (EVALUATING, "math.sqrt(noise + _area_sampling", "math.sqrt(0.0 * noise + _area_sampling"),
    "an area without the noise of one outcome": (EVALUATING, " + pull_no @ pull_no", ""),
    "an area whose noise is not squared": (EVALUATING, "noise = noise_sd**2 *", "noise = noise_sd *"),
    "a variance's lower end half as far": (SPREAD, "(half - root) / curve", "(half - root / 2) / curve"),
    "a variance's upper end half as far": (SPREAD, "(half + root) / curve", "(half + root / 2) / curve"),
    "a variance's upper end without the square": (SPREAD, "/ curve + squared, 0.0)", "/ curve, 0.0)"),
    "a variance's ends about nought": (SPREAD, "0.5 + mean**2\n", "mean**2\n"),
    "a key without a lower end": (KEYS, "lower = value - reach\n", "lower = value\n"),
    "a key without an upper end": (KEYS, "max(value + reach, least)", "max(value, least)"),
    "a key at the threshold like any other": (KEYS, "value - sites * moved", "value - 0.0 * moved"),
    "a key that may be nobody's": (KEYS, "least = max(lower, float(sites))", "least = lower"),
    "a course without a margin": (COURSES, "_DOWN = 1 - 1e-9", "_DOWN = 1"),
    "a course whose even rounds have no margin": (COURSES, "epsilon / rounds * _DOWN", "epsilon / rounds"),
    "a course whose squared rounds have no margin": (COURSES, "math.sqrt(rounds)) * _DOWN", "math.sqrt(rounds))"),
    "a course with a wide margin": (COURSES, "_DOWN = 1 - 1e-9", "_DOWN = 1 - 1e-6"),
}  # fmt: skip


@pytest.mark.parametrize("module", LAWS)
def test_the_edge_is_where_it_should_be(module: str) -> None:
    LAWS[module](import_module(module))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new = MUTANTS[name]
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    assert source.count(old) == 1
    mutant = types.ModuleType(f"{module}_mutant")
    # Its dataclasses look for their module by name.
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)
    exec(compile(source.replace(old, new), module, "exec"), mutant.__dict__)  # noqa: S102
    with pytest.raises(AssertionError):
        LAWS[module](mutant)
