"""Arithmetic over many rows at once that is, to the last bit, the same wherever a row stands.

Otherwise a patient who comes or goes would move what others contribute.
"""

from __future__ import annotations

import numpy as np

from wardround.federation.models.training import Matrix, Vector

MOST_COLUMNS = 4096
"""Longer sums are taken in parts: numpy's loop would part them by itself, and one row alone otherwise than several."""


def row_products(rows: Matrix, others: Matrix | Vector) -> Vector:
    """One sum of products for each row, of at most `MOST_COLUMNS` terms.

    By numpy's own loop. A linear algebra library may add up a row's terms by where the row lies in memory, and a
    product of matrices by where it stands among others; either way a patient who comes would move the next one's.
    """
    found: Vector = np.einsum("...j,...j->...", rows, others, optimize=False)
    return found


def over(difference: Vector, width: float) -> Vector:
    """The difference over a width, cut to [−1, 1]."""
    if width <= 0.0:
        return np.zeros_like(difference)
    return np.clip(difference, -width, width) / width
