"""The page of statistics has a section for each, and its table of norms is the one that prices questions."""

from __future__ import annotations

import math
import re

import pytest

from tests.docs.pages import ROOT, anchors
from tests.federation.statistics.cohorts import Aggregate, Experiment, Statistic
from wardround.federation.forms.parts import Part, Sums

PAGE = ROOT / "docs" / "statistics.md"
SECTIONS = {
    Statistic.COUNT: "count-and-sum",
    Statistic.SUM: "count-and-sum",
    Statistic.MEAN: "mean",
    Statistic.VARIANCE: "variance-and-standard-deviation",
    Statistic.STD: "variance-and-standard-deviation",
    Statistic.HISTOGRAM: "histogram",
    Statistic.QUANTILE: "quantile",
    Statistic.BELOW: "share-below-a-value",
    Statistic.CHI_SQUARE: "table-and-χ²",
    Statistic.CORRELATION: "correlation",
    Statistic.REGRESSION: "regression",
    Statistic.SURVIVAL: "survival",
    Statistic.CHOICE: "choice",
    Statistic.KEYS: "keys",
}
# How the page writes a norm, for two columns and one group a patient.
NORMS = {
    "mean": (1.0, 1.0, Aggregate(Statistic.MEAN, "sbp")),
    "variance, standard deviation": (2.5, 1.5, Aggregate(Statistic.STD, "sbp")),
    "histogram": (1.0, 1.0, Aggregate(Statistic.HISTOGRAM, "sbp", bins=9)),
    "quantile": (4.0, 2.0, Aggregate(Statistic.QUANTILE, "sbp", level=0.5)),
    "share below a value": (1.0, 1.0, Aggregate(Statistic.BELOW, "sbp", level=99.0)),
    "table, χ²": (1.0, 1.0, Aggregate(Statistic.CHI_SQUARE, "diagnosis", ("ward",))),
    "correlation, regression of d columns": (3 + 41 / 29 * 3, 3.0, Aggregate(Statistic.CORRELATION, "bmi", ("cost",))),
    "survival": (1.0, 1.0, Aggregate(Statistic.SURVIVAL, "months", ("died",))),
    "choice": (1.0, 1.0, Aggregate(Statistic.CHOICE, "diagnosis")),
}


def test_every_statistic_has_its_section() -> None:
    assert set(SECTIONS) == set(Statistic)
    assert set(SECTIONS.values()) <= anchors(PAGE)


def one_record(part: Part) -> float:
    """What one record counts for, in grid steps."""
    match part.sums:
        case Sums.COUNTED_LEVELS:
            return float(part.quantisers[0].high)
        case Sums.PRODUCTS if len(part.columns) == 1:
            return float((part.quantisers[0].high // 2) ** 2)
        case Sums.PRODUCTS:
            return 29.0 * part.increment**2
        case _:
            return float(part.increment)


@pytest.mark.parametrize("name", NORMS)
def test_the_norms_of_the_page_are_those_that_price_a_question(name: str) -> None:
    rows = re.findall(r"(?m)^\| ([^|]+) \| ", PAGE.read_text("utf-8"))
    assert name in rows
    first, second, aggregate = NORMS[name]
    (part,) = Experiment.of(aggregate).form.parts
    found = (part.l1_sensitivity / one_record(part), math.sqrt(part.l2_sensitivity_squared) / one_record(part))
    if part.sums is Sums.PRODUCTS and len(part.columns) > 1:
        # Columns whose steps do not fill the grid move it by less.
        assert found[0] <= first
        assert found[1] <= second
    else:
        assert found == pytest.approx((first, second), rel=1e-3)
