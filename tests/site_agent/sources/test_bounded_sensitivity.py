"""One unit more or less moves no total further than its norms, whatever its rows hold."""

from __future__ import annotations

import atexit
import datetime
import functools
import math
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from site_agent.reading.dataset import TableFiles
from site_agent.reading.sources.duckdb.connection import Limits
from site_agent.reading.sources.files.files import DuckdbFiles
from tests.site_agent.sources.tables import ARROW, KEY, Cell, Row, form, study, write_csv, write_parquet
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.cohort import Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import Bounded

EVERY = (
    Aggregate(Statistic.COUNT),
    Aggregate(Statistic.COUNT, "patient_id"),
    Aggregate(Statistic.SUM, "gain"),
    Aggregate(Statistic.SUM, "age"),
    Aggregate(Statistic.MEAN, "sbp"),
    Aggregate(Statistic.MEAN, "cost"),
    Aggregate(Statistic.STD, "gain"),
    Aggregate(Statistic.HISTOGRAM, "sbp", bins=5),
    Aggregate(Statistic.QUANTILE, "age", level=0.5),
    Aggregate(Statistic.REGRESSION, "sbp", others=("age", "gain", "sex", "cost")),
    Aggregate(Statistic.SURVIVAL, "age", others=("sex",), bins=8),
)
GROUPINGS: tuple[tuple[Grouping, ...], ...] = ((), (Grouping("dx"),), (Grouping("ward"), Grouping("sex")))
COHORTS: tuple[Expression | None, ...] = (
    None,
    Comparison("sbp", Operator.GREATER_OR_EQUAL, 40),
    Not(Within("dx", ("E11",))),
    Or((IsNull("age"), Between("seen", datetime.date(1, 1, 1), datetime.date(9999, 12, 31)))),
)

HUGE = 2**63 - 1
NASTY_TEXT = (
    "", " ", "nan", "NaN", "inf", "-inf", "Infinity", "1e308", "-1e308", "1e400", "-0.0", "12.7", "0x10",
    "99999999999999999999", "-9223372036854775808", "9223372036854775807", "1_000", "1,5", "9999-12-31",
    "infinity", "5877642-06-25 (BC)", "0001-01-01", "E11", "I10", "e11", "E11 ", "true", "T", "2", "1", "3",
    "130.5", '"', '""', '"E11"', "a\nb", "a\r\nb", "\r", "a,b", "\x00", "\udcff\udcfe", "\ufeff", "'; DROP", "NULL",
)  # fmt: skip
TEXT_CELL = st.one_of(
    st.sampled_from(NASTY_TEXT),
    st.floats(width=64).map(repr),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=6),
)
NUMBER = st.one_of(
    st.none(), st.floats(width=64), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e308, 130.5, 80.0])
)
WHOLE = st.one_of(st.none(), st.integers(-HUGE - 1, HUGE), st.integers(-2, 120), st.sampled_from([HUGE, 1, 2, 3]))
TYPED: dict[str, st.SearchStrategy[Cell]] = {
    "age": WHOLE,
    "sbp": NUMBER,
    "gain": NUMBER,
    "dx": st.sampled_from(["E11", "I10", "it's", "ü", "", "e11", None]),
    "sex": st.sampled_from([True, False, None]),
    "ward": WHOLE,
    "seen": st.one_of(st.none(), st.dates()),
    "cost": NUMBER,
    "dose": WHOLE,
}
USUAL: dict[str, st.SearchStrategy[Cell]] = {
    "age": st.integers(0, 110),
    "sbp": st.floats(80, 200),
    "gain": st.floats(-50, 20),
    "dx": st.sampled_from(["E11", "I10", "it's", "ü"]),
    "sex": st.booleans(),
    "ward": st.integers(1, 3),
    "seen": st.dates(),
    "cost": st.floats(0, 1000),
    "dose": st.integers(0, 9),
}
OTHERS = st.sampled_from(["a", "b", "c", "", None])


def _rows(columns: dict[str, st.SearchStrategy[Cell]], unit: st.SearchStrategy[Cell]) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({"patient_id": unit, **columns})


Scene = tuple[
    list[Row],
    list[Row],
    int,
    tuple[Grouping, ...],
    Expression | None,
    Mechanism,
    tuple[int, int],
    tuple[Aggregate, ...],
]
NASTY_CSV = dict.fromkeys(TYPED, TEXT_CELL)
SCENES: dict[str, st.SearchStrategy[Scene]] = {
    kind: st.tuples(
        st.lists(st.one_of(_rows(USUAL, OTHERS), _rows(nasty, OTHERS)), max_size=8),
        st.lists(st.one_of(_rows(USUAL, st.just("target")), _rows(nasty, st.just("target"))), min_size=1, max_size=9),
        st.integers(0, 8),
        st.sampled_from(GROUPINGS),
        st.sampled_from(COHORTS),
        st.sampled_from(list(Mechanism)),
        st.tuples(st.integers(1, 3), st.integers(1, 3)),
        st.lists(st.sampled_from(EVERY), min_size=1, max_size=3, unique=True).map(tuple),
    )
    for kind, nasty in (("csv", NASTY_CSV), ("parquet", TYPED))
}


@functools.cache
def source(kind: str) -> tuple[Path, DuckdbFiles]:
    """One file and one database for all examples; the file is written anew for each question."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / f"visits.{kind}"
    tables = {"visits": TableFiles(kind, str(path))}
    return path, DuckdbFiles(tables, key=KEY, limits=Limits(threads=1, memory_mebibytes=512))


def ask(kind: str, rows: list[Row], asked: AnswerLayout) -> tuple[Bounded, ...]:
    path, files = source(kind)
    if kind == "csv":
        write_csv(path, rows, errors="surrogateescape")
    else:
        write_parquet(path, rows)
    return files.bounded(asked)


def within_norms(kind: str, without: list[Row], added: list[Row], place: int, asked: AnswerLayout) -> None:
    place = min(place, len(without))
    before = ask(kind, without, asked)
    after = ask(kind, without[:place] + added + without[place:], asked)
    for less, more in zip(before, after, strict=True):
        moved = [a - b for a, b in zip(more.total.tolist(), less.total.tolist(), strict=True)]
        assert sum(abs(step) for step in moved) <= less.l1_sensitivity
        assert sum(step * step for step in moved) <= less.l2_sensitivity_squared


def one_patient(kind: str, scene: Scene) -> None:
    others, target, place, grouping, cohort, mechanism, (rows, groups), aggregates = scene
    asked = form(Query("visits", aggregates, cohort, grouping), study(rows=rows, groups=groups), mechanism)
    within_norms(kind, others, target, place, asked)


def one_event(kind: str, scene: Scene) -> None:
    others, target, place, grouping, cohort, mechanism, _, aggregates = scene
    asked = form(Query("visits", aggregates, cohort, grouping), study(unit="event", rows=1, groups=1), mechanism)
    mine = {**target[0], "patient_id": others[0]["patient_id"] if others else "target"}
    within_norms(kind, others, [mine], place, asked)


UNITS = {"patient": one_patient, "event": one_event}
QUICK = settings(max_examples=12, suppress_health_check=list(HealthCheck), derandomize=True)
LONG = settings(max_examples=400, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("unit", UNITS)
@QUICK
@given(SCENES["csv"])
def test_one_unit_in_csv_stays_within_its_norms(unit: str, scene: Scene) -> None:
    UNITS[unit]("csv", scene)


@pytest.mark.parametrize("unit", UNITS)
@QUICK
@given(SCENES["parquet"])
def test_one_unit_in_parquet_stays_within_its_norms(unit: str, scene: Scene) -> None:
    UNITS[unit]("parquet", scene)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("unit", UNITS)
@LONG
@given(st.data())
def test_many_units_stay_within_their_norms(kind: str, unit: str, data: st.DataObject) -> None:
    UNITS[unit](kind, data.draw(SCENES[kind]))


def test_every_column_has_nasty_and_usual_values() -> None:
    assert set(TYPED) == set(USUAL) == set(ARROW) - {"patient_id"}
