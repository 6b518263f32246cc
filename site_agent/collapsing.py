"""From the rows of a unit in one cell to its record, over arrays: the same whole numbers as the statements give.

A record is the unit's mean, or the code of its mean, or the greatest code of its rows. All of them can be worked out
from sums and maxima that are joined piece by piece, so that no unit has to be held whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wardround.federation.errors import InvariantBroken
from wardround.federation.quantising import Coding
from wardround.federation.shape import Part, PartKind
from wardround.privacy.bounded import IntVector

Vector = NDArray[np.int64] | NDArray[np.object_]
"""Whole numbers; Python's own where 64 bits could be too few."""


def coded(levels: Vector, coding: Coding) -> Vector:
    """min(⌊(q + offset) / width⌋, codes − 1)."""
    return np.minimum((levels + coding.offset) // coding.width, coding.codes - 1)


def row_numbers(part: Part, levels: Sequence[Vector]) -> list[Vector]:
    """What of each row is joined: its levels, or 2·code + event."""
    if part.kind is PartKind.LAST:
        return [2 * coded(levels[0], _coding(part)) + levels[1]]
    return list(levels)


def joined(part: Part, numbers: Sequence[Vector], starts: NDArray[np.intp]) -> list[Vector]:
    """The numbers of rows, or of pieces, that stand together: their sums, or the greatest of them."""
    join = np.maximum if part.kind is PartKind.LAST else np.add
    return [join.reduceat(number, starts) for number in numbers]


def record_values(part: Part, together: Sequence[Vector], rows: Vector) -> list[IntVector]:
    """The values of records of so many rows each: ⌊(2·sum + n) / 2n⌋, the code of that, or the greatest code."""
    if part.kind is PartKind.LAST:
        return _plain(together)
    means = [(2 * total + rows) // (2 * rows) for total in together]
    return own_values(part, means)


def own_values(part: Part, levels: Sequence[Vector]) -> list[IntVector]:
    """The values of records from their own levels: where every row is one."""
    match part.kind:
        case PartKind.CODES | PartKind.TREE:
            return _plain([coded(levels[0], _coding(part))])
        case _:
            return _plain(row_numbers(part, levels))


def _plain(values: Sequence[Vector]) -> list[IntVector]:
    """What a record holds always fits into 64 bits."""
    return [value.astype(np.int64, copy=False) for value in values]


def _coding(part: Part) -> Coding:
    if part.coding is None:
        raise InvariantBroken(private="a part of codes has none")
    return part.coding
