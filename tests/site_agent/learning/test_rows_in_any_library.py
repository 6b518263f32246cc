"""What a row becomes is the same wherever it lies in memory, whatever linear algebra library numpy was built with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from site_agent.learning.integer_vectors import squares
from wardround.federation.models.model_definition import row_products

# OpenBLAS adds up by where a vector lies in memory on processors that it does not know; other libraries may anywhere.
OLDEST = {"OPENBLAS_CORETYPE": "Prescott"}
ROOT = Path(__file__).parents[3]
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 129, 257, 4096)


def moved(width: int) -> bool:
    """Whether a row's sums depend on where it lies, or on how many stand beside it."""
    draw = np.random.default_rng(width)
    memory, others = np.zeros(20 * width + 8), draw.normal(size=(3, width))
    found = set()
    for place in (0, 1, 2, 3, 5, 8):
        for rows in (1, 2, 20):
            matrix = memory[place : place + rows * width].reshape(rows, width)
            matrix[:] = np.random.default_rng(7).normal(size=width) * 1e3
            layers = row_products(matrix[:, np.newaxis, :], others[np.newaxis])
            each = np.column_stack((row_products(matrix, others[0]), squares(matrix), layers))
            found |= {row.tobytes() for row in each}
    return len(found) > 1


def longer_rows_moved() -> bool:
    row = np.random.default_rng(1).normal(size=(1, 10_000))
    return bool((squares(np.repeat(row, 3, axis=0)) != squares(row)).any())


def test_rows_are_the_same_bits_wherever_they_lie() -> None:
    assert [width for width in WIDTHS if moved(width)] == []
    assert not longer_rows_moved()


def test_rows_are_the_same_bits_with_the_library_of_the_oldest_processors() -> None:
    script = (
        "from tests.site_agent.learning.test_rows_in_any_library import WIDTHS, longer_rows_moved, moved\n"
        "raise SystemExit(any(map(moved, WIDTHS)) or longer_rows_moved())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **OLDEST}, cwd=ROOT, check=False, timeout=120
    )
    assert done.returncode == 0


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one_row_have_as_many_sums(rows: int) -> None:
    assert row_products(np.ones((rows, 3)), np.ones(3)).tolist() == [3.0] * rows
