"""Whose rows are whose: one patient is never two, never two at once, and never decides what counts of another."""

from __future__ import annotations

import dataclasses
import decimal
import random
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from site_agent.reading.bounding.contribution_bounding import Coded, coded_tally, record_number
from tests.site_agent.columnstore.prepared_source import prepared
from tests.site_agent.sources.database_files import write_sqlite
from tests.site_agent.sources.tables import ARROW, KEY, Row, dataset, form, study, totals
from wardround.federation.errors import QueryMistaken
from wardround.federation.question.query import Aggregate, Clip, Grouping, Query, Statistic

PATIENTS = form(Query("visits", (Aggregate(Statistic.COUNT, "patient_id"),)), study())
EACH = 64
"""A count's steps for one patient."""

NUMBERS: dict[str, pa.Array] = {
    "whole": pa.array([123, 7], pa.int64()),
    "double": pa.array([123.0, None], pa.float64()),
    "decimal": pa.array([decimal.Decimal("123.00"), decimal.Decimal("7.00")], pa.decimal128(10, 2)),
    "other decimal": pa.array([decimal.Decimal("123.0000"), None], pa.decimal128(20, 4)),
    "text": pa.array(["123", "7"], pa.string()),
}


def test_a_patient_is_one_in_files_that_hold_the_key_in_different_types(tmp_path: Path) -> None:
    for name, keys in NUMBERS.items():
        pq.write_table(pa.table({"patient_id": keys}), tmp_path / f"{name}.parquet")
    assert totals(dataset(f"parquet:{tmp_path}"), PATIENTS) == [[2 * EACH]]


@pytest.mark.parametrize(
    ("keys", "patients"),
    [
        (pa.array([0.0, -0.0], pa.float64()), 1),
        (pa.array([0.1, 0.25, 1e300, float("nan"), float("inf")], pa.float64()), 3),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("15.00"), decimal.Decimal("0.15")]), 3),
    ],
)
def test_numbers_are_the_same_patient_exactly_where_they_are_equal(
    keys: pa.Array, patients: int, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"patient_id": keys}), tmp_path / "visits.parquet")
    assert totals(dataset(tmp_path / "visits.parquet"), PATIENTS) == [[patients * EACH]]


def test_texts_are_the_same_patient_exactly_where_their_bytes_are(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "visits.duckdb")) as connection:
        connection.execute("CREATE TABLE visits (patient_id VARCHAR COLLATE NOCASE)")
        connection.execute("INSERT INTO visits VALUES ('a'), ('A'), ('b'), ('b ')")
    assert totals(dataset(f"duckdb:///{tmp_path}/visits.duckdb"), PATIENTS) == [[4 * EACH]]


def test_no_other_patients_key_changes_which_rows_of_a_snapshot_count(tmp_path: Path) -> None:
    chance = random.Random(5)
    rows: list[Row] = [
        {"patient_id": place % 10, "sbp": chance.uniform(80, 200), "dx": chance.choice(("E11", "I10"))}
        for place in range(200)
    ]
    other: Row = {"patient_id": "a text", "sbp": 100.0, "dx": "ü"}
    agreed = study(rows=2, groups=1)
    question = form(Query("visits", (Aggregate(Statistic.SUM, "sbp"),), group_by=(Grouping("dx"),)), agreed)
    found = []
    for name, held in (("without", rows), ("with", [*rows, other])):
        path = write_sqlite(tmp_path / f"{name}.db", held, tuple(ARROW))
        tables = dataset(f"sqlite:///{path}")
        found.append(totals(prepared(tables, agreed, tmp_path / name), question)[0])
    assert found[0][:3] == found[1][:3]
    assert found[1][3] == 100 / question.parts[0].grid


def test_rows_too_wide_for_one_number_are_chosen_by_what_they_hold_and_not_by_their_order() -> None:
    asked = form(Query("visits", (Aggregate(Statistic.SUM, "gain"),)), study())
    # The widest sum there can be, over the most groups.
    (narrow,) = asked.parts
    quantiser = dataclasses.replace(narrow.quantisers[0], low=-(2**32), high=2**32)
    part = dataclasses.replace(narrow, groups=10**6, quantisers=(quantiser,))
    assert record_number(part).wide
    values = np.array([5, -7, 2**32, 11, -(2**32), 3, 8])
    units, seeds, cells, copies = (np.full(values.size, each, np.uint64) for each in (1, 9, 4, 1))
    sums = {
        int(coded_tally(Coded(units, seeds, cells, copies, (order,)), part, cap=3, key=KEY)[4, 0])
        for order in (values, values[::-1].copy(), np.sort(values), np.roll(values, 3))
    }
    assert len(sums) == 1


def test_bounds_without_a_level_between_them_are_refused_before_anything_is_charged() -> None:
    """A source would fail on the first row that counts, and so tell whether a cohort is empty."""
    tight = Clip("sbp", 190.0000000013, 190.00000002980002)
    with pytest.raises(QueryMistaken, match="too close together"):
        form(Query("visits", (Aggregate(Statistic.SUM, "sbp", clips=(tight,)),)), study())
