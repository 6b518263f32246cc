"""Sums are exact whole numbers, however many cells there are and however large they grow."""

from __future__ import annotations

import random

import numpy as np
import pytest

from site_agent.prepared import sums


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
