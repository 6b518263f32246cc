"""Every source hands out the same examples: the cohort's complete rows, each patient's together, within bounds."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from site_agent.learning.training_step import take
from site_agent.reading.dataset import Dataset, TableSource, check_form
from site_agent.reading.examples import Examples, Folds
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.learning.plain_steps import LAW, SCALE
from tests.site_agent.sources.conformance.sources import KEY, SOURCES
from tests.site_agent.sources.conformance.study_rows import COHORTS, TEXTS, UNIT_KEY, agreed, rows_of, strange
from tests.site_agent.sources.reference_totals import Row, held_value, selects
from tests.site_agent.sources.tables import write_csv
from wardround.federation.errors import SchemaRefused, SourceFailed
from wardround.federation.models.step_layout import StepLayout, step_form
from wardround.federation.models.training import Input, Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import Expression
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study import Study, Unit
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.noise import ZeroNoise

FEATURES = ("age", "sbp", "gain", "dx", "ward", "cost")
SHARE = Fraction(1, 4)
Unit_ = tuple[bool, tuple[tuple[float, ...], ...]]
"""Whether a unit is held out, and its rows, the target last."""


def form_of(study: Study, cohort: Expression | None = None, *, target: str = "sex") -> StepLayout:
    kind = ModelKind.LOGISTIC if target == "sex" else ModelKind.LINEAR
    stages = (Stage(StageKind.MOMENTS, SCALE, 3),)
    return step_form(Step(Training(Model(kind, "visits", target, FEATURES, cohort), stages, SHARE), 0, 0), study)


def plain(form: StepLayout, rows: Sequence[Row]) -> list[Unit_]:
    """The same in plain Python."""
    cohort = form.step.training.model.cohort
    asked = shape(Query("visits", (Aggregate(Statistic.COUNT),), cohort), agreed(), Mechanism.DISCRETE_LAPLACE)
    units: dict[object, list[tuple[float, ...]]] = defaultdict(list)
    for place, row in enumerate(rows):
        values = [_number(form, each, row) for each in (*form.inputs, form.target)]
        if row[UNIT_KEY] not in (None, "") and None not in values and selects(asked, row):
            key = row[UNIT_KEY] if form.unit is Unit.PATIENT else (row[UNIT_KEY], place)
            units[key].append(tuple(value for value in values if value is not None))
    keys = [str(key[0] if isinstance(key, tuple) else key) for key in units]
    folds = Folds(KEY, SHARE).held_out(keys, len(keys)).tolist()
    return sorted((out, tuple(sorted(mine))) for out, mine in zip(folds, units.values(), strict=True))


def _number(form: StepLayout, wanted: Input, row: Row) -> float | None:
    column = form.table.column(wanted.column)
    held = held_value(row, column)
    if held is None or (column.values and held not in column.values):
        return None
    if wanted.value is not None:
        return float(held == wanted.value)
    assert isinstance(held, int | float)
    return min(max(float(held), wanted.low), wanted.high)


def found(examples: Examples) -> list[Unit_]:
    rows = [tuple(map(float, (*line, target))) for line, target in zip(examples.inputs, examples.target, strict=True)]
    parts = [tuple(sorted(rows[a:b])) for a, b in zip(examples.starts, examples.starts[1:], strict=False)]
    return sorted(zip(examples.held_out.tolist(), parts, strict=True))


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if reason := SOURCES[name].absent():
        pytest.skip(reason)
    return name


def test_every_source_gives_the_examples_of_plain_python(source: str, tmp_path: Path) -> None:
    draw = random.Random(7)
    rows = rows_of(draw, patients=25, rows=160)
    dataset = SOURCES[source].opened(rows, agreed(), tmp_path)
    for unit in ("patient", "event"):
        for cohort in COHORTS:
            for target in ("sex", "days"):
                form = form_of(agreed(unit=unit), cohort, target=target)
                check_form(dataset, form)
                examples = dataset.examples(form)
                assert found(examples) == plain(form, rows)
                assert examples.held_out.any()
                assert not examples.held_out.all()


def test_what_nobody_expects_is_left_out_without_a_word(source: str, tmp_path: Path) -> None:
    draw, study = random.Random(8), agreed()
    rows = [strange(draw, f"p{n % 9}", texts=SOURCES[source].untyped) for n in range(150)]
    rows += [{**rows[0], name: text} for name in FEATURES for text in TEXTS[:12] if SOURCES[source].untyped]
    dataset = SOURCES[source].opened(rows, study, tmp_path)
    for cohort in COHORTS:
        form = form_of(study, cohort)
        examples = dataset.examples(form)
        assert np.isfinite(examples.inputs).all()
        assert np.isfinite(examples.target).all()
        low, high = ([getattr(each, end) for each in form.inputs] for end in ("low", "high"))
        assert ((examples.inputs >= low) & (examples.inputs <= high)).all()
        assert take(form, examples, LAW, ZeroNoise()).size == form.dimension


def test_a_patient_changes_nothing_about_others(source: str, tmp_path: Path) -> None:
    draw, study, form = random.Random(9), agreed(), form_of(agreed())
    others = rows_of(draw, patients=6, rows=30)
    mine = [strange(draw, "target") for _ in range(20)]
    totals: list[list[int]] = []
    for place, rows in enumerate((others, mine, [*mine[:7], *others, *mine[7:]])):
        folder = tmp_path / str(place)
        folder.mkdir()
        totals.append(take(form, SOURCES[source].opened(rows, study, folder).examples(form), LAW, ZeroNoise()).tolist())
    without, alone, along = totals
    assert [more - less for more, less in zip(along, without, strict=True)] == alone


def test_the_order_of_rows_in_a_source_is_forgotten(tmp_path: Path) -> None:
    draw, form = random.Random(10), form_of(agreed())
    rows = rows_of(draw, patients=4, rows=60)
    seen: set[tuple[bytes, ...]] = set()
    for place in range(4):
        draw.shuffle(rows)
        folder = tmp_path / str(place)
        folder.mkdir()
        examples = SOURCES["csv"].opened(rows, agreed(), folder).examples(form)
        parts = zip(examples.starts, examples.starts[1:], strict=False)
        seen.add(tuple(sorted(examples.inputs[a:b].tobytes() for a, b in parts)))
    assert len(seen) == 1


def whole_keys(tmp_path: Path) -> Iterator[Dataset]:
    draw = random.Random(11)
    rows = [{**row, UNIT_KEY: place % 40} for place, row in enumerate(rows_of(draw, patients=3, rows=120))]
    for kind in ("csv", "sqlite", "duckdb", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        as_text = [{**row, UNIT_KEY: str(row[UNIT_KEY])} for row in rows]
        yield SOURCES[kind].opened(rows if kind in ("csv", "sqlite") else as_text, agreed(), folder)
    names = [UNIT_KEY, *(column.name for column in agreed().tables[0].columns)]
    write_csv(tmp_path / "visits.csv", rows, names)
    relation = f"SELECT * REPLACE (CAST({UNIT_KEY} AS BIGINT) AS {UNIT_KEY}) FROM this"
    yield open_dataset({"visits": TableSource("visits.csv", relation)}, folder=tmp_path, key=KEY)


def test_whole_numbers_as_keys_are_the_same_patients_in_the_same_folds(tmp_path: Path) -> None:
    form = form_of(agreed())
    first, *others = [found(dataset.examples(form)) for dataset in whole_keys(tmp_path)]
    assert len(others) == 4
    assert all(other == first for other in others)


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "sqlite"])
def test_a_file_that_is_gone_is_refused_before_the_charge_and_a_failure_after_it(kind: str, tmp_path: Path) -> None:
    study, form = agreed(), form_of(agreed())
    dataset = SOURCES[kind].opened([{UNIT_KEY: "p"}], study, tmp_path)
    check_form(dataset, form)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(SchemaRefused):
        check_form(dataset, form)
    with pytest.raises(SourceFailed) as failure:
        dataset.examples(form)
    assert failure.value.__cause__ is failure.value.__context__ is None


def test_a_table_without_a_source_is_refused() -> None:
    with pytest.raises(SchemaRefused, match="no source"):
        check_form(open_dataset({}, folder=Path("/"), key=KEY), form_of(agreed()))


def test_columns_that_a_training_does_not_name_may_be_absent(tmp_path: Path) -> None:
    rows = rows_of(random.Random(12), patients=5, rows=30)
    write_csv(tmp_path / "visits.csv", rows, [UNIT_KEY, *FEATURES, "sex"])
    dataset = open_dataset({"visits": TableSource("visits.csv")}, folder=tmp_path, key=KEY)
    form = form_of(agreed())
    check_form(dataset, form)
    assert found(dataset.examples(form)) == plain(form, rows)
    with pytest.raises(SchemaRefused, match="seen"):
        check_form(dataset, form_of(agreed(), COHORTS[1]))
