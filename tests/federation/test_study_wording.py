"""What a hospital reads before it signs."""

from __future__ import annotations

import pytest

from wardround.federation.plan.sql_text import query_text, study_text
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study_file import parse_study

STUDY = """
name = "cardio"
overlap = 2
min_sites = 3
[budget]
epsilon = 3.0
delta = 1e-6
pure_epsilon = 0.5
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
max_groups_per_unit = 2
[tables.encounters.columns]
sbp = { type = "number", lower = 80, upper = 200, step = 0.1, default = 120.0 }
ward = { type = "category", values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] }
"""


def test_a_hospital_reads_every_bound_it_signs() -> None:
    text = study_text(parse_study(STUDY))
    assert "one patient, known at no more than 2 sites" in text
    assert "ε = 3 at δ = 1e-06, of it ε = 0.5 for Laplace noise; answers need 3 sites" in text
    assert "at most 4 rows and 2 groups for each" in text
    assert "sbp: number from 80 to 200 in steps of 0.1; absent counts as 120.0" in text
    assert "sbp: number from 80 to 200 mmHg in steps" in study_text(
        parse_study(STUDY.replace("0.1", '0.1, unit = "mmHg"'))
    )
    assert "ward: category, one of 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' and 2 more" in text


def test_a_study_that_is_silent_about_overlap_says_everywhere() -> None:
    assert "known at every site" in study_text(parse_study(STUDY.replace("overlap = 2\n", "")))


def test_days_windows_and_open_categories_are_read_too() -> None:
    text = study_text(
        parse_study(
            STUDY.replace("max_groups_per_unit = 2", "max_groups_per_unit = 2\nmax_windows_per_unit = 12")
            + 'seen = { type = "date", lower = 2024-01-01, upper = 2024-12-31 }\nreason = { type = "category" }\n'
        )
    )
    assert "at most 4 rows and 2 groups for each, 12 time windows" in text
    assert "seen: date from 2024-01-01 to 2024-12-31" in text
    assert "reason: category, any text: its values are shown only when enough patients have them" in text


BINS = Grouping("age", GroupBy.BINS, edges=(40.0, 65.0))
CASE = "CASE WHEN age < 40.0 THEN '< 40' WHEN age < 65.0 THEN '[40, 65)' ELSE '>= 65' END"


@pytest.mark.parametrize(
    ("aggregate", "grouping", "sql"),
    [
        (Aggregate(Statistic.VARIANCE, "x"), None, "SELECT VARIANCE(x) FROM t"),
        (Aggregate(Statistic.STD, "x"), None, "SELECT STDDEV(x) FROM t"),
        (Aggregate(Statistic.HISTOGRAM, "x", bins=20), None, "SELECT HISTOGRAM(x, 20) FROM t"),
        (
            Aggregate(Statistic.QUANTILE, "x", level=0.9),
            None,
            "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x) FROM t",
        ),
        (Aggregate(Statistic.BELOW, "x", level=140.0), None, "SELECT SHARE_BELOW(x, 140.0) FROM t"),
        (Aggregate(Statistic.CHI_SQUARE, "a", ("b",)), None, "SELECT CHI_SQUARE(a, b) FROM t"),
        (Aggregate(Statistic.CORRELATION, "x", ("y",)), None, "SELECT CORR(x, y) FROM t"),
        (Aggregate(Statistic.REGRESSION, "y", ("x", "z")), None, "SELECT REGRESS(y, x, z) FROM t"),
        (Aggregate(Statistic.SURVIVAL, "days", ("died",), bins=12), None, "SELECT KAPLAN_MEIER(days, died, 12) FROM t"),
        (Aggregate(Statistic.CHOICE, "c"), None, "SELECT MODE(c) FROM t"),
        (Aggregate(Statistic.KEYS, "c"), None, "SELECT KEYS(c) FROM t"),
        (
            Aggregate(Statistic.MEAN, "x", clips=(Clip("x", 90.0, 180.0),)),
            None,
            "SELECT AVG(CLAMP(x, 90.0, 180.0)) FROM t",
        ),
        (
            Aggregate(Statistic.COUNT),
            Grouping("day", GroupBy.MONTH),
            "SELECT DATE_TRUNC('month', day), COUNT(*) FROM t GROUP BY DATE_TRUNC('month', day)",
        ),
        (Aggregate(Statistic.COUNT), BINS, f"SELECT {CASE}, COUNT(*) FROM t GROUP BY {CASE}"),
    ],
)
def test_a_steward_reads_every_statistic_as_sql(aggregate: Aggregate, grouping: Grouping | None, sql: str) -> None:
    assert query_text(Query("t", (aggregate,), None, () if grouping is None else (grouping,))) == sql


def test_every_statistic_has_words() -> None:
    for statistic in Statistic:
        assert query_text(Query("t", (Aggregate(statistic, "c", level=0.5),))).startswith("SELECT ")
