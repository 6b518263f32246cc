"""From one unit's vector to whole numbers no longer than LENGTH, exactly.

Lengths of doubles are only nearly right, so the bound does not rest on them: magnitudes are truncated toward zero,
and the squares of what is left, whole numbers below 2^53 that doubles add without rounding, are compared with
LENGTH². What is still too long is shrunk; what is no number is nothing (PROOFS.md, "One patient's contribution to a
step").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wardround.federation.models.model_definition import MOST_COLUMNS, row_products
from wardround.federation.models.step_layout import LENGTH
from wardround.federation.models.training import Matrix, Vector

_SHRUNK = 1.0 - 2.0**-40


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """One vector for each row of `rows`: the row, times its factor where there are factors. Secret.

    A factor that is kept apart, with the `squares` of the rows' lengths, saves passes over all numbers.
    """

    rows: Matrix = field(repr=False)
    factor: Vector | None = field(repr=False, default=None)
    squares: Vector | None = field(repr=False, default=None)

    def scaled(self) -> Matrix:
        """The vectors themselves; `rows` is used up."""
        rows = self.rows
        if self.factor is not None:
            rows *= self.factor[:, np.newaxis]
        return rows

    def some(self, places: NDArray[np.intp]) -> Vectors:
        """A copy of some of them."""
        factor = None if self.factor is None else self.factor[places]
        found = None if self.squares is None else self.squares[places]
        return Vectors(self.rows.take(places, axis=0), factor, found)


def whole(vectors: Vectors, longest: float) -> Matrix:
    """Each vector shortened to `longest` and divided by it, in steps of 1/LENGTH; `vectors` is used up."""
    rows, factor = vectors.rows, vectors.factor
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(squares(rows) if vectors.squares is None else vectors.squares)
        if factor is not None:
            lengths *= np.abs(factor)
        np.maximum(lengths, longest, out=lengths)
        np.divide(LENGTH, lengths, out=lengths)
        if factor is not None:
            lengths *= factor
        rows *= lengths[:, np.newaxis]
        np.trunc(rows, out=rows)
        return within(rows)


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
    """Each row's squared length, which does not depend on the rows beside it."""
    total = row_products(vectors[:, :MOST_COLUMNS], vectors[:, :MOST_COLUMNS])
    for start in range(MOST_COLUMNS, vectors.shape[1], MOST_COLUMNS):
        part = vectors[:, start : start + MOST_COLUMNS]
        total += row_products(part, part)
    return total
