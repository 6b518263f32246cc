"""Sums are exact whole numbers, however many cells there are and however large they grow."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from site_agent.reading.columnstore import aggregate as sums
from site_agent.reading.columnstore.prepared_dataset import _sums
from tests.site_agent.columnstore.prepared_tables import form, row, snapshot, study, totals
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic


@pytest.mark.parametrize("cells", [3, 2**20 + 1])
@pytest.mark.parametrize("largest", [2**40, 2**70])
@pytest.mark.parametrize("weighed", [True, False])
def test_what_is_added_up_by_cell_is_exact(cells: int, largest: int, weighed: bool) -> None:
    draw = random.Random(1)
    total = sums._zeros(cells, 1, largest)
    total[1, 0] = largest - 2**38
    number = [draw.randrange(3) for _ in range(300_000)]
    value = [draw.randrange(-(2**33), 2**34) if weighed else 1 for _ in number]
    expected = [0, largest - 2**38, 0]
    for cell, each in zip(number, value, strict=True):
        expected[cell] += each
    sums._add(total[:, 0], np.array(number), np.array(value) if weighed else None, len(number))
    assert [int(found) for found in total[:3, 0]] == expected


def test_one_cell_needs_no_numbers() -> None:
    total = sums._zeros(1, 1, 2**70)
    sums._add(total[:, 0], None, None, 5)
    sums._add(total[:, 0], None, np.array([2**40, -3]), 2)
    assert total[0, 0] == 2**40 + 2


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("unit", ["patient", "event"])
def test_rows_counted_by_their_codes_are_the_first_chosen_ones_of_each_patient(
    unit: str, filtered: bool, tmp_path: Path
) -> None:
    draw, agreed = random.Random(5), study(unit=unit, rows=2)
    public = ("E11", "I10", "it's", "ü")
    rows = [row(f"p{draw.randrange(60)}", age=draw.randrange(90), dx=draw.choice(public)) for _ in range(700)]
    kept = snapshot(rows, agreed, tmp_path)
    cohort = Comparison("age", Operator.GREATER_OR_EQUAL, 40) if filtered else None
    asked = form(Query("visits", (Aggregate(Statistic.COUNT),), cohort, (Grouping("dx"),)), agreed)
    assert isinstance(_sums(asked, asked.parts[0], kept), sums.CodeCounts)

    seen: Counter[int] = Counter()
    expected = [0] * len(public)
    age, dx = kept.column("age"), kept.column("dx")
    for patient, years, code in zip(kept.patients(), age.codes, dx.codes, strict=True):
        if filtered and int(years) + age.layout.low - 1 < 40:
            continue
        seen[int(patient)] += 1
        if unit == "event" or seen[int(patient)] <= 2:
            expected[int(code) - 2] += 1
    assert totals(asked, kept) == [[64 * count for count in expected]]
    assert max(seen.values()) > 2, "the cap cuts"
