"""Intervals hold the truth as often as they say, and an interval a fifth too narrow would be noticed.

Where sampling is part of an interval the truth is the population's, and every run draws its own patients; elsewhere it
is these patients' own number. Bands are wide enough for one false alarm in a million.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.federation.statistics.cohorts import SITES, SUM, Aggregate, Experiment, Statistic, band, covered, seeded
from wardround.federation.forms.definition import Received
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NORMAL, Estimated, TotalNoise
from wardround.federation.plan.plan import facts_of
from wardround.federation.question.answer import Estimate
from wardround.federation.statistics.crosstab import independence, p_value
from wardround.federation.statistics.keys import shown_keys
from wardround.federation.statistics.quantile import level_variance
from wardround.federation.statistics.survival import curve_of

SHRUNK = 0.8


def pressures(size: int, seed: int = 4) -> np.ndarray:
    """Far from the middle of the bounds, where every slope matters."""
    return np.round(np.clip(np.random.default_rng(seed).normal(112, 12, size), 80, 200), 1)


def repeated(
    *aggregates: Aggregate, columns: dict[str, np.ndarray], runs: int, epsilon: float = 1.0, pure: bool = False
) -> list[tuple[Estimate, ...]]:
    """Each aggregate's estimates of the same patients, with noise of its own in every run."""
    exact = Experiment.of(*aggregates, epsilon=epsilon, pure=pure)
    many = Experiment.of(*aggregates, epsilon=epsilon, pure=pure, runs=runs)
    assert exact.plan.scales == many.plan.scales
    parts = np.split(exact.totals(columns), np.cumsum([part.dimension for part in exact.form.parts])[:-1])
    found = many.ask(np.concatenate([np.tile(part, runs) for part in parts]), seed=11, setting=SUM)
    each = len(found) // len(aggregates)
    return [found[place * each : (place + 1) * each] for place in range(len(aggregates))]


def assert_calibrated(
    found: tuple[Estimate, ...] | list[Estimate], truth: float, *, at_most: float | None = None
) -> None:
    least, most = band(len(found))
    assert least <= covered(found, truth) <= (most if at_most is None else at_most)
    assert covered(found, truth, shrunk=SHRUNK) < least
    # Without the outermost hundredth: a rare run that the noise has swallowed should not count.
    known = [e for e in found if e.reason is None]
    values = np.sort([e.value for e in known])[len(known) // 200 : -len(known) // 200]
    assert float(np.std(values)) == pytest.approx(float(np.median([e.standard_error for e in known])), rel=0.15)


@pytest.mark.parametrize("pure", [False, True])
def test_mean_variance_and_standard_deviation(pure: bool) -> None:
    values = pressures(2000)
    asked = [Aggregate(s, "sbp") for s in (Statistic.MEAN, Statistic.VARIANCE, Statistic.STD)]
    found = repeated(*asked, columns={"sbp": values}, runs=4000, pure=pure)
    # Combinations of few Laplace draws have lighter tails than one: their intervals are a little too wide.
    for estimates, truth in zip(found, (values.mean(), values.var(), values.std()), strict=True):
        assert_calibrated(estimates, float(truth), at_most=0.975 if pure else None)


@pytest.mark.parametrize("size", [3, 20, 60])
@pytest.mark.parametrize("pure", [False, True])
def test_spread_of_a_handful_of_patients_is_never_claimed_to_be_known(size: int, pure: bool) -> None:
    values = pressures(size)
    asked = [Aggregate(s, "sbp") for s in (Statistic.MEAN, Statistic.VARIANCE, Statistic.STD)]
    for estimates, truth in zip(
        repeated(*asked, columns={"sbp": values}, runs=3000, pure=pure),
        (values.mean(), values.var(), values.std()),
        strict=True,
    ):
        assert covered(estimates, float(truth)) >= band(3000)[0]


def test_shares_below_a_value() -> None:
    values = pressures(1000)
    (found,) = repeated(Aggregate(Statistic.BELOW, "sbp", level=140.0), columns={"sbp": values}, runs=4000)
    assert_calibrated(found, float((values <= 140).mean()))


def test_each_interval_of_a_histogram() -> None:
    values = pressures(500)
    (found,) = repeated(Aggregate(Statistic.HISTOGRAM, "sbp", bins=4), columns={"sbp": values}, runs=3000)
    for place in range(4):
        inside = [e for e in found if e.term == found[place].term]
        low, high = 80 + 30 * place, 110 + 30 * place
        assert_calibrated(inside, float(((values >= low) & (values < high)).sum()))


@pytest.mark.parametrize("pure", [False, True])
def test_numbers_at_risk(pure: bool) -> None:
    """The sum of many counts, of some, and of the last two."""
    draw = np.random.default_rng(7)
    months = np.minimum(np.ceil(draw.exponential(40, 4000)), 60)
    asked = Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=5)
    (found,) = repeated(asked, columns={"months": months, "died": draw.random(4000) < 0.5}, runs=3000, pure=pure)
    for month in (0, 24, 60):
        left = [e for e in found if e.term == f"{month} at risk"]
        truth = float((np.ceil(months / 12) * 12 >= month).sum())
        if not pure:
            assert_calibrated(left, truth)
            continue
        # Sums of Laplace draws have lighter tails than one: their intervals are a little too wide.
        assert band(3000)[0] <= covered(left, truth) <= 0.985
        assert covered(left, truth, shrunk=0.7) < band(3000)[0]


@pytest.mark.parametrize("size", [0, 2, 10])
def test_numbers_at_risk_that_the_noise_hides_are_no_fewer_than_none(size: int) -> None:
    columns = {"months": np.full(size, 60.0), "died": np.ones(size, dtype=bool)}
    (found,) = repeated(Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=5), columns=columns, runs=2000)
    for month in (0, 60):
        left = [e for e in found if e.term == f"{month} at risk"]
        assert covered(left, float(size)) >= band(len(left))[0]
        assert min(e.interval[0] for e in left) == 0.0
        assert all(e.interval[0] <= e.value < e.interval[1] and e.standard_error > 1.0 for e in left)


@pytest.mark.parametrize("pure", [False, True])
def test_quantiles(pure: bool) -> None:
    """An interval reaches to the edges of its leaves, so the narrow one of the median is covered nearly always."""
    values, levels = pressures(20_000), (0.5, 0.95)
    asked = [Aggregate(Statistic.QUANTILE, "sbp", level=level) for level in levels]
    found = repeated(*asked, columns={"sbp": values}, runs=1000, epsilon=0.3, pure=pure)
    least, _ = band(1000)
    for estimates, level in zip(found, levels, strict=True):
        truth = float(np.quantile(values, level, method="inverted_cdf"))
        assert covered(estimates, truth) >= least
        size = math.sqrt(np.mean([(e.value - truth) ** 2 for e in estimates]))
        assert size == pytest.approx(float(np.median([e.standard_error for e in estimates])), rel=0.2)
    assert covered(found[1], truth, shrunk=0.6) < least


@pytest.mark.parametrize("size", [1, 30, 300])
def test_quantiles_of_few_patients_cover_too(size: int) -> None:
    values = pressures(size)
    (found,) = repeated(Aggregate(Statistic.QUANTILE, "sbp", level=0.5), columns={"sbp": values}, runs=400)
    assert covered(found, float(np.quantile(values, 0.5, method="inverted_cdf"))) >= band(400)[0]
    assert all(80.0 <= e.interval[0] <= e.interval[1] <= 200.0 for e in found)


def test_an_interval_of_a_quantile_is_as_wide_as_the_noise_of_its_line_says() -> None:
    """Evenly spread values: the reach in patients over the patients in a leaf, and a leaf on each side."""
    runs, people, leaf = 200, 20_000, 50 / 1024
    asked = Aggregate(Statistic.QUANTILE, "bmi", level=0.4)
    (found,) = repeated(asked, columns={"bmi": np.linspace(10, 60, people)}, runs=runs, epsilon=0.2)
    experiment = Experiment.of(asked, epsilon=0.2)
    (part,), (law,) = experiment.form.parts, experiment.plan.laws()
    assert part.tree is not None
    # The noise of the line changes from leaf to leaf; an interval passes some thirty of them.
    near = np.sqrt(level_variance(part.tree, 0.4)[395:425])
    line = math.sqrt(law.variance) * float(part.grid) * float(near.mean())
    expected = line / (people / 1024) * leaf
    assert expected > 3 * leaf
    assert np.median([e.standard_error for e in found]) == pytest.approx(expected, rel=0.1)
    assert np.std([e.value for e in found]) == pytest.approx(expected, rel=0.25)
    widths = [e.interval[1] - e.interval[0] for e in found]
    assert np.median(widths) == pytest.approx(2 * 1.96 * expected + leaf, rel=0.1)


# --- With sampling -----------------------------------------------------------------------------------------


def related(size: int, seed: int) -> dict[str, np.ndarray]:
    """Age, pressure and body mass, within their bounds but for one in a million."""
    draw = np.random.default_rng(seed)
    age, smoker = draw.normal(55, 11, size), draw.random(size) < 0.5
    sbp = 140 + 0.6 * (age - 55) + 4.0 * smoker + draw.normal(0, 10, size)
    return {"age": np.clip(np.rint(age), 0, 110), "sbp": np.clip(np.round(sbp, 1), 80, 200), "smoker": smoker}


def sampled(
    aggregate: Aggregate, columns: dict[str, np.ndarray], *, runs: int, epsilon: float
) -> dict[str, list[Estimate]]:
    """The estimates of `runs` equal shares of the columns, by term."""
    experiment = Experiment.of(aggregate, epsilon=epsilon, runs=runs)
    size = len(next(iter(columns.values()))) // runs
    found = experiment.ask(experiment.totals(columns, np.repeat(np.arange(runs), size)), seed=12)
    by_term: dict[str, list[Estimate]] = {}
    for e in found:
        assert e.sampling or e.term.endswith(" at risk")
        by_term.setdefault(e.term, []).append(e)
    return by_term


def test_correlations_with_noise_and_sampling() -> None:
    runs = 2000
    found = sampled(
        Aggregate(Statistic.CORRELATION, "sbp", ("age", "smoker")), related(700 * runs, 1), runs=runs, epsilon=5.0
    )
    population = related(1_000_000, 2)
    exact = np.corrcoef([population[name].astype(float) for name in ("sbp", "age", "smoker")])
    assert_calibrated(found["age"], float(exact[0, 1]))
    assert_calibrated([e for e in found["smoker"] if e.column == "sbp"], float(exact[0, 2]))


def test_coefficients_with_noise_and_sampling() -> None:
    runs = 1500
    found = sampled(
        Aggregate(Statistic.REGRESSION, "sbp", ("age", "smoker")), related(1000 * runs, 3), runs=runs, epsilon=8.0
    )
    population = related(1_000_000, 4)
    matrix = np.column_stack([population["age"], population["smoker"], np.ones(1_000_000)])
    exact = np.linalg.lstsq(matrix, population["sbp"], rcond=None)[0]
    left = float(np.std(population["sbp"] - matrix @ exact))
    for term, truth in zip(("age", "smoker", "intercept"), exact.tolist(), strict=True):
        assert_calibrated(found[term], truth)
    assert_calibrated(found["residual_sd"], left)
    assert covered(found["r_squared"], 1 - (left / float(np.std(population["sbp"]))) ** 2) >= band(runs)[0] - 0.01


def test_a_survival_curve_and_its_median_with_noise_and_sampling() -> None:
    runs, size = 1500, 1500
    draw = np.random.default_rng(5)
    # A study of five years in whole months: nobody leaves but at a month's end.
    event, leaves = np.ceil(draw.exponential(30, runs * size)), np.ceil(draw.exponential(60, runs * size))
    columns = {"months": np.minimum(np.minimum(event, leaves), 60), "died": (event <= leaves) & (event <= 60)}
    found = sampled(Aggregate(Statistic.SURVIVAL, "months", ("died",)), columns, runs=runs, epsilon=1.0)
    for month in (6, 21, 40):
        assert_calibrated(found[str(month)], math.exp(-month / 30))
    # Half are gone in the twenty-first month; in whole months an interval is a little too wide.
    assert covered(found["median"], 21.0) >= band(len(found["median"]))[0]
    assert covered(found["median"], 21.0, shrunk=0.5) < band(runs)[0]


# --- Near the edge: where the noise leaves many without an estimate -----------------------------------------


def assert_held_when_shown(found: list[Estimate], truth: float, *, seldom: tuple[float, float]) -> None:
    """Among those that are shown no fewer hold the truth than one time in a million; of halved ones too few do."""
    shown = [e for e in found if e.reason is None]
    assert seldom[0] <= len(shown) / len(found) <= seldom[1]
    least = stats.binom.ppf(1e-6, len(shown), 0.95) / len(shown)
    assert covered(shown, truth) >= least > covered(shown, truth, shrunk=0.5)


@pytest.mark.parametrize("r", [0.5, -0.9])
def test_correlations_that_are_shown_near_the_edge(r: float) -> None:
    runs, size = 1200, 1200
    draw = np.random.default_rng(21)
    x, e = draw.normal(0, 1, (2, runs * size))
    y = r * x + math.sqrt(1 - r * r) * e
    columns = {"sbp": np.clip(140 + 12 * y, 80, 200), "bmi": np.clip(35 + 6 * x, 10, 60)}
    found = sampled(Aggregate(Statistic.CORRELATION, "sbp", ("bmi",)), columns, runs=runs, epsilon=0.6)
    assert_held_when_shown(found["bmi"], r, seldom=(0.2, 0.6))


@pytest.mark.parametrize(("share", "epsilon", "seldom"), [(0.1, 0.6, (0.5, 0.9)), (0.02, 1.0, (0.99, 1.0))])
def test_r_squared_near_the_edge_and_near_nought(share: float, epsilon: float, seldom: tuple[float, float]) -> None:
    runs, size = 160, 4000
    draw = np.random.default_rng(22)
    age, smoker = np.rint(draw.normal(55, 12, runs * size)), draw.random(runs * size) < 0.4
    sbp = 140 + 13 * (math.sqrt(share) * (age - 55) / 12 + math.sqrt(1 - share) * draw.normal(0, 1, runs * size))
    columns = {"age": np.clip(age, 0, 110), "smoker": smoker, "sbp": np.clip(sbp, 80, 200)}
    found = sampled(Aggregate(Statistic.REGRESSION, "sbp", ("age", "smoker")), columns, runs=runs, epsilon=epsilon)
    assert_held_when_shown(found["r_squared"], share, seldom=seldom)


def test_the_end_of_a_survival_curve() -> None:
    runs, size = 1500, 120
    draw = np.random.default_rng(24)
    event, leaves = np.ceil(draw.exponential(30, runs * size)), np.full(runs * size, 60.0)
    columns = {"months": np.minimum(event, 60), "died": (event <= leaves) & (event <= 60)}
    found = sampled(Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=5), columns, runs=runs, epsilon=0.4)
    for month, seldom in ((24, (0.3, 0.9)), (36, (0.15, 0.7)), (48, (0.05, 0.5))):
        assert_held_when_shown(found[str(month)], math.exp(-month / 30), seldom=seldom)


def test_a_band_reaches_down_where_those_at_risk_are_hardly_clear_of_the_noise() -> None:
    """Both sides are a deviation's reach far from the noise; near it the lower one grows and the upper one shrinks."""
    events, censored = np.full(4, 100.0), np.array([0.0, 0.0, 0.0, 600.0])
    for deviation in (1.0, 60.0, 80.0):
        found = curve_of(censored, events, TotalNoise(deviation, NORMAL)).at(1)
        assert isinstance(found, Estimated)
        # A thousand at risk, the sum of eight counts, are the least clear.
        known = 1.0 - (NORMAL * deviation * math.sqrt(8.0) / 1000.0) ** 2
        reach = NORMAL * found.error
        assert found.value - found.ends[0] == pytest.approx(reach / math.sqrt(known), rel=1e-9)
        assert found.ends[1] - found.value == pytest.approx(reach * known**0.2, rel=1e-9)


def test_counts_of_keys_near_the_threshold() -> None:
    """At one site: a key is shown because its noise was upwards, and is still covered."""
    experiment = Experiment.of(Aggregate(Statistic.KEYS, "run"))
    (law,), (part,) = experiment.plan.laws(), experiment.form.parts
    near = math.ceil(experiment.plan.threshold / part.increment) - round(math.sqrt(law.variance) * float(part.grid))
    drawn = part.increment * near + seeded(law, 4000, np.random.default_rng(25))
    found = []
    for number in drawn[drawn > experiment.plan.threshold].tolist():
        release = Release(experiment.plan.plan_id, "s0", "2026-01-01", np.array([number]), ("near",))
        (fact,) = facts_of(experiment.plan, experiment.form)
        found.extend(shown_keys(Received(experiment.form, [release], fact, SITES, {})))
    assert 0.1 < len(found) / len(drawn) < 0.25
    assert_held_when_shown(found, float(near), seldom=(1.0, 1.0))


# --- Tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("laplaces", [0, 10])
def test_independent_columns_look_dependent_as_seldom_as_the_p_value_says(laplaces: int) -> None:
    """Ten sites' noise on a table of 1,500: the usual test cries wolf four times as often as it should."""
    draw, runs = np.random.default_rng(6), 150
    noise = TotalNoise(4.22 * math.sqrt(10), 1.96, laplaces)
    chances = np.outer([0.4, 0.6], [0.2, 0.5, 0.3])
    ours = naive = 0
    for run in range(runs):
        if laplaces:
            drawn = draw.laplace(0.0, noise.deviation / math.sqrt(20), (10, 2, 3)).sum(axis=0)
        else:
            drawn = draw.normal(0.0, noise.deviation, (2, 3))
        table = draw.multinomial(1500, chances.ravel()).reshape(2, 3) + drawn
        value = independence(table, noise.deviation)
        ours += p_value(table, noise, value, 2, seed=run)[0] < 0.05
        naive += independence(np.maximum(table, 1e-9), 0.0) > stats.chi2.ppf(0.95, 2)
    reach = 4.9 * math.sqrt(0.05 * 0.95 / runs)
    assert ours / runs <= 0.05 + reach < naive / runs


def test_columns_that_depend_are_found_through_the_noise() -> None:
    columns = {"diagnosis": np.repeat(["E11", "I10", "C50"], 500), "ward": np.repeat(["north", "south"], [650, 850])}
    experiment = Experiment.of(Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",)))
    totals = experiment.totals(columns)
    found = {e.term: e for e in experiment.ask(totals, seed=1) if e.term}
    assert found["p_value"].value <= 1e-3
    assert found["noise_aware_statistic"].value > 100
    assert found["noise_aware_statistic"].shown_interval is None
    again = {e.term: e for e in experiment.ask(totals, seed=1) if e.term}
    assert again == found


def test_the_regret_of_a_choice_is_within_its_bound() -> None:
    counts = np.array([100, 99, 97, 90, 60] + [10] * 106)
    experiment = Experiment.of(Aggregate(Statistic.CHOICE, "age"), epsilon=0.5)
    totals = experiment.totals({"age": np.repeat(np.arange(111), counts)})
    kept, gaps, runs = 0, 0, 400
    for seed in range(runs):
        best, gap, regret = experiment.ask(totals, seed=seed)
        kept += 100 - counts[int(best.term)] <= regret.value
        gaps += gap.value >= 0
    assert kept >= band(runs)[0] * runs
    assert gaps == runs


def test_a_clear_winner_has_no_regret() -> None:
    experiment = Experiment.of(Aggregate(Statistic.CHOICE, "diagnosis"))
    totals = experiment.totals({"diagnosis": np.repeat(["I10", "E11"], [900, 100])})
    best, _, regret = experiment.ask(totals, seed=3)
    assert (best.term, regret.value) == ("I10", 0.0)
