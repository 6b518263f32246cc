"""What is refused before the charge, from names and types alone, and what fails after it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from site_agent.reading.dataset import TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.tables import (
    ARROW,
    COLUMNS,
    KEY,
    dataset,
    form,
    random_rows,
    study,
    totals,
    write_csv,
    write_parquet,
)
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused, SourceAway, SourceFailed
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

COUNT = Aggregate(Statistic.COUNT)
ASKED = form(
    Query(
        "visits",
        (COUNT, Aggregate(Statistic.MEAN, "sbp")),
        Comparison("seen", Operator.LESS, "2030-01-01"),
        (Grouping("dx"), Grouping("sex")),
    ),
    study(),
)
ROWS = random_rows(patients=20, rows=200, seed=8)


def parquet_with(tmp_path: Path, column: str, values: pa.Array) -> Path:
    arrays = {name: pa.nulls(2, kind) for name, kind in ARROW.items()}
    arrays[column] = values
    pq.write_table(pa.table(arrays), path := tmp_path / "visits.parquet")
    return path


WRONG = {
    "a boolean for a number": ("sbp", pa.array([True, False])),
    "a date for a number": ("sbp", pa.array([1, 2], pa.date32())),
    "a structure for a number": ("sbp", pa.array([{"a": 1.0}] * 2)),
    "a list for a number": ("sbp", pa.array([[1.0]] * 2)),
    "bytes for a category": ("dx", pa.array([b"E11"] * 2)),
    "a number for a category": ("dx", pa.array([1.5, 2.5])),
    "a list for a category": ("dx", pa.array([["E11"]] * 2)),
    "a number for a date": ("seen", pa.array([1, 2])),
    "a structure for a key": ("patient_id", pa.array([{"a": 1}] * 2)),
    "a map for a key": ("patient_id", pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64()))),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declared_type_is_refused_by_column(tmp_path: Path, case: str) -> None:
    column, values = WRONG[case]
    with pytest.raises(SchemaRefused, match=repr(column)) as refusal:
        dataset(parquet_with(tmp_path, column, values)).check(ASKED)
    assert refusal.value.message.count(".") == 1


RIGHT = {
    "a 32-bit number": ("sbp", pa.array([100.0, 120.0], pa.float32())),
    "a whole number": ("sbp", pa.array([100, 120], pa.uint64())),
    "a decimal": ("sbp", pa.array([100, 120], pa.decimal128(38, 2))),
    "no type at all": ("sbp", pa.nulls(2)),
    "a dictionary": ("dx", pa.array(["E11", "I10"]).dictionary_encode()),
    "a timestamp": ("seen", pa.array([1, 2], pa.timestamp("ns"))),
    "a timestamp with a zone": ("seen", pa.array([1, 2], pa.timestamp("us", "Europe/Berlin"))),
    "a timestamp of pandas": ("seen", pa.array([1, 2], pa.timestamp("ns", "UTC"))),
    "text for a number": ("sbp", pa.array(["1", "2"])),
    "text for a boolean": ("sex", pa.array(["true"] * 2)),
    "text for a date": ("seen", pa.array(["2024-01-01"] * 2)),
    "a number as a boolean": ("sex", pa.array([0, 1], pa.int8())),
    "an integer key": ("patient_id", pa.array([1, 2])),
    "a floating key": ("patient_id", pa.array([1.0, float("nan")])),
    "bytes as a key": ("patient_id", pa.array([b"\x00", b"\xff"])),
    "a decimal key": ("patient_id", pa.array([1, 2], pa.decimal128(38, 0))),
    "a date as a key": ("patient_id", pa.array([1, 2], pa.date32())),
}


@pytest.mark.parametrize("case", RIGHT)
def test_types_that_can_hold_the_declared_one_are_read(tmp_path: Path, case: str) -> None:
    column, values = RIGHT[case]
    assert len(totals(dataset(parquet_with(tmp_path, column, values)), ASKED)) == 2


@pytest.mark.parametrize("missing", ["patient_id", "sbp", "dx", "seen"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_missing_column_is_refused_by_name(tmp_path: Path, kind: str, missing: str) -> None:
    types = {name: value for name, value in ARROW.items() if name != missing}
    path = tmp_path / f"visits.{kind}"
    _ = write_csv(path, ROWS, tuple(types)) if kind == "csv" else write_parquet(path, ROWS, types)
    with pytest.raises(SchemaRefused, match=repr(missing)):
        dataset(path).check(ASKED)


def test_columns_the_question_does_not_need_may_be_missing(tmp_path: Path) -> None:
    types = {name: ARROW[name] for name in ("patient_id", "dx", "seen", "sex", "sbp")}
    assert totals(dataset(write_parquet(tmp_path / "a.parquet", ROWS, types)), ASKED)


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "none-*.parquet", "empty"])
def test_a_source_without_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SchemaRefused, match="does not exist") as refusal:
        open_dataset({"visits": TableSource("parquet", name)}, folder=tmp_path, key=KEY).check(ASKED)
    assert str(tmp_path) not in refusal.value.message


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1", b"patient_id,sbp\n"])
def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(SourceAway, match="not valid Parquet") as away:
        dataset(tmp_path / "a.parquet").check(ASKED)
    assert away.value.unread


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_without_permission_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"")
    path.chmod(0)
    with pytest.raises(SchemaRefused, match="permissions"):
        dataset(path).check(ASKED)


def test_a_table_without_a_source_is_refused() -> None:
    with pytest.raises(SchemaRefused, match="no source"):
        open_dataset({}, folder=Path("/"), key=KEY).check(ASKED)


@pytest.mark.parametrize(
    "source",
    [TableSource("visits.xlsx"), TableSource("csv"), TableSource(""), TableSource("a.csv", "b"), TableSource("csv:")],
)
def test_a_source_that_cannot_be_understood_is_a_configuration_mistake(source: TableSource) -> None:
    with pytest.raises(ConfigurationMistaken, match=r"tables\.visits\."):
        open_dataset({"visits": source}, folder=Path("/"), key=KEY)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        open_dataset({}, folder=Path("/"), key=b"short")


# --- Several files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        TableSource("parts/*.parquet"),
        TableSource("parquet", "parts"),
        TableSource("parquet:parts/**/*.parquet"),
        TableSource("parquet", "parts/[ab]*.parquet"),
    ],
)
def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path, source: TableSource) -> None:
    (tmp_path / "parts").mkdir()
    write_parquet(tmp_path / "parts" / "a.parquet", ROWS[:50])
    write_parquet(tmp_path / "parts" / "b.parquet", ROWS[50:120], dict(reversed(ARROW.items())))
    wider = {**ARROW, "sbp": pa.float64(), "age": pa.int16(), "cost": pa.decimal128(20, 3)}
    write_parquet(tmp_path / "parts" / "b2.parquet", [{**row, "cost": None} for row in ROWS[120:]], wider)
    whole = totals(dataset(write_parquet(tmp_path / "whole.parquet", ROWS)), ASKED)
    assert totals(open_dataset({"visits": source}, folder=tmp_path, key=KEY), ASKED) == whole


def test_csv_files_with_other_orders_and_delimiters_are_one_table(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ROWS[:100])
    second = write_csv(tmp_path / "b.csv", ROWS[100:], tuple(reversed(ARROW)))
    second.write_text(second.read_text().replace(",", ";"))
    expected = totals(dataset(write_parquet(tmp_path / "whole.parquet", ROWS)), ASKED)
    assert totals(dataset(tmp_path / "*.csv"), ASKED) == expected


def test_a_patient_in_two_files_with_other_key_types_is_one_patient(tmp_path: Path) -> None:
    asked = form(Query("visits", (Aggregate(Statistic.COUNT, "patient_id"),)), study(), Mechanism.DISCRETE_LAPLACE)
    write_parquet(tmp_path / "a.parquet", [{"patient_id": "17"}, {"patient_id": "18"}])
    write_parquet(tmp_path / "b.parquet", [{"patient_id": 17}], {**ARROW, "patient_id": pa.int32()})
    assert totals(dataset(tmp_path / "*.parquet"), asked) == [[2]]


def test_one_bad_file_among_many_is_seen_by_the_check(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ROWS)
    write_parquet(tmp_path / "b.parquet", [], {**ARROW, "sbp": pa.bool_()})
    with pytest.raises(SchemaRefused, match="'sbp'"):
        dataset(tmp_path / "*.parquet").check(ASKED)


# --- Between the check and the answer ---------------------------------------------------------------------


def _remove(path: Path) -> None:
    path.unlink()


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _retype(path: Path) -> None:
    write_parquet(path, [], {**ARROW, "sbp": pa.bool_()})


def _rename_column(path: Path) -> None:
    write_parquet(path, [], {name.replace("sbp", "pbs"): kind for name, kind in ARROW.items()})


def _garble_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(bytes(content))


CHANGES: list[Callable[[Path], None]] = [
    _remove,
    _make_folder,
    _retype,
    _rename_column,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_after_the_check_fails_with_the_fixed_sentence(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    source = dataset(write_parquet(tmp_path / "a.parquet", ROWS))
    source.check(ASKED)
    change(tmp_path / "a.parquet")
    with pytest.raises(SourceFailed) as failure:
        source.bounded(ASKED)
    assert failure.value.message == SourceFailed.sentence
    assert failure.value.private == ""
    assert failure.value.__context__ is None


@pytest.mark.parametrize("change", [_truncate, _garble_pages])
def test_a_file_that_was_broken_after_the_check_is_away(tmp_path: Path, change: Callable[[Path], None]) -> None:
    source = dataset(write_parquet(tmp_path / "a.parquet", ROWS))
    source.check(ASKED)
    change(tmp_path / "a.parquet")
    with pytest.raises(SourceAway) as away:
        source.bounded(ASKED)
    assert away.value.unread
    assert away.value.__context__ is None


def test_a_source_that_failed_answers_again_once_it_is_mended(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    source = dataset(path)
    before = totals(source, ASKED)
    kept = shutil.copy(path, tmp_path / "kept")
    _garble_pages(path)
    with pytest.raises(SourceAway):
        source.bounded(ASKED)
    shutil.copy(kept, path)
    assert totals(source, ASKED) == before


def test_new_rows_are_seen_by_the_next_question(tmp_path: Path) -> None:
    asked = form(Query("visits", (COUNT,)), study(unit="event", columns=COLUMNS), Mechanism.DISCRETE_LAPLACE)
    source = dataset(tmp_path / "*.parquet")
    write_parquet(tmp_path / "a.parquet", ROWS[:10])
    assert totals(source, asked) == [[10]]
    write_parquet(tmp_path / "a.parquet", ROWS[:20])
    assert totals(source, asked) == [[20]]
    write_parquet(tmp_path / "b.parquet", ROWS[:5])
    assert totals(source, asked) == [[25]]
