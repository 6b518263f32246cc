"""Which rows count is decided by the patient's own rows and the site's key, and by nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from site_agent.reading.columnstore.clustering import clustered
from site_agent.reading.columnstore.scan import Disordered, among_first, among_first_cells, by_patient_and_cell, chunks
from tests.site_agent.columnstore.prepared_tables import (
    Kept,
    every_question,
    form,
    opened,
    prepare,
    random_rows,
    row,
    snapshot,
    study,
    totals,
)
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic

COUNT = (Aggregate(Statistic.COUNT),)


def test_the_order_of_the_rows_in_a_file_changes_nothing(tmp_path: Path) -> None:
    rows = random_rows(patients=6, rows=120, seed=1)
    mixed = random.Random(2).sample(rows, len(rows))
    first = snapshot(rows, study(), tmp_path / "first")
    prepare(Kept(mixed, batch_rows=7), study(), tmp_path / "second")
    second = opened(study(), tmp_path / "second")
    for query in every_question():
        asked = form(query, study())
        assert totals(asked, first) == totals(asked, second)


def test_what_a_patient_contributes_is_the_same_whoever_else_is_there(tmp_path: Path) -> None:
    mine, others = random_rows(patients=3, rows=60, seed=3), random_rows(patients=5, rows=70, seed=4, first=3)
    alone, rest, both = (
        snapshot(each, study(), tmp_path / str(n)) for n, each in enumerate((mine, others, others + mine))
    )
    for query in every_question(Comparison("ward", Operator.GREATER, 0)):
        asked = form(query, study())
        found = [totals(asked, each) for each in (alone, rest, both)]
        for own, remaining, together in zip(*found, strict=True):
            assert np.array_equal(np.add(own, remaining), together)


def test_the_cap_comes_after_the_filter(tmp_path: Path) -> None:
    rows = [row(1, age=20, dx="E11") for _ in range(50)] + [row(1, age=70, dx="I10") for _ in range(3)]
    kept = snapshot(rows, study(rows=3), tmp_path)
    old = Comparison("age", Operator.GREATER_OR_EQUAL, 65)
    asked = form(Query("visits", COUNT, old, (Grouping("dx"),)), study(rows=3))
    assert totals(asked, kept) == [[0, 3 * 64, 0, 0]]


def test_a_patient_counts_in_no_more_groups_than_the_study_allows(tmp_path: Path) -> None:
    rows = [row(unit, dx=dx, sbp=100.0) for unit in range(50) for dx in ("E11", "I10", "it's", "ü") for _ in range(3)]
    kept = snapshot(rows, study(groups=2), tmp_path)
    aggregates = (Aggregate(Statistic.COUNT, "patient_id"), Aggregate(Statistic.HISTOGRAM, "sbp", bins=2))
    patients, codes = totals(form(Query("visits", aggregates, None, (Grouping("dx"),)), study(groups=2)), kept)
    assert sum(patients) == sum(codes) == 50 * 2 * 64
    assert min(patients) > 0, "not the same two groups of every patient"


def test_rows_without_a_unit_key_are_dropped(tmp_path: Path) -> None:
    rows = [row(None, dx="E11"), row("a", dx="E11"), row(None, dx="E11")]
    kept = snapshot(rows, study(), tmp_path)
    assert totals(form(Query("visits", COUNT), study()), kept) == [[64]]


def test_another_key_chooses_other_rows(tmp_path: Path) -> None:
    rows = [row(unit, dx=dx, age=age) for unit in range(40) for dx in ("E11", "I10", "ü") for age in range(9)]
    asked = form(Query("visits", COUNT, None, (Grouping("dx"),)), study())
    found = []
    for number in range(2):
        prepare(Kept(rows), study(), tmp_path / str(number), key=bytes([number]) * 32)
        found.append(totals(asked, opened(study(), tmp_path / str(number), key=bytes([number]) * 32)))
    assert found[0] != found[1]
    assert sum(found[0][0]) == sum(found[1][0]) == 40 * 3 * 64


def test_every_row_of_a_patient_is_as_likely_to_count(tmp_path: Path) -> None:
    """4,000 patients with the same 10 rows, of which 3 count: each is chosen by about 1,200 (five deviations)."""
    rows = [row(unit, age=age) for unit in range(4000) for age in range(10)]
    kept = snapshot(rows, study(), tmp_path)
    found = totals(form(Query("visits", COUNT, None, (Grouping("age"),)), study()), kept)[0]
    assert sum(found) == 4000 * 3 * 64
    assert all(abs(count / 64 - 1200) < 5 * (4000 * 0.3 * 0.7) ** 0.5 for count in found[:10])


def test_units_far_apart_and_equal_numbers_are_clustered_as_well() -> None:
    units = np.array([2**62, -(2**63), 5, 2**62, 5, -(2**63)], dtype=np.int64)
    order = np.array([9, 8, 7, 6, 5, 4], dtype=np.uint64)
    places, begins = clustered(units, order)
    assert units[places].tolist() == [-(2**63)] * 2 + [5] * 2 + [2**62] * 2
    assert order[places].tolist() == [4, 8, 5, 7, 6, 9]
    assert begins.tolist() == [True, False] * 3


def test_numbers_that_agree_in_their_leading_bits_are_still_in_order() -> None:
    units = np.array([0, 2**39, 0, 2**39], dtype=np.int64)
    order = np.array([3, 1, 2, 0], dtype=np.uint64)
    places, _ = clustered(units, order)
    assert places.tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize(
    "codes", [[1, 0], [0, 0, 1, 1, 0], [0, 1, 1, 2, 1, 3], [5, 5, 5, 4], [-1, 0], [0, 1, 2, 3, 3, 3, 2]]
)
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_codes_that_fall_are_never_scanned_to_the_end(codes: list[int], rows: int) -> None:
    patients = np.array(codes, dtype=np.int32)
    with pytest.raises(Disordered):
        list(chunks(patients, rows=rows))


def test_a_span_parts_no_patient_but_a_giant_who_is_alone_in_it() -> None:
    draw = random.Random(5)
    for _ in range(200):
        sizes = [draw.randrange(9) for _ in range(6)]
        patients, rows = np.repeat(np.arange(6, dtype=np.int32), sizes), draw.randrange(1, 6)
        spans = list(chunks(patients, rows=rows))
        found = [place for span in spans for place in range(span.rows.start, span.rows.stop)]
        assert found == list(range(patients.size))
        assert all(span.rows.stop - span.rows.start <= rows for span in spans)
        for span in spans:
            held = set(patients[span.rows].tolist())
            begins, ends = int(patients[span.rows.start]), int(patients[span.rows.stop - 1])
            assert span.begins == (span.rows.start == sum(sizes[:begins]))
            assert span.ends == (span.rows.stop == sum(sizes[: ends + 1]))
            assert span.whole or len(held) == 1


def test_the_first_cells_of_a_patient_are_those_its_rows_come_to_first() -> None:
    patients = np.array([0, 0, 0, 0, 1, 1, 1], dtype=np.int32)
    cell = np.array([3, 1, 3, 2, 0, 0, 1], dtype=np.int64)
    runs = by_patient_and_cell(patients, cell, 4)
    assert runs.order is not None
    held = cell[runs.order[runs.starts]].tolist()
    assert held == [1, 2, 3, 0, 1]
    assert among_first_cells(patients, runs, 2).tolist() == [True, False, True, True, True]
    assert among_first(patients, 3).tolist() == [True, True, True, False, True, True, True]
