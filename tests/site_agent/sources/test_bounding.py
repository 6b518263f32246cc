"""The choice among a unit's records: exactly the cap, even, the unit's own, and the same for every kind of key."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from site_agent.reading.bounding import contribution_bounding as bounding
from site_agent.reading.bounding.contribution_bounding import record_number
from site_agent.reading.dataset import TableFiles
from site_agent.reading.sources.duckdb.connection import Limits
from site_agent.reading.sources.files.files import DuckdbFiles
from tests.site_agent.sources.tables import ARROW, KEY, Cell, Row, form, random_rows, study, write_parquet
from wardround.federation.errors import SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

EVERY = (
    Aggregate(Statistic.COUNT),
    Aggregate(Statistic.COUNT, "patient_id"),
    Aggregate(Statistic.SUM, "gain"),
    Aggregate(Statistic.MEAN, "sbp"),
)
LOW, HIGH = -(2**63), 2**63 - 1
KEY_TYPES: dict[str, tuple[pa.DataType, Sequence[Cell]]] = {
    "close together": (pa.int32(), range(-7, 13)),
    "too far apart to be packed": (pa.int64(), [LOW, *range(18), HIGH]),
    "unsigned": (pa.uint64(), [*range(19), 2**64 - 1]),
    "text": (pa.string(), [f"p{place}" for place in range(20)]),
}


MORE = (
    Aggregate(Statistic.VARIANCE, "age"),
    Aggregate(Statistic.HISTOGRAM, "sbp", bins=6),
    Aggregate(Statistic.SURVIVAL, "age", others=("sex",)),
    # Too wide for one number beside its cell, and narrow enough.
    Aggregate(Statistic.REGRESSION, "sbp", others=("age", "gain", "cost", "ward", "sex")),
    Aggregate(Statistic.CORRELATION, "age", others=("ward",)),
)


def source(folder: Path, rows: Sequence[Row], kind: pa.DataType, *, mebibytes: int = 512) -> DuckdbFiles:
    path = write_parquet(folder / "visits.parquet", rows, {**ARROW, "patient_id": kind})
    limits = Limits(threads=1, memory_mebibytes=mebibytes)
    return DuckdbFiles({"visits": TableFiles("parquet", str(path))}, key=KEY, limits=limits)


def asked(rows: int = 3, groups: int = 2) -> AnswerLayout:
    return form(
        Query("visits", EVERY, None, (Grouping("dx"),)), study(rows=rows, groups=groups), Mechanism.DISCRETE_LAPLACE
    )


def totals(files: DuckdbFiles, question: AnswerLayout) -> list[list[int]]:
    return [part.total.tolist() for part in files.bounded(question)]


@pytest.mark.parametrize(("size", "cap"), [(2, 1), (5, 4), (10, 4), (12, 4), (97, 13), (1000, 999)])
def test_over_all_beginnings_every_place_is_chosen_equally_often(size: int, cap: int) -> None:
    places = bounding._spread(np.full(size, size), np.arange(size), cap)
    assert all(len(set(row)) == cap for row in places.tolist())
    assert np.bincount(places.ravel(), minlength=size).tolist() == [cap] * size


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_every_kind_of_key_is_held_to_the_cap(tmp_path: Path, kind: str) -> None:
    stored, keys = KEY_TYPES[kind]
    rows = [
        {**row, "patient_id": keys[place % 20], "dx": ("E11", "I10", "ü")[place // 20 % 3], "sbp": 100.0, "gain": -1.0}
        for place, row in enumerate(random_rows(patients=1, rows=400, seed=11))
    ]
    question = asked()
    events, patients, total, mean = totals(source(tmp_path, rows, stored), question)
    assert sum(events) == 20 * 3
    assert sum(patients) == 20 * 2
    assert sum(total) * question.parts[2].grid == -20 * 3
    assert sum(mean[::2]) * question.parts[3].grid == 20 * 2 * 20


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_units_within_the_cap_count_in_full(tmp_path: Path, kind: str) -> None:
    stored, keys = KEY_TYPES[kind]
    rows = [
        {**row, "patient_id": keys[place % 20]} for place, row in enumerate(random_rows(patients=1, rows=400, seed=12))
    ]
    some_crowded = [*rows[:60], *rows[60::20]]
    reference = [
        {**row, "patient_id": f"p{place}"} for place, row in enumerate(some_crowded) if row["patient_id"] != keys[0]
    ]
    question = asked(rows=3)
    found = totals(source(tmp_path, some_crowded, stored), question)
    alone = [row for row in some_crowded if row["patient_id"] == keys[0]]
    crowded = totals(source(tmp_path, alone, stored), question)
    whole = totals(source(tmp_path, reference, pa.string()), question)
    assert [a - b for a, b in zip(found[0], crowded[0], strict=True)] == whole[0]
    assert [a - b for a, b in zip(found[2], crowded[2], strict=True)] == whole[2]


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_records_that_do_not_fit_at_once_are_read_in_shares_with_the_same_totals(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, keys = KEY_TYPES[kind]
    rows = [
        {**row, "patient_id": keys[place % 20]} for place, row in enumerate(random_rows(patients=1, rows=400, seed=13))
    ]
    files = source(tmp_path, rows, stored)
    once = totals(files, asked())
    monkeypatch.setattr(Limits, "records", property(lambda _: 60))
    assert totals(files, asked()) == once


def test_means_and_presence_are_kept_in_the_same_groups(tmp_path: Path) -> None:
    rows = [{**row, "sbp": 100.0} for row in random_rows(patients=30, rows=600, seed=14)]
    question = asked(groups=2)
    _, patients, _, mean = totals(source(tmp_path, rows, pa.string()), question)
    levels = question.parts[3].l1_sensitivity // 2
    assert [above + below for above, below in zip(mean[::2], mean[1::2], strict=True)] == [n * levels for n in patients]


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_records_of_every_kind_are_kept_in_the_same_groups(tmp_path: Path, kind: str) -> None:
    stored, keys = KEY_TYPES[kind]
    full = {"age": 40, "sbp": 100.0, "gain": 0.0, "cost": 10.0, "ward": 2, "sex": True}
    rows = [
        {**row, **full, "patient_id": keys[place % 20]}
        for place, row in enumerate(random_rows(patients=1, rows=400, seed=17))
    ]
    question = form(
        Query("visits", (EVERY[1], *MORE), None, (Grouping("dx"),)),
        study(rows=3, groups=2),
        Mechanism.DISCRETE_LAPLACE,
    )
    files = source(tmp_path, rows, stored)
    patients, *others = (total.reshape(4, -1) for total in (part.total for part in files.bounded(question)))
    assert patients.sum() == 20 * 2
    variance, histogram, survival, regression, correlation = others
    assert histogram.sum(axis=1).tolist() == survival.sum(axis=1).tolist() == patients.ravel().tolist()
    for moments, part in (
        (variance, question.parts[1]),
        (regression, question.parts[4]),
        (correlation, question.parts[5]),
    ):
        one = part.increment**2 * 29 if len(part.columns) > 1 else (part.quantisers[0].high // 2) ** 2
        assert moments[:, 0].tolist() == [one * number for number in patients.ravel().tolist()]
    assert record_number(question.parts[4]).wide
    assert not record_number(question.parts[5]).wide


@pytest.mark.parametrize("far", [LOW, 2**62, HIGH])
def test_a_key_far_from_all_others_does_not_change_what_they_contribute(tmp_path: Path, far: int) -> None:
    rows = [{**row, "patient_id": place % 20} for place, row in enumerate(random_rows(patients=1, rows=600, seed=15))]
    added = {"patient_id": far, "dx": "E11", "gain": 20.0, "sbp": 80.0}
    before = totals(source(tmp_path, rows, pa.int64()), asked())
    after = totals(source(tmp_path, [*rows, added], pa.int64()), asked())
    alone = totals(source(tmp_path, [added], pa.int64()), asked())
    assert after == [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(before, alone, strict=True)]


SMALL_ROW = st.fixed_dictionaries(
    {
        "dx": st.sampled_from(["E11", "I10", "it's", "ü"]),
        "gain": st.sampled_from([-50.0, -3.25, 0.0, 20.0]),
        "sbp": st.sampled_from([80.0, 100.1, 200.0]),
    }
)
UNIT_ROWS = st.lists(SMALL_ROW, min_size=1, max_size=8)
PLACES = st.sampled_from([LOW, LOW + 1, -1, 0, 1, 2, 3, 2**31, 2**40, HIGH - 1, HIGH])
NEAR = st.integers(-4, 4)


def one_more_unit(others: dict[int, list[Row]], target: int, added: list[Row], question: AnswerLayout) -> None:
    rows = [{**row, "patient_id": unit} for unit, mine in others.items() if unit != target for row in mine]
    mine = [{**row, "patient_id": target} for row in added]
    with tempfile.TemporaryDirectory() as folder:
        before = source(Path(folder), rows, pa.int64()).bounded(question)
        alone = source(Path(folder), mine, pa.int64()).bounded(question)
        after = source(Path(folder), mine + rows, pa.int64()).bounded(question)
    for less, only, more in zip(before, alone, after, strict=True):
        # Not only within the norms: what a unit contributes is the same whoever else is there.
        assert (more.total - less.total).tolist() == only.total.tolist()
        assert sum(abs(step) for step in only.total.tolist()) <= only.l1_sensitivity
        assert sum(step * step for step in only.total.tolist()) <= only.l2_sensitivity_squared


@settings(max_examples=20, suppress_health_check=list(HealthCheck), derandomize=True, deadline=None)
@given(
    st.one_of(
        st.tuples(st.dictionaries(PLACES, UNIT_ROWS, max_size=4), PLACES),
        st.tuples(st.dictionaries(NEAR, UNIT_ROWS, max_size=4), NEAR),
    ),
    UNIT_ROWS,
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_a_unit_contributes_the_same_whoever_else_is_there(
    units: tuple[dict[int, list[Row]], int], added: list[Row], rows: int, groups: int
) -> None:
    others, target = units
    one_more_unit(others, target, added, asked(rows=rows, groups=groups))


@pytest.mark.parametrize("rows", [0, 1, 9])
@pytest.mark.parametrize("kind", KEY_TYPES)
@pytest.mark.parametrize("column", ["age", "gain", "cost", "sex"])
def test_a_table_of_one_patient_or_none_is_like_any_other(tmp_path: Path, kind: str, rows: int, column: str) -> None:
    stored, keys = KEY_TYPES[kind]
    held = [{"patient_id": keys[0], "dx": "E11", column: True if column == "sex" else 20} for _ in range(rows)]
    aggregates = (Aggregate(Statistic.SUM, column), Aggregate(Statistic.MEAN, column))
    worth = min(rows, 3) * (1 if column == "sex" else 20)
    for grouping in ((), (Grouping("dx"),)):
        question = form(Query("visits", aggregates, None, grouping), study(rows=3, groups=2))
        total, _ = totals(source(tmp_path, held, stored), question)
        assert total[0] * question.parts[0].grid == worth


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_more_records_than_64_bits_can_add_are_read_in_shares(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, keys = KEY_TYPES[kind]
    rows = [
        {**row, "patient_id": keys[place % 20]} for place, row in enumerate(random_rows(patients=1, rows=400, seed=16))
    ]
    files = source(tmp_path, rows, stored)
    once = totals(files, asked(rows=50, groups=3))
    monkeypatch.setattr("site_agent.reading.sources.duckdb.tallies.MOST_RECORDS", 100)
    assert totals(files, asked(rows=50, groups=3)) == once
    monkeypatch.setattr("site_agent.reading.sources.duckdb.tallies.MOST_RECORDS", 1)
    with pytest.raises(SourceFailed):
        files.bounded(asked(rows=50, groups=3))


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("units", [1, 7, 400])
def test_in_pieces_every_unit_is_as_it_is_at_once(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.unsignedinteger], units: int
) -> None:
    """Pieces end between units, also at the last number that a type has."""
    part = asked().parts[0]
    bits = record_number(part).bits
    generator = np.random.default_rng(units)
    top = int(np.iinfo(dtype).max) >> bits
    unit = top - generator.integers(0, units, 3000, dtype=dtype)
    packed = (unit << dtype(bits)) | generator.integers(0, part.groups, 3000, dtype=dtype)

    def tally() -> list[list[int]]:
        found = bounding.packed_tally(packed.copy(), part, cap=3, key=KEY, seeds=bounding.keys_as_seeds(0))
        return [[int(each) for each in line] for line in found]

    whole = tally()
    monkeypatch.setattr(bounding, "_PIECE", 1)
    assert len(list(bounding._whole_units(np.sort(packed), bits, at_least=1))) == np.unique(unit).size
    assert tally() == whole
    assert sum(map(sum, whole)) == sum(min(3, int(n)) for n in np.unique(unit, return_counts=True)[1])
