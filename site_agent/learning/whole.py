"""From one unit's vector to whole numbers no longer than LENGTH, exactly.

Lengths of doubles are only nearly right, so the bound does not rest on them: magnitudes are truncated toward zero,
and the squares of what is left, whole numbers below 2^53 that doubles add without rounding, are compared with
LENGTH². What is still too long is shrunk; what is no number is nothing (PROOFS.md, "One patient's contribution to a
step").
"""

from __future__ import annotations

import numpy as np

from site_agent.learning.examples import Matrix, Vector
from wardround.federation.step_form import LENGTH

_SHRUNK = 1.0 - 2.0**-40
_COLUMNS = 4096


def whole(vectors: Matrix, longest: float) -> Matrix:
    """Each row shortened to `longest` and divided by it, in steps of 1/LENGTH; `vectors` is used up."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(squares(vectors))
        np.maximum(lengths, longest, out=lengths)
        vectors *= np.divide(LENGTH, lengths, out=lengths)[:, np.newaxis]
        np.trunc(vectors, out=vectors)
        return within(vectors)


def within(numbers: Matrix) -> Matrix:
    """The same whole numbers, except in rows that are longer than LENGTH: each of their numbers is smaller there."""
    found = squares(numbers)
    # Asked this way round, because no comparison with NaN is true.
    while not (fits := found <= float(LENGTH**2)).all():
        excess = np.flatnonzero(~fits)
        rows, length = numbers[excess], np.sqrt(found[excess])
        shrunk = np.trunc(rows * (LENGTH / length * _SHRUNK)[:, np.newaxis])
        numbers[excess] = np.where(np.isfinite(shrunk) & np.isfinite(length)[:, np.newaxis], shrunk, 0.0)
        found = squares(numbers)
    return numbers


def squares(vectors: Matrix) -> Vector:
    """Each row's squared length: one product for each row, so that it does not depend on the rows beside it.

    Long rows are taken in parts, because a long product is shared out over threads.
    """
    total: Vector = np.vecdot(vectors[:, :_COLUMNS], vectors[:, :_COLUMNS])
    for start in range(_COLUMNS, vectors.shape[1], _COLUMNS):
        part = vectors[:, start : start + _COLUMNS]
        total += np.vecdot(part, part)
    return total
