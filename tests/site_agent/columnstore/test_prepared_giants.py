"""A patient with more rows than a chunk, or than fit while a snapshot is made: the same integers, piece by piece."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from site_agent.reading.columnstore import clustering as ordering
from site_agent.reading.columnstore import prepared_dataset as totals
from site_agent.reading.columnstore import spill as partitions
from site_agent.reading.columnstore.scan import chunks
from site_agent.reading.columnstore.spill import ORDER, UNIT, Partitions, in_order
from site_agent.reading.memory_limits import Limits
from tests.site_agent.columnstore.prepared_tables import (
    KEY,
    TABLE,
    Kept,
    Row,
    form,
    opened,
    prepare,
    row,
    snapshot,
    study,
)
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

EVERY = (
    Aggregate(Statistic.COUNT),
    Aggregate(Statistic.COUNT, "patient_id"),
    Aggregate(Statistic.SUM, "gain"),
    Aggregate(Statistic.MEAN, "sbp"),
    Aggregate(Statistic.VARIANCE, "age"),
    Aggregate(Statistic.HISTOGRAM, "sbp", bins=6),
    Aggregate(Statistic.QUANTILE, "age", level=0.5),
    Aggregate(Statistic.SURVIVAL, "age", others=("sex",)),
    Aggregate(Statistic.REGRESSION, "sbp", others=("age", "gain", "ward")),
)
WAYS: tuple[tuple[Grouping, ...], ...] = (
    (),
    (Grouping("dx"),),
    (Grouping("dx"), Grouping("ward")),
    (Grouping("sbp", GroupBy.BINS, edges=(90.0, 130.0)),),
)


def giant_rows(seed: int, *, rows: int = 400) -> list[Row]:
    """Two giants beside others; half of one's rows are the same."""
    draw = random.Random(seed)
    found: list[Row] = []
    for place in range(rows):
        unit = draw.choices([f"p{number}" for number in range(9)], [120, 60, 8, 8, 8, 8, 8, 1, 1])[0]
        if unit == "p1" and place % 2:
            found.append(row(unit, age=7, sbp=100.0, gain=1.0, dx="I10", note="n", sex=True, ward=2))
            continue
        found.append(
            row(
                unit,
                age=draw.randrange(-5, 120),
                sbp=round(draw.uniform(70, 210), 1),
                gain=draw.choice([None, draw.uniform(-60, 30)]),
                dx=draw.choice(["E11", "I10", "it's", "ü", "Z99", None]),
                note=draw.choice(["n", "m", f"k{draw.randrange(40)}", None]),
                sex=draw.choice([True, False, None]),
                ward=draw.randrange(0, 5),
            )
        )
    return found


def questions() -> list[AnswerLayout]:
    asked = []
    for unit in ("patient", "event"):
        for cap in (1, 3) if unit == "patient" else (1,):
            agreed = study(unit=unit, rows=cap, groups=min(cap, 2))
            for cohort in (None, Comparison("age", Operator.GREATER_OR_EQUAL, 40)):
                asked += [shape(Query(TABLE, EVERY, cohort, by), agreed, Mechanism.DISCRETE_GAUSSIAN) for by in WAYS]
    return asked


def bounded(asked: Sequence[AnswerLayout], folder: Path) -> list[list[list[int]]]:
    return [[part.total.tolist() for part in totals.bounded_totals(each, opened(study(), folder))] for each in asked]


def keys(folder: Path) -> list[dict[str, int]]:
    asked = [
        form(Query(TABLE, (Aggregate(Statistic.KEYS, "note"),)), study(unit=unit, rows=rows, groups=rows))
        for unit, rows in (("patient", 1), ("patient", 3), ("event", 1))
    ]
    return [dict(totals.key_counts(each, opened(study(), folder))) for each in asked]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_giant_in_pieces_gives_the_totals_it_gives_whole(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot(giant_rows(seed), study(), tmp_path)
    asked = questions()
    whole, all_keys = bounded(asked, tmp_path), keys(tmp_path)
    for rows in (1, 50):
        monkeypatch.setattr(totals, "chunks", functools.partial(chunks, rows=rows))
        assert bounded(asked, tmp_path) == whole
        assert keys(tmp_path) == all_keys


@pytest.mark.parametrize("most", [1, 5, 40, 1000])
def test_rows_sorted_in_parts_stand_unit_by_unit_in_keyed_order(tmp_path: Path, most: int) -> None:
    draw = np.random.default_rng(most)
    kind = np.dtype([(UNIT, "<i8"), (ORDER, "<u8"), ("c0", "<i4")])
    rows = np.empty(700, dtype=kind)
    rows[UNIT] = draw.choice([-5, 0, 1, 2, 2**40, *range(10, 40)], 700, p=[0.3, 0.2, 0.1, 0.04, 0.06, *[0.01] * 30])
    rows[ORDER] = draw.integers(0, 2**64, 700, dtype=np.uint64)
    # Equal rows have an equal order, and so do some that share all but its last bits.
    rows[ORDER][rows[UNIT] == 0] = 2**63 + 5
    near = rows[UNIT] == 1
    rows[ORDER][near] = draw.integers(0, 40, int(near.sum()), dtype=np.uint64)
    rows["c0"] = (rows[ORDER] % 1000).astype(np.int32)
    path = tmp_path / "rows"
    path.write_bytes(rows.tobytes())
    found = list(in_order(path, kind, most))
    assert not list(tmp_path.iterdir())
    assert all(piece.rows.size <= max(most, 1) for piece in found)
    every = np.concatenate([piece.rows for piece in found])
    begins = np.concatenate([piece.begins for piece in found])
    assert sorted(every.tolist()) == sorted(rows.tolist())
    assert begins.tolist() == [True, *(every[UNIT][1:] != every[UNIT][:-1]).tolist()]
    assert int(begins.sum()) == np.unique(rows[UNIT]).size
    same = every[UNIT][1:] == every[UNIT][:-1]
    assert (every[ORDER][1:] >= every[ORDER][:-1])[same].all()


def test_a_snapshot_made_in_little_memory_gives_the_same_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, asked = giant_rows(3), questions()
    snapshot(rows, study(), tmp_path / "much")
    whole, all_keys = bounded(asked, tmp_path / "much"), keys(tmp_path / "much")
    taken: list[int] = []

    def few(path: Path, row_type: np.dtype[np.void], most: int) -> object:
        for piece in in_order(path, row_type, 20):
            taken.append(piece.rows.size)
            yield piece

    monkeypatch.setattr(partitions, "in_order", few)
    snapshot(rows, study(), tmp_path / "little")
    assert max(taken) <= 20
    assert bounded(asked, tmp_path / "little") == whole
    assert keys(tmp_path / "little") == all_keys


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([row("p", note=f"text {place}") for place in range(5000)], "different texts in the column 'note'"),
        ([row(f"patient {place}") for place in range(5000)], "patients"),
    ],
)
def test_too_many_texts_for_the_memory_are_one_sentence_and_the_earlier_snapshot_stays(
    tmp_path: Path, rows: list[Row], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = prepare(Kept([row("p", note="n")]), study(), tmp_path)
    monkeypatch.setattr(ordering, "_TEXT_BYTES", Limits().working_bytes // 10_000)
    with pytest.raises(ConfigurationMistaken) as refused:
        prepare(Kept(rows), study(), tmp_path)
    assert refused.value.message == (
        f"The table 'visits' has too many {what} to be prepared in this site's memory; raise memory_mebibytes in "
        "site.toml, or do not prepare the table: questions then read its source."
    )
    assert [path.name for path in (tmp_path / TABLE).iterdir() if path.is_dir()] == [earlier.folder]
    assert opened(study(), tmp_path).manifest == earlier


def test_the_memory_of_a_sort_is_a_part_of_the_stated_one(tmp_path: Path) -> None:
    few, many = (Partitions(tmp_path, study().table(TABLE), KEY, Limits(memory_mebibytes=m)) for m in (1024, 4096))
    assert 4 < many._most_rows / few._most_rows < 6
    assert many._most_rows * many.row_type.itemsize < Limits().array_bytes
