"""Without noise every statistic is what numpy or scipy says of the same patients, up to the public grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.federation.statistics.cohorts import Aggregate, Experiment, Statistic
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Clip
from wardround.federation.statistics.crosstab import chi_square_tail

PEOPLE = 1503


def people(seed: int = 1, size: int = PEOPLE) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 100, size)
    sbp = np.round(np.clip(100 + 0.6 * age + draw.normal(0, 15, size), 80, 200), 1)
    event = draw.exponential(30, size)
    censored = draw.exponential(50, size)
    return {
        "age": age,
        "sbp": sbp,
        "cost": np.round(np.clip(draw.exponential(700, size) - 100, -1000, 9000) * 2) / 2,
        "bmi": np.clip(draw.normal(27, 5, size), 10, 60),
        "smoker": draw.random(size) < 0.3,
        "diagnosis": np.array(["E11", "I10", "C50"])[draw.integers(0, 3, size)],
        "ward": np.array(["north", "south"])[(draw.random(size) < 0.4).astype(int)],
        "months": np.minimum(np.ceil(np.minimum(event, censored)), 60).astype(int),
        "died": event <= censored,
    }


def ask(*aggregates: Aggregate, columns: dict[str, np.ndarray] | None = None, rows: int = 1) -> tuple[Estimate, ...]:
    experiment = Experiment.of(*aggregates, rows=rows)
    return experiment.ask(experiment.totals(people() if columns is None else columns))


def by_term(estimates: tuple[Estimate, ...]) -> dict[str, float]:
    return {estimate.term: estimate.value for estimate in estimates}


@pytest.mark.parametrize("column", ["age", "sbp", "cost", "smoker"])
def test_mean_variance_and_standard_deviation_share_a_part_and_are_numpys(column: str) -> None:
    values = people()[column].astype(float)
    mean, variance, deviation = ask(
        *(Aggregate(s, column) for s in (Statistic.MEAN, Statistic.VARIANCE, Statistic.STD))
    )
    assert [e.statistic for e in (mean, variance, deviation)] == ["mean", "variance", "std"]
    assert mean.value == pytest.approx(values.mean(), rel=1e-12)
    assert variance.value == pytest.approx(values.var(), rel=1e-9)
    assert deviation.value == pytest.approx(values.std(), rel=1e-9)
    for estimate in (mean, variance, deviation):
        assert estimate.standard_error == 0.0
        assert estimate.interval == (estimate.value, estimate.value)


def test_estimates_stand_in_the_order_of_the_question_whatever_parts_they_share() -> None:
    asked = (
        Aggregate(Statistic.STD, "sbp"),
        Aggregate(Statistic.QUANTILE, "age", level=0.9),
        Aggregate(Statistic.COUNT),
        Aggregate(Statistic.MEAN, "sbp"),
        Aggregate(Statistic.QUANTILE, "age", level=0.1),
    )
    found = ask(*asked)
    assert [(e.statistic, e.column, e.term) for e in found] == [
        ("std", "sbp", ""),
        ("quantile", "age", "0.9"),
        ("count", None, ""),
        ("mean", "sbp", ""),
        ("quantile", "age", "0.1"),
    ]


def test_a_constant_column_has_no_variance() -> None:
    variance, deviation = ask(
        Aggregate(Statistic.VARIANCE, "sbp"), Aggregate(Statistic.STD, "sbp"), columns={"sbp": np.full(9, 131.2)}
    )
    assert variance.value == pytest.approx(0.0, abs=1e-9)
    assert deviation.value == pytest.approx(0.0, abs=1e-4)


def test_a_histogram_is_numpys_with_its_last_interval_closed() -> None:
    values = people()["sbp"]
    values[:3] = 80.0, 92.0, 200.0
    found = ask(Aggregate(Statistic.HISTOGRAM, "sbp", bins=10), columns={"sbp": values})
    counts, _ = np.histogram(np.round(values * 10).astype(int), bins=10, range=(800, 2000))
    assert [e.value for e in found] == counts.tolist()
    assert (found[0].term, found[-1].term) == ("[80, 92)", "[188, 200]")


@pytest.mark.parametrize("level", [0.001, 0.05, 0.25, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("column", ["age", "sbp"])
def test_a_quantile_of_single_rows_on_steps_is_exact(column: str, level: float) -> None:
    (found,) = ask(Aggregate(Statistic.QUANTILE, column, level=level))
    exact = float(np.quantile(people()[column], level, method="inverted_cdf"))
    assert found.value == pytest.approx(exact, abs=1e-9)
    # A whole number is itself; a pressure may have been written between two steps.
    leaf = 0.0 if column == "age" else 0.1
    assert found.interval == pytest.approx((found.value, found.value + leaf))
    assert found.standard_error == 0.0


def test_narrower_bounds_between_two_steps_move_the_leaves_and_the_interval_says_so() -> None:
    clip = (Clip("sbp", 100.05, 160.05),)
    (found,) = ask(Aggregate(Statistic.QUANTILE, "sbp", level=0.5, clips=clip))
    exact = float(np.quantile(np.clip(people()["sbp"], 100.05, 160.05), 0.5, method="inverted_cdf"))
    assert found.interval[0] < exact < found.interval[1]
    assert found.interval[1] - found.interval[0] == pytest.approx(0.1)


@pytest.mark.parametrize(("column", "rows", "leaf"), [("sbp", 4, 0.1), ("bmi", 1, 50 / 1024), ("cost", 1, 2.5)])
def test_other_quantiles_are_numpys_within_a_leaf_and_the_interval_is_that_leaf(
    column: str, rows: int, leaf: float
) -> None:
    for level in (0.01, 0.5, 0.95):
        (found,) = ask(Aggregate(Statistic.QUANTILE, column, level=level), rows=rows)
        exact = float(np.quantile(people()[column], level, method="inverted_cdf"))
        assert abs(found.value - exact) <= leaf + 1e-9
        assert found.interval[0] - 1e-9 <= exact <= found.interval[1] + 1e-9
        assert found.interval[1] - found.interval[0] == pytest.approx(leaf)


def test_a_median_at_an_end_of_the_bounds_stays_inside() -> None:
    for value in (80.0, 200.0):
        for rows in (1, 4):
            (found,) = ask(
                Aggregate(Statistic.QUANTILE, "sbp", level=0.5), columns={"sbp": np.full(5, value)}, rows=rows
            )
            assert abs(found.value - value) <= 0.1 + 1e-9
            assert 80.0 <= found.interval[0] <= value <= found.interval[1] <= 200.0


def test_half_of_ten_is_reached_by_five() -> None:
    (found,) = ask(Aggregate(Statistic.QUANTILE, "age", level=0.5), columns={"age": np.arange(10) + 30})
    assert found.value == 34.0


@pytest.mark.parametrize("value", [80.0, 131.25, 140.0, 200.0])
def test_a_share_below_is_the_share_of_patients(value: float) -> None:
    (found,) = ask(Aggregate(Statistic.BELOW, "sbp", level=value))
    assert found.value == (people()["sbp"] <= value).mean()
    assert found.term == f"{value:g}"


def test_narrower_bounds_clip_before_anything_is_added() -> None:
    values = people()["sbp"]
    clip = (Clip("sbp", 120.0, 140.0),)
    mean, variance, median = ask(
        Aggregate(Statistic.MEAN, "sbp", clips=clip),
        Aggregate(Statistic.VARIANCE, "sbp", clips=clip),
        Aggregate(Statistic.QUANTILE, "sbp", level=0.2, clips=clip),
    )
    clipped = np.clip(values, 120, 140)
    assert mean.value == pytest.approx(clipped.mean())
    assert variance.value == pytest.approx(clipped.var())
    assert median.value == pytest.approx(np.quantile(clipped, 0.2, method="inverted_cdf"))


def test_a_table_and_its_test_are_scipys() -> None:
    columns = people()
    found = ask(Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",)))
    table = np.array(
        [[((columns["diagnosis"] == a) & (columns["ward"] == b)).sum() for b in ("north", "south")]
         for a in ("E11", "I10", "C50")]
    )  # fmt: skip
    exact = stats.chi2_contingency(table, correction=False)
    numbers = by_term(found[:3])
    assert numbers["statistic"] == pytest.approx(exact.statistic)
    assert numbers["degrees_of_freedom"] == exact.dof
    assert numbers["p_value"] == pytest.approx(exact.pvalue)
    assert [e.value for e in found[3:]] == table.ravel().tolist()
    assert found[4].group == (("diagnosis", "E11"), ("ward", "south"))
    assert {(e.statistic, e.column) for e in found[3:]} == {("count", "patient_id")}


def test_a_table_with_an_empty_row_has_fewer_degrees_of_freedom() -> None:
    columns = people()
    some = columns["diagnosis"] != "C50"
    found = ask(
        Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",)),
        columns={name: values[some] for name, values in columns.items()},
    )
    assert by_term(found[:3])["degrees_of_freedom"] == 1
    assert 0.0 < by_term(found[:3])["p_value"] < 1.0


@pytest.mark.parametrize("free", [1, 2, 3, 8, 51, 1000])
def test_the_tail_of_chi_square_is_scipys(free: int) -> None:
    for value in (0.0, 0.1, free / 2, free, 2.0 * free, 40.0 + free):
        assert chi_square_tail(value, free) == pytest.approx(stats.chi2.sf(value, free), rel=1e-9)


def test_the_most_frequent_value_comes_with_its_gap() -> None:
    columns = {"diagnosis": np.array(["I10"] * 7 + ["E11"] * 5 + ["C50"] * 2)}
    best, gap, regret = ask(Aggregate(Statistic.CHOICE, "diagnosis"), columns=columns)
    assert (best.term, best.value, gap.term, gap.value, regret.term, regret.value) == ("I10", 7, "gap", 2, "regret", 0)


def test_correlations_are_numpys() -> None:
    columns = people()
    names = ("age", "sbp", "cost", "smoker")
    found = ask(Aggregate(Statistic.CORRELATION, names[0], names[1:]))
    exact = np.corrcoef([columns[name].astype(float) for name in names])
    assert [(e.column, e.term) for e in found] == [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    assert [e.value for e in found] == pytest.approx(exact[np.triu_indices(4, 1)].tolist(), abs=1e-7)
    middle, reach = math.atanh(found[0].value), 1.959964 / math.sqrt(PEOPLE - 3)
    assert found[0].interval == pytest.approx((math.tanh(middle - reach), math.tanh(middle + reach)), abs=1e-6)
    assert all(e.sampling for e in found)


def test_a_column_correlates_fully_with_its_double() -> None:
    age = people()["age"]
    (found,) = ask(Aggregate(Statistic.CORRELATION, "age", ("sbp",)), columns={"age": age, "sbp": 80.0 + age})
    assert found.value == pytest.approx(1.0, abs=1e-9)
    assert found.interval[1] <= 1.0


def test_a_regression_is_numpys_with_the_textbook_errors() -> None:
    columns = people()
    found = ask(Aggregate(Statistic.REGRESSION, "sbp", ("age", "cost", "smoker")))
    matrix = np.column_stack([columns[name].astype(float) for name in ("age", "cost", "smoker")] + [np.ones(PEOPLE)])
    exact, squares, *_ = np.linalg.lstsq(matrix, columns["sbp"], rcond=None)
    left = float(squares[0])
    numbers = by_term(found)
    # A column has some ten thousand levels here; sums of squares are that exact.
    assert [numbers[name] for name in ("age", "cost", "smoker", "intercept")] == pytest.approx(exact.tolist(), rel=1e-5)
    assert numbers["residual_sd"] == pytest.approx(math.sqrt(left / (PEOPLE - 4)), rel=1e-6)
    around = float(((columns["sbp"] - columns["sbp"].mean()) ** 2).sum())
    assert numbers["r_squared"] == pytest.approx(1 - left / around, abs=1e-6)
    errors = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)) * left / (PEOPLE - 4))
    assert [e.standard_error for e in found[:4]] == pytest.approx(errors.tolist(), rel=1e-5)


def test_predictors_that_say_the_same_have_no_slopes() -> None:
    age = people()["age"]
    found = ask(
        Aggregate(Statistic.REGRESSION, "sbp", ("age", "cost")),
        columns={"sbp": people()["sbp"], "age": age, "cost": 20.0 * age},
    )
    assert {(e.value, e.reason) for e in found} == {(None, NoEstimate.PREDICTORS_ALIKE)}
    for e in found[:2]:
        assert e.interval[0] < -400
        assert e.interval[1] > 400
    assert found[3].interval == (0.0, 1.0)


def kaplan_meier(columns: dict[str, np.ndarray]) -> stats._survival.EmpiricalDistributionFunction:
    died, months = columns["died"], columns["months"].astype(float)
    return stats.ecdf(stats.CensoredData(uncensored=months[died], right=months[~died])).sf


def test_survival_is_kaplan_and_meiers_with_greenwoods_error() -> None:
    columns = people()
    found = ask(Aggregate(Statistic.SURVIVAL, "months", ("died",)))
    curve = kaplan_meier(columns)
    points = {e.term: e for e in found if e.term.isdigit()}
    assert list(points) == [str(month) for month in range(61)]
    expected = curve.evaluate(np.arange(61.0))
    assert [e.value for e in points.values()] == pytest.approx(expected.tolist(), abs=1e-12)
    bands = curve.confidence_interval(method="linear")
    for time, low, high in zip(bands.low.quantiles, bands.low.probabilities, bands.high.probabilities, strict=True):
        found_there = points[f"{time:g}"]
        assert found_there.interval == pytest.approx((low, high), abs=1e-6)
        assert found_there.sampling


def test_the_median_survival_is_the_first_time_at_which_half_are_gone() -> None:
    columns = people()
    (median,) = [e for e in ask(Aggregate(Statistic.SURVIVAL, "months", ("died",))) if e.term == "median"]
    curve = kaplan_meier(columns)
    assert median.value == next(month for month in range(61) if curve.evaluate(month) <= 0.5)
    assert median.interval[0] <= median.value <= median.interval[1]


def test_a_curve_that_never_reaches_a_half_has_no_median() -> None:
    columns = {"months": np.full(10, 60), "died": np.zeros(10, dtype=bool)}
    found = ask(Aggregate(Statistic.SURVIVAL, "months", ("died",)), columns=columns)
    assert [e.term for e in found if e.term == "median"] == []
    assert {e.value for e in found if e.term.isdigit()} == {1.0}


def test_when_the_last_patient_dies_the_curve_ends_at_nought_and_its_band_does_not() -> None:
    columns = {"months": np.array([1, 2, 2, 5]), "died": np.array([True, False, True, True])}
    found = {e.term: e for e in ask(Aggregate(Statistic.SURVIVAL, "months", ("died",)), columns=columns)}
    assert [found[month].value for month in ("1", "2", "5", "60")] == pytest.approx([0.75, 0.5, 0.0, 0.0])
    assert found["60"].interval == (0.0, found["2"].interval[1])


def test_months_in_few_intervals_are_taken_at_their_ends() -> None:
    columns = people()
    found = ask(Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=6))
    points = [e for e in found if e.term.isdigit()]
    assert [e.term for e in points] == ["0", "10", "20", "30", "40", "50", "60"]
    coarse = {**columns, "months": np.ceil(columns["months"] / 10) * 10}
    expected = kaplan_meier(coarse).evaluate(np.arange(0.0, 61.0, 10.0))
    assert [e.value for e in points] == pytest.approx(expected.tolist(), abs=1e-12)


@pytest.mark.parametrize(("bins", "step"), [(None, 1), (6, 10)])
def test_at_risk_are_all_who_did_not_leave_before(bins: int | None, step: int) -> None:
    """In intervals a patient who leaves within one is there until its end."""
    columns = people()
    found = [e for e in ask(Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=bins)) if "at risk" in e.term]
    leaves = np.ceil(columns["months"] / step) * step
    times = range(0, 61, step)
    assert [(e.term, e.value) for e in found] == [(f"{t} at risk", float((leaves >= t).sum())) for t in times]
    assert all(e.interval == (e.value, e.value) and e.standard_error == 0.0 and not e.sampling for e in found)


def test_groups_are_combined_apart() -> None:
    columns = people()
    experiment = Experiment.of(
        Aggregate(Statistic.QUANTILE, "sbp", level=0.5), Aggregate(Statistic.VARIANCE, "age"), runs=3
    )
    where = np.arange(PEOPLE) % 3
    found = experiment.ask(experiment.totals(columns, where))
    for run in range(3):
        assert found[run].group == (("run", f"{run:05d}"),)
        assert found[run].value == pytest.approx(
            np.quantile(columns["sbp"][where == run], 0.5, method="inverted_cdf"), abs=1e-9
        )
        assert found[3 + run].value == pytest.approx(columns["age"][where == run].var())
