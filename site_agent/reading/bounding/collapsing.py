"""From the rows of a unit in one cell to its record, over arrays: the same whole numbers as the statements give.

A record is the unit's mean, or the code of its mean, or the greatest code of its rows. All of them can be worked out
from sums and maxima that are joined piece by piece, so that no unit has to be held whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.bounding.unit_shares import Crammed
from wardround.federation.forms.grids import Coding
from wardround.federation.forms.parts import Part, Records, Sums
from wardround.privacy.noise.vectors import IntVector

_PENDING = 2**20
_MANY_ROWS = 2**29
"""Levels of so many rows, none above 2^33, are added without leaving 64 bits."""

Vector = NDArray[np.int64] | NDArray[np.object_]
"""Whole numbers; Python's own where 64 bits could be too few."""


def coded(levels: Vector, coding: Coding) -> Vector:
    """min(⌊(q + offset) / width⌋, codes − 1)."""
    return np.minimum((levels + coding.offset) // coding.width, coding.codes - 1)


def row_numbers(part: Part, levels: Sequence[Vector]) -> list[Vector]:
    """What of each row is joined: its levels, or 2·code + event."""
    if part.records is Records.LAST:
        return [2 * coded(levels[0], part.codes) + levels[1]]
    return list(levels)


def joined(part: Part, numbers: Sequence[Vector], starts: NDArray[np.intp]) -> list[Vector]:
    """The numbers of rows, or of pieces, that stand together: their sums, or the greatest of them."""
    join = np.maximum if part.records is Records.LAST else np.add
    return [join.reduceat(number, starts) for number in numbers]


def record_values(part: Part, together: Sequence[Vector], rows: Vector) -> list[IntVector]:
    """The values of records of so many rows each: ⌊(2·sum + n) / 2n⌋, the code of that, or the greatest code."""
    if part.records is Records.LAST:
        return _plain(together)
    means = [(2 * total + rows) // (2 * rows) for total in together]
    return own_values(part, means)


def own_values(part: Part, levels: Sequence[Vector]) -> list[IntVector]:
    """The values of records from their own levels: where every row is one."""
    if part.sums is Sums.CODES and part.records is not Records.LAST:
        return _plain([coded(levels[0], part.codes)])
    return _plain(row_numbers(part, levels))


def _plain(values: Sequence[Vector]) -> list[IntVector]:
    """What a record holds always fits into 64 bits."""
    return [value.astype(np.int64, copy=False) for value in values]


class Joining:
    """Rows as they come, brought together by place, a unit's cell: it takes the same room however many they are."""

    def __init__(self, part: Part, most: int) -> None:
        self._part, self._most = part, most
        none = [np.zeros(0, dtype=np.int64) for _ in part.quantisers]
        self._held: list[tuple[Vector, ...]] = [(np.zeros(0, dtype=np.int64),) * 2 + tuple(row_numbers(part, none))]
        self._waiting = self._seen = 0

    def add(self, places: IntVector, levels: Sequence[IntVector]) -> None:
        """Some more rows; `Crammed` where there are more than `most` places."""
        self._held.append((places, np.ones(places.size, dtype=np.int64), *row_numbers(self._part, levels)))
        self._waiting += places.size
        self._seen += places.size
        if self._waiting > max(_PENDING, self._held[0][0].size):
            self._join()

    def records(self) -> tuple[IntVector, IntVector, list[IntVector]]:
        """The places in rising order, how many rows each has, and the values of the record that they are."""
        self._join()
        place, rows, *together = self._held[0]
        plain, number = _plain((place, rows))
        return plain, number, record_values(self._part, together, rows)

    def _join(self) -> None:
        found: list[Vector] = [np.concatenate(column) for column in zip(*self._held, strict=True)]
        if self._seen > _MANY_ROWS:
            found = [each.astype(np.object_) for each in found]
        order = np.argsort(found[0].astype(np.int64), kind="stable")
        place, rows, *numbers = (each[order] for each in found)
        starts = np.flatnonzero(np.diff(place.astype(np.int64), prepend=-1))
        if starts.size > self._most:
            raise Crammed
        if starts.size:
            place, rows, numbers = place[starts], np.add.reduceat(rows, starts), joined(self._part, numbers, starts)
        self._held, self._waiting = [(place, rows, *numbers)], 0
