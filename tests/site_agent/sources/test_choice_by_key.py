"""Which rows of a patient count, and who is held out, the site's own key decides: in every source, in snapshots too.

Nothing else may decide it. A choice that anybody without the key could foresee would let whoever writes rows choose.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from site_agent.reading.columnstore.clustering import KeyedOrder
from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.columnstore.prepared_source import prepared
from tests.site_agent.learning.plain_steps import SCALE
from tests.site_agent.sources.conformance.sources import ARROW
from tests.site_agent.sources.conformance.study_rows import UNIT_KEY, agreed, question, usual
from tests.site_agent.sources.database_files import write_duckdb, write_sqlite
from tests.site_agent.sources.postgresql_cluster import absent, cluster
from tests.site_agent.sources.postgresql_tables import TYPES, new_table
from tests.site_agent.sources.reference_totals import Row
from tests.site_agent.sources.tables import write_csv, write_parquet
from wardround.federation.models.step_layout import StepLayout, step_form
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.question.query import Grouping, Statistic

OURS, THEIRS = (hashlib.sha256(name).digest() for name in (b"ours", b"theirs"))
PATIENTS, ROWS = 60, 5
# One row and one group of each patient count: whatever is asked, five of six are left out.
STUDY = agreed(rows=1, groups=1)
NAMES = (UNIT_KEY, *(column.name for column in STUDY.tables[0].columns))
# Whether patients are whole numbers decides how a source tells them apart.
KINDS = ("csv", "parquet whole", "sqlite", "sqlite whole", "duckdb", "duckdb whole", "postgresql", "postgresql whole")
Open = Callable[[bytes], Dataset]


def rows_of(*, whole: bool) -> list[Row]:
    draw = random.Random(11)
    units = [place * 7 if whole else f"p{place}" for place in range(PATIENTS)]
    return [usual(draw, unit) for unit in units for _ in range(ROWS)]


def written(kind: str, folder: Path, *, whole: bool) -> TableSource:
    """The rows in a source of this kind; its patients are numbers or texts."""
    rows = rows_of(whole=whole)
    columns = {column.name: column.type for column in STUDY.tables[0].columns}
    arrow = {UNIT_KEY: pa.int64() if whole else pa.string()} | {name: ARROW[kind] for name, kind in columns.items()}
    match kind:
        case "csv":
            return TableSource(str(write_csv(folder / "visits.csv", rows, NAMES)))
        case "parquet":
            return TableSource(str(write_parquet(folder / "visits.parquet", rows, arrow)))
        case "sqlite":
            return TableSource(str(write_sqlite(folder / "visits.sqlite", rows, NAMES)))
        case "duckdb":
            return TableSource(str(write_duckdb(folder / "visits.duckdb", rows, arrow)))
        case _:
            types = {UNIT_KEY: "bigint" if whole else "text"} | {name: TYPES[kind] for name, kind in columns.items()}
            return TableSource(cluster().address(), f'"{new_table(rows, types)}"')


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Open:
    """A source under any key."""
    kind, _, whole = request.param.partition(" ")
    if kind == "postgresql" and (reason := absent()):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("choice")
    source = written(kind, folder, whole=bool(whole))
    return lambda key: open_dataset({"visits": source}, folder=folder, key=key)


QUESTIONS: tuple[tuple[Statistic, tuple[Grouping, ...]], ...] = (
    (Statistic.SUM, ()),
    (Statistic.SUM, (Grouping("dx"),)),
    (Statistic.REGRESSION, (Grouping("dx"),)),
    (Statistic.KEYS, ()),
)


def answer(
    dataset: Dataset, statistic: Statistic, grouping: tuple[Grouping, ...]
) -> list[list[int]] | Mapping[str, int]:
    asked = question(statistic, STUDY, grouping)
    if statistic is Statistic.KEYS:
        return dataset.keys(asked)
    return [part.total.tolist() for part in dataset.bounded(asked)]


def answers(dataset: Dataset) -> list[object]:
    return [answer(dataset, *each) for each in QUESTIONS]


def test_the_site_s_key_alone_chooses_which_rows_count(opened: Open) -> None:
    first = answers(opened(OURS))
    assert answers(opened(OURS)) == first
    for ours, theirs in zip(first, answers(opened(THEIRS)), strict=True):
        assert ours != theirs


@pytest.mark.parametrize("opened", ["csv", "parquet whole"], indirect=True)
def test_the_key_of_a_snapshot_alone_chooses_which_rows_count(opened: Open, tmp_path: Path) -> None:
    first, again, theirs = (
        answers(prepared(opened(key), STUDY, tmp_path / name, key=key))
        for name, key in (("first", OURS), ("again", OURS), ("theirs", THEIRS))
    )
    assert first == again
    for ours, other in zip(first, theirs, strict=True):
        assert ours != other


def form_of() -> StepLayout:
    model = Model(ModelKind.LINEAR, "visits", "days", ("age", "sbp"))
    return step_form(Step(Training(model, (Stage(StageKind.MOMENTS, SCALE, 3),), Fraction(1, 4)), 0, 0), STUDY)


def folds(dataset: Dataset) -> tuple[list[list[float]], frozenset[tuple[float, ...]]]:
    """Every row in the order of its patient's, and the rows of those who are held out."""
    found = dataset.examples(form_of())
    rows = [[*map(float, inputs), float(target)] for inputs, target in zip(found.inputs, found.target, strict=True)]
    out = [place for unit, held in enumerate(found.held_out) if held for place in range(*found.starts[unit : unit + 2])]
    return rows, frozenset(tuple(rows[place]) for place in out)


def test_the_site_s_key_alone_decides_who_is_held_out(opened: Open) -> None:
    rows, held = folds(opened(OURS))
    assert folds(opened(OURS)) == (rows, held)
    others, held_there = folds(opened(THEIRS))
    assert 0 < len(held) < len(rows)
    assert held != held_there
    assert sorted(rows) == sorted(others), "the same rows, in another order and in other folds"


def test_the_order_within_a_patient_follows_from_the_key_whatever_a_row_holds() -> None:
    words = [np.arange(100, dtype=np.uint64)]
    ours, again, theirs = (KeyedOrder(key) for key in (OURS, OURS, THEIRS))
    assert ours.of_rows(words).tolist() == again.of_rows(words).tolist() != theirs.of_rows(words).tolist()
    assert ours.of_text("E11") == again.of_text("E11") != theirs.of_text("E11")
