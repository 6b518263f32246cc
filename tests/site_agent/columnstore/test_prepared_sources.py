"""Rows of every kind of source can be prepared, and the snapshot then gives the integers of the source itself."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from site_agent.reading.batches import Preparable
from site_agent.reading.columnstore.prepared_dataset import Freshness
from site_agent.reading.dataset import Tables, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.columnstore.prepared_source import prepared
from tests.site_agent.sources.conformance.sources import KEY, SOURCES
from tests.site_agent.sources.conformance.study_rows import COHORTS, GROUPINGS, agreed, question, rows_of, strange
from wardround.federation.question.query import Statistic

ASKED = (Statistic.COUNT, Statistic.SUM, Statistic.MEAN, Statistic.CORRELATION, Statistic.SURVIVAL)


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "prepared"])
def test_a_snapshot_of_any_source_gives_its_integers(source: str, tmp_path: Path) -> None:
    if reason := SOURCES[source].absent():
        pytest.skip(reason)
    draw, study = random.Random(3), agreed()
    rows = rows_of(draw, patients=20, rows=100)
    rows += [strange(draw, f"p{n % 5}", texts=SOURCES[source].untyped) for n in range(30)]
    direct = SOURCES[source].opened(rows, study, tmp_path)
    assert isinstance(direct, Tables)
    assert isinstance(direct.sources["visits"], Preparable)
    copied = prepared(direct, study, tmp_path, key=KEY)
    for statistic, grouping in zip(ASKED, GROUPINGS.values(), strict=False):
        for cohort in COHORTS:
            asked = question(statistic, study, grouping, cohort)
            found, own = copied.bounded(asked), direct.bounded(asked)
            assert [part.total.tolist() for part in found] == [part.total.tolist() for part in own]
    keys = question(Statistic.KEYS, study)
    assert copied.keys(keys) == direct.keys(keys)


@pytest.mark.parametrize("held", [True, False], ids=["beside a writer", "alone"])
def test_reading_a_database_with_a_log_is_no_change_of_it_and_writing_is(held: bool, tmp_path: Path) -> None:
    path, study = tmp_path / "visits.sqlite", agreed()
    names = ["patient_id", *(column.name for column in study.tables[0].columns)]
    writer = sqlite3.connect(path)
    with contextlib.closing(writer):
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute(f"CREATE TABLE visits ({', '.join(names)})")
        writer.execute("INSERT INTO visits (patient_id) VALUES ('a')")
        writer.commit()
        if not held:
            writer.close()
        tables = open_dataset({"visits": TableSource(str(path))}, folder=tmp_path, key=KEY)
        copied = prepared(tables, study, tmp_path, key=KEY)
        assert copied.standing(study.tables[0]) == Freshness(exists=True)
        tables.bounded(question(Statistic.COUNT, study))
        assert copied.standing(study.tables[0]) == Freshness(exists=True)
        with contextlib.closing(sqlite3.connect(path)) as another:
            another.execute("INSERT INTO visits (patient_id) VALUES ('b')")
            another.commit()
            assert copied.standing(study.tables[0]).fault is not None
