"""A snapshot that is stale, damaged or foreign is noticed and never used: the source itself is read instead."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.reading.batches import stat_text
from site_agent.reading.columnstore.snapshot import Manifest, Unusable, read_manifest, sealed
from tests.site_agent.columnstore.prepared_tables import (
    KEY,
    TABLE,
    Kept,
    dataset,
    form,
    opened,
    prepare,
    random_rows,
    row,
    study,
    totals,
)
from wardround.federation.errors import SourceFailed
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic

ROWS = random_rows(patients=9, rows=100, seed=1)
ASKED = form(
    Query(TABLE, (Aggregate(Statistic.COUNT), Aggregate(Statistic.MEAN, "sbp")), None, (Grouping("dx"),)), study()
)


def column_file(folder: Path, manifest: Manifest, name: str) -> Path:
    kept = next(each for each in manifest.columns if each.column == name)
    return folder / TABLE / manifest.folder / kept.codes.file


def test_a_current_snapshot_answers_and_the_source_is_not_read(tmp_path: Path) -> None:
    source = Kept(ROWS)
    prepare(source, study(), tmp_path)
    found = dataset(source, study(), tmp_path).bounded(ASKED)
    assert [part.total.tolist() for part in found] == totals(ASKED, opened(study(), tmp_path))
    assert source.asked == []


def test_without_a_snapshot_the_source_answers_and_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Kept(ROWS)
    tables = dataset(source, study(), tmp_path)
    assert tables.bounded(ASKED) == ()
    assert source.asked == ["bounded"]
    assert not tables.standing(study().table(TABLE)).exists
    assert caplog.records == []


Spoil = Callable[[Path, Manifest, Kept], None]


def changed(folder: Path, manifest: Manifest, source: Kept) -> None:
    source.state = "second"


def flipped(folder: Path, manifest: Manifest, source: Kept) -> None:
    path = column_file(folder, manifest, "dx")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def shortened(folder: Path, manifest: Manifest, source: Kept) -> None:
    path = column_file(folder, manifest, "sbp")
    path.write_bytes(path.read_bytes()[:-1])


def removed(folder: Path, manifest: Manifest, source: Kept) -> None:
    column_file(folder, manifest, "dx").unlink()


def patients_replaced(folder: Path, manifest: Manifest, source: Kept) -> None:
    path = folder / TABLE / manifest.folder / "patient"
    path.write_bytes(np.arange(manifest.rows, dtype="<i4").tobytes())


def of_another_version(folder: Path, manifest: Manifest, source: Kept) -> None:
    path = folder / TABLE / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'\\"format\\": 1', b'\\"format\\": 2'))


def of_another_study(folder: Path, manifest: Manifest, source: Kept) -> None:
    prepare(source, study(name="another"), folder)


def of_another_key(folder: Path, manifest: Manifest, source: Kept) -> None:
    prepare(source, study(), folder, key=bytes(32))


def emptied(folder: Path, manifest: Manifest, source: Kept) -> None:
    (folder / TABLE / "manifest.json").write_bytes(b"")


@pytest.mark.parametrize(
    "spoil",
    [
        changed,
        flipped,
        shortened,
        removed,
        patients_replaced,
        of_another_version,
        of_another_study,
        of_another_key,
        emptied,
    ],
)
@pytest.mark.parametrize("asked_before", [False, True])
def test_what_is_not_as_it_should_be_is_not_used(
    spoil: Spoil, asked_before: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Kept(ROWS)
    manifest = prepare(source, study(), tmp_path)
    tables = dataset(source, study(), tmp_path)
    if asked_before:
        tables.bounded(ASKED)
    spoil(tmp_path, manifest, source)
    with caplog.at_level(logging.INFO):
        assert tables.bounded(ASKED) == ()
    assert source.asked == ["bounded"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the snapshot of visits is not used" in caplog.text
    assert tables.standing(study().table(TABLE)).fault is not None


def test_a_source_that_cannot_say_whether_it_changed_is_trusted_for_the_declared_hours(tmp_path: Path) -> None:
    source = Kept(ROWS, sees_changes=False)
    prepare(source, study(), tmp_path)
    table = study().table(TABLE)
    assert dataset(source, study(), tmp_path, hours=1.0, age_seconds=3599.0).standing(table).fault is None
    for age_seconds in (3601.0, -1.0):
        old = dataset(source, study(), tmp_path, hours=1.0, age_seconds=age_seconds)
        assert "prepared_hours" in (old.standing(table).fault or "")


def test_no_byte_of_a_manifest_can_change_what_is_answered(tmp_path: Path) -> None:
    prepare(Kept(ROWS), study(), tmp_path)
    path = tmp_path / TABLE / "manifest.json"
    whole = path.read_bytes()
    manifest = read_manifest(tmp_path / TABLE, KEY)
    for place in range(0, len(whole), 11):
        for bit in (1, 64):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                assert read_manifest(tmp_path / TABLE, KEY) == manifest
            except Unusable:
                continue


def test_rows_out_of_order_are_answered_from_the_source_and_never_a_wrong_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A snapshot that is sealed and whole, and wrong all the same."""
    source = Kept([row(unit, dx="E11") for unit in range(20)])
    manifest = prepare(source, study(), tmp_path)
    codes = np.zeros(20, dtype="<i4")
    codes[10] = 1
    (tmp_path / TABLE / manifest.folder / "patient").write_bytes(codes.tobytes())
    digest = hashlib.sha256(codes.tobytes()).hexdigest()
    patient = replace(manifest.patient, codes=replace(manifest.patient.codes, digest=digest))
    (tmp_path / TABLE / "manifest.json").write_bytes(sealed(replace(manifest, patient=patient), KEY))
    tables = dataset(source, study(), tmp_path)
    assert tables.bounded(ASKED) == (), "the source itself is read, for the same question"
    assert "not in order" in caplog.text
    assert tables.bounded(ASKED) == ()
    assert "not in order" in (tables.standing(study().table(TABLE)).fault or ""), "and for every other"


@pytest.mark.parametrize("fault", [KeyError, OverflowError, FloatingPointError, TypeError, OSError, MemoryError])
def test_whatever_fails_in_a_snapshot_is_answered_from_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def failing(*_: object) -> None:
        raise fault

    source = Kept(ROWS)
    prepare(source, study(), tmp_path)
    tables = dataset(source, study(), tmp_path)
    monkeypatch.setattr("site_agent.reading.columnstore.prepared_dataset.bounded_totals", failing)
    assert tables.bounded(ASKED) == ()
    assert source.asked == ["bounded"]


def test_a_failure_of_the_source_carries_nothing_of_the_snapshot(tmp_path: Path) -> None:
    class Failing(Kept):
        def bounded(self, form: object) -> tuple[()]:
            raise SourceFailed

    source = Failing(ROWS)
    prepare(source, study(), tmp_path)
    source.state = "second"
    with pytest.raises(SourceFailed) as failure:
        dataset(source, study(), tmp_path).bounded(ASKED)
    assert failure.value.__context__ is None


def test_a_file_that_keeps_its_size_and_its_time_is_another_state_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("patient_id,dx\n1,E11\n")
    before, times = stat_text([path]), path.stat()
    # A file system may know the time to some milliseconds only; within them nobody could see a change.
    probe = tmp_path / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns == times.st_ctime_ns:
        probe.touch()
    path.write_text("patient_id,dx\n1,I10\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stat_text([path]) != before


def test_the_fingerprint_names_no_path(tmp_path: Path) -> None:
    path = tmp_path / "canary.csv"
    path.write_text("patient_id\n1\n")
    assert "canary" not in json.dumps(stat_text([path]))
