"""The cohorts of coverage.py: from 30 to 10,000 patients a site, easy truths and those at an edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.federation.statistics.cohorts import Aggregate, Statistic

SITES = 4
Columns = dict[str, np.ndarray]
Truth = dict[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked of which cohort; `draw` gives the patients of one repeat, and `truth` each term's own."""

    name: str
    cohort: str
    aggregates: tuple[Aggregate, ...]
    patients: int
    draw: Callable[[np.random.Generator, int], Columns]
    truth: Callable[[Columns], Truth]
    sampling: bool = False
    terms: tuple[str, ...] = ()


SMALL, MIDDLE, LARGE = 30 * SITES, 300 * SITES, 10_000 * SITES


def pressures(mean: float, sd: float) -> Callable[[np.random.Generator, int], Columns]:
    return lambda draw, size: {"sbp": np.round(np.clip(draw.normal(mean, sd, size), 80, 200), 1)}


def costs(draw: np.random.Generator, size: int) -> Columns:
    return {"cost": np.clip(np.round(2 * draw.lognormal(6, 1.2, size)) / 2, -1000, 9000)}


def ages(draw: np.random.Generator, size: int) -> Columns:
    return {"age": np.clip(np.rint(draw.normal(58, 17, size)), 0, 110).astype(int)}


def spread_truth(column: str) -> Callable[[Columns], Truth]:
    def truth(columns: Columns) -> Truth:
        values = columns[column].astype(float)
        return {"mean": values.mean(), "variance": values.var(), "std": values.std()}

    return truth


LEVELS = (0.05, 0.5, 0.95)


def histogram_truth(columns: Columns) -> Truth:
    counts = np.histogram(columns["sbp"], (80, 110, 140, 170, 200))[0]
    names = ("[80, 110)", "[110, 140)", "[140, 170)", "[170, 200]")
    return {f"histogram {name}": float(count) for name, count in zip(names, counts, strict=True)}


def simple_cases() -> Iterator[Case]:
    """Counts, sums, means, spread, shares, histograms and quantiles: intervals of the noise alone."""
    sizes = ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (LARGE, "10,000 a site"))
    count = (Aggregate(Statistic.COUNT, "patient_id"), Aggregate(Statistic.SUM, "sbp"))
    spread = tuple(Aggregate(each, "sbp") for each in (Statistic.MEAN, Statistic.VARIANCE, Statistic.STD))
    for size, text in sizes:
        yield Case("count, sum", text, count, size, pressures(128, 18),
                   lambda c: {"count": float(len(c["sbp"])), "sum": float(c["sbp"].sum())})  # fmt: skip
        kinds = {"wide": (128, 18), "narrow": (112, 2), "at a bound": (80, 0.3)}
        for kind, (mean, sd) in kinds.items():
            cohort = f"{text}, {kind}"
            yield Case("spread", cohort, spread, size, pressures(mean, sd), spread_truth("sbp"))
            yield Case("mean alone", cohort, spread[:1], size, pressures(mean, sd), spread_truth("sbp"),
                       terms=("mean",))  # fmt: skip
        yield Case("mean alone", f"{text}, skewed", (Aggregate(Statistic.MEAN, "cost"),), size, costs,
                   spread_truth("cost"), terms=("mean",))  # fmt: skip
        for level in (100.0, 128.0):
            below = (Aggregate(Statistic.BELOW, "sbp", level=level),)
            yield Case("share below", f"{text}, {level:g}", below, size, pressures(128, 18),
                       lambda c, level=level: {f"below {level:g}": float((c["sbp"] <= level).mean())})  # fmt: skip
        bins = (Aggregate(Statistic.HISTOGRAM, "sbp", bins=4),)
        yield Case("histogram", text, bins, size, pressures(128, 18), histogram_truth)
        for column, cohort_draw in (("age", ages), ("sbp", pressures(128, 18))):
            quantiles = tuple(Aggregate(Statistic.QUANTILE, column, level=level) for level in LEVELS)
            yield Case("quantile", f"{text}, {column}", quantiles, size, cohort_draw,
                       lambda c, column=column: {f"quantile {level:g}": float(
                           np.quantile(c[column], level, method="inverted_cdf")) for level in LEVELS})  # fmt: skip


def pair(r: float, sds: tuple[float, float] = (12.0, 6.0)) -> Callable[[np.random.Generator, int], Columns]:
    def draw_pair(draw: np.random.Generator, size: int) -> Columns:
        x, e = draw.normal(0, 1, size), draw.normal(0, 1, size)
        y = r * x + math.sqrt(1 - r * r) * e
        return {"sbp": np.clip(140 + sds[0] * y, 80, 200), "bmi": np.clip(35 + sds[1] * x, 10, 60)}

    return draw_pair


def correlation_truth(columns: Columns) -> Truth:
    return {"correlation bmi": float(np.corrcoef(columns["sbp"], columns["bmi"])[0, 1])}


def predicted(r_squared: float) -> Callable[[np.random.Generator, int], Columns]:
    """Pressure from age and smoking, with this share explained."""

    def draw_rows(draw: np.random.Generator, size: int) -> Columns:
        age, smoker = np.clip(np.rint(draw.normal(55, 16, size)), 0, 110), draw.random(size) < 0.4
        signal = 0.8 * (age - 55) + 8.0 * (smoker - 0.4)
        signal *= 13.0 / math.sqrt(0.64 * 16**2 + 64 * 0.24) * math.sqrt(r_squared)
        sbp = 140 + signal + 13.0 * math.sqrt(1 - r_squared) * draw.normal(0, 1, size)
        return {"age": age, "smoker": smoker, "sbp": np.clip(sbp, 80, 200)}

    return draw_rows


def regression_truth(columns: Columns) -> Truth:
    sbp = columns["sbp"].astype(float)
    matrix = np.column_stack([columns["age"], columns["smoker"], np.ones(len(sbp))]).astype(float)
    exact = np.linalg.lstsq(matrix, sbp, rcond=None)[0]
    left = float(np.var(sbp - matrix @ exact))
    names = ("age", "smoker", "intercept")
    found = {f"regression {name}": float(value) for name, value in zip(names, exact, strict=True)}
    return {**found, "regression r_squared": 1 - left / float(np.var(sbp)), "regression residual_sd": math.sqrt(left)}


def followed(draw: np.random.Generator, size: int) -> Columns:
    """Five years in whole months; nobody leaves but at a month's end."""
    event, leaves = np.ceil(draw.exponential(30, size)), np.ceil(draw.exponential(60, size))
    return {"months": np.minimum(np.minimum(event, leaves), 60), "died": (event <= leaves) & (event <= 60)}


def survival_truth(_: Columns) -> Truth:
    return {f"survival {month}": math.exp(-month / 30) for month in (6, 24, 48)} | {"survival median": 21.0}


def binned_truth(columns: Columns) -> Truth:
    """What the curve of whole years tends to: who leaves within a year counts as there until its end."""
    year = np.ceil(columns["months"] / 12)
    share, found = 1.0, {}
    for place in range(1, 5):
        share *= 1.0 - float((columns["died"] & (year == place)).sum() / (year >= place).sum())
        found[f"survival {12 * place}"] = share
    return found


def sampled_cases() -> Iterator[Case]:
    """Correlations, regressions and survival: intervals of the noise and of sampling."""
    sizes = ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (4000 * 1, "1,000 a site"))
    correlation = (Aggregate(Statistic.CORRELATION, "sbp", ("bmi",)),)
    regression = (Aggregate(Statistic.REGRESSION, "sbp", ("age", "smoker")),)
    for size, text in sizes:
        for r in (0.0, 0.5, -0.9, 0.99):
            yield Case("correlation", f"{text}, r = {r:g}", correlation, size, pair(r),
                       correlation_truth, sampling=True)  # fmt: skip
        yield Case("correlation", f"{text}, r = 0.5, narrow", correlation, size, pair(0.5, (5.0, 2.0)),
                   correlation_truth, sampling=True)  # fmt: skip
        for share in (0.0, 0.3, 0.9):
            yield Case("regression", f"{text}, R² = {share:g}", regression, size, predicted(share),
                       regression_truth, sampling=True)  # fmt: skip
        curve = (Aggregate(Statistic.SURVIVAL, "months", ("died",)),)
        yield Case("survival by month", text, curve, size, followed, survival_truth, sampling=True)
        yearly = (Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=5),)
        yield Case("survival by year", text, yearly, size, followed, binned_truth, sampling=True)


def at_risk_truth(step: int) -> Callable[[Columns], Truth]:
    """Who leaves within a step is there until its end."""

    def truth(columns: Columns) -> Truth:
        leaves = np.ceil(columns["months"] / step) * step
        return {f"survival {month} at risk": float((leaves >= month).sum()) for month in (0, 24, 60)}

    return truth


def at_risk_cases() -> Iterator[Case]:
    """Who is still there at a time, the sum of many counts or of few: intervals of the noise alone."""
    for size, text in ((SMALL, "30 a site"), (MIDDLE, "300 a site"), (LARGE, "10,000 a site")):
        for step, bins in ((1, None), (12, 5)):
            curve = (Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=bins),)
            yield Case("at risk", f"{text}, by {step}", curve, size, followed, at_risk_truth(step))
