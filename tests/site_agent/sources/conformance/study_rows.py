"""The study, the rows and the questions that every source is asked."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Mapping

from tests.site_agent.sources.reference_totals import Cell, Row
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

UNIT_KEY = "patient_id"
COLUMNS = """
age  = { type = "integer", lower = 0, upper = 110 }
sbp  = { type = "number", lower = 80, upper = 200, step = 0.1 }
gain = { type = "number", lower = -50, upper = 20 }
dx   = { type = "category", values = ["E11", "I10", "it's", "ü"] }
sex  = { type = "boolean" }
ward = { type = "integer", lower = 1, upper = 3 }
seen = { type = "date", lower = "2024-01-15", upper = "2025-03-10" }
cost = { type = "number", lower = 0, upper = 1000, step = 1, default = 7 }
days = { type = "integer", lower = 0, upper = 60 }
died = { type = "boolean" }
code = { type = "category" }
"""


def agreed(*, unit: str = "patient", rows: int = 1000, groups: int = 1000, windows: int | None = None) -> Study:
    series = "" if windows is None else f"max_windows_per_unit = {windows}\n"
    return parse_study(
        f'name = "trial"\nunit = "{unit}"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\npure_epsilon = 1.0\n'
        f'[tables.visits]\nunit_key = "{UNIT_KEY}"\nmax_rows_per_unit = {rows}\n'
        f"max_groups_per_unit = {groups}\n{series}[tables.visits.columns]\n{COLUMNS}"
    )


A = Aggregate
S = Statistic
AGGREGATES: Mapping[Statistic, tuple[Aggregate, ...]] = {
    S.COUNT: (A(S.COUNT), A(S.COUNT, UNIT_KEY)),
    S.SUM: (A(S.SUM, "sbp"), A(S.SUM, "gain"), A(S.SUM, "sex"), A(S.SUM, "age", clips=(Clip("age", 18.0, 65.0),))),
    S.MEAN: (A(S.MEAN, "sbp"), A(S.MEAN, "cost"), A(S.MEAN, "sex")),
    S.VARIANCE: (A(S.VARIANCE, "age"), A(S.MEAN, "age")),
    S.STD: (A(S.STD, "gain"),),
    S.HISTOGRAM: (A(S.HISTOGRAM, "sbp", bins=12), A(S.HISTOGRAM, "age", bins=7)),
    S.QUANTILE: (A(S.QUANTILE, "age", level=0.5), A(S.QUANTILE, "gain", level=0.25)),
    S.BELOW: (A(S.BELOW, "sbp", level=120.5),),
    S.CHI_SQUARE: (A(S.CHI_SQUARE, "dx", others=("sex",)),),
    S.CORRELATION: (A(S.CORRELATION, "sbp", others=("age", "gain")),),
    S.REGRESSION: (A(S.REGRESSION, "sbp", others=("age", "sex", "gain", "cost", "ward")),),
    S.SURVIVAL: (A(S.SURVIVAL, "days", others=("died",)), A(S.SURVIVAL, "days", others=("died",), bins=6)),
    S.CHOICE: (A(S.CHOICE, "dx"),),
    S.KEYS: (A(S.KEYS, "code"),),
}
ALONE = (S.CHI_SQUARE, S.CHOICE, S.KEYS)
GROUPINGS: Mapping[str, tuple[Grouping, ...]] = {
    "whole": (),
    "by value": (Grouping("dx"),),
    "by month": (Grouping("seen", GroupBy.MONTH),),
    "by bins": (Grouping("sbp", GroupBy.BINS, edges=(90.0, 100.5, 120.0, 139.9, 180.0)),),
    "by keys": (Grouping("code", keys=("A1", "B'2", "ö")),),
    "by several": (Grouping("ward"), Grouping("sex"), Grouping("age", GroupBy.BINS, edges=(-0.0, 65.0))),
}
COHORTS: tuple[Expression | None, ...] = (
    None,
    Or(
        (
            And((Comparison("age", Operator.GREATER_OR_EQUAL, 20), Not(Comparison("dx", Operator.EQUAL, "I10")))),
            IsNull("sbp"),
            Between("seen", datetime.date(2024, 5, 1), datetime.date(9999, 12, 31)),
        )
    ),
)


def groupings(statistic: Statistic) -> Mapping[str, tuple[Grouping, ...]]:
    return {"whole": ()} if statistic in ALONE else GROUPINGS


def question(
    statistic: Statistic, study: Study, grouping: tuple[Grouping, ...] = (), cohort: Expression | None = None
) -> AnswerLayout:
    query = Query("visits", AGGREGATES[statistic], cohort, grouping)
    return shape(query, study, Mechanism.DISCRETE_GAUSSIAN)


# --- Rows -------------------------------------------------------------------------------------------------

DAY_ONE, LAST_DAY = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
HUGE = 2**63 - 1
STRANGE: Mapping[str, tuple[Cell, ...]] = {
    "age": (None, HUGE, -HUGE - 1, -1, 111, 2**53 + 1),
    "sbp": (None, math.nan, math.inf, -math.inf, 1e308, -1e308, -0.0, 5e-324, 80.05, 200.05),
    "gain": (None, math.nan, -math.inf, 1e308, -1e308, -0.0, 5e-324),
    "dx": (None, "", "e11", "E11 ", "Z99", "'; DROP TABLE visits; --"),
    "sex": (None,),
    "ward": (None, 0, 4, HUGE, -HUGE - 1),
    "seen": (None, DAY_ONE, LAST_DAY, datetime.date(2024, 1, 1), datetime.date(2025, 4, 1)),
    "cost": (None, math.nan, math.inf, 1e308),
    "days": (None, -1, 61, HUGE),
    "died": (None,),
    "code": (None, "", "Z" * 256, "Z" * 257, "a\tb", "ä" * 256),
}
TEXTS = (
    "nan", "inf", "-Infinity", "1e308", "1e400", "-0.0", "12.7", "0x10", "99999999999999999999", "1_000", "1,5",
    "9999-12-31", "0001-01-01", "infinity", "5877642-06-25 (BC)", "2024-02-30", "now", "E11", "true", "T", "2", " ",
    '"', "'", "a\nb", "\\", "%s", "{}", "NULL", "٣", "1e-400", "1E5", "+5", ".5", "5.", "--5", "1 2",
)  # fmt: skip
"""What a column may hold whose database does not know types; none of it may raise."""

MISSING_KEYS: tuple[Cell, ...] = (None, "")


def usual(draw: random.Random, unit: Cell) -> Row:
    return {
        UNIT_KEY: unit,
        "age": draw.randrange(111),
        "sbp": round(draw.uniform(75, 205), draw.choice((0, 1, 3))),
        "gain": draw.uniform(-60, 30),
        "dx": draw.choice(("E11", "I10", "it's", "ü")),
        "sex": draw.random() < 0.5,
        "ward": draw.randrange(1, 4),
        "seen": datetime.date(2024, 1, 15) + datetime.timedelta(days=draw.randrange(420)),
        "cost": float(draw.randrange(1001)),
        "days": draw.randrange(61),
        "died": draw.random() < 0.4,
        "code": draw.choice(("A1", "B'2", "ö", "C3", "D4")),
    }


def strange(draw: random.Random, unit: Cell, *, texts: bool = False) -> Row:
    """A row of which any column may hold what nobody expects."""
    row = dict(usual(draw, unit))
    for name, values in STRANGE.items():
        if draw.random() < 0.3:
            row[name] = draw.choice(TEXTS) if texts and draw.random() < 0.5 else draw.choice(values)
    return row


def rows_of(draw: random.Random, *, patients: int, rows: int) -> list[Row]:
    units: list[Cell] = [f"p{place}" for place in range(patients)]
    return [
        (strange if draw.random() < 0.4 else usual)(draw, draw.choice(units if draw.random() < 0.95 else MISSING_KEYS))
        for _ in range(rows)
    ]
