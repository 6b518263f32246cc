"""Rows of many units as they come, brought to records and added up, in bounded memory.

For a source that only hands out rows. Where a unit has one record for each cell, its rows are joined as they come, so
that it takes no more memory however many there are. Where its rows are its records, they are held until it is known
which of them count; a unit with too many to be held is a giant (`site_agent.reading.bounding.giants`).

A record is the unit's mean, or the code of its mean, or the greatest code of its rows: the same whole numbers as the
statements give. All of them can be worked out from sums and maxima that are joined piece by piece, so that no unit has
to be held whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.bounding.contribution_bounding import (
    Choice,
    numbered,
    packed_tally,
    record_number,
    records_tally,
)
from site_agent.reading.bounding.tally import added, is_collapsed, is_weighed, record_cap, tally_width
from site_agent.reading.bounding.unit_shares import Crammed
from wardround.federation.forms.grids import Coding
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums, Tally
from wardround.privacy.noise.vectors import IntVector

_WORD, _UNIT_BITS = 64, 24
_ROW_BYTES, _JOINED_BYTES = 24, 40
"""Of a number: itself, its copy when all are brought together, and some; the same for joined rows, sorted too."""
_PENDING = 2**20
_MANY_ROWS = 2**29
"""Levels of so many rows, none above 2^33, are added without leaving 64 bits."""
Vector = NDArray[np.int64] | NDArray[np.object_]
"""Whole numbers; Python's own where 64 bits could be too few."""


class Gathering(Protocol):
    """What rows amount to, some at a time."""

    @property
    def by_unit(self) -> bool:
        """Whether it matters whose a row is."""

    def add(self, units: IntVector, cells: IntVector, levels: Sequence[IntVector]) -> None:
        """Some more rows: the number of each one's unit, its cell and its levels; `Crammed` where they do not fit."""

    def tally(self, seeds: NDArray[np.uint64], key: bytes) -> Tally:
        """The sums over the records that count; `seeds` are those of units 0, 1, …."""


def gathering(form: AnswerLayout, part: Part, room_bytes: int) -> Gathering:
    """How the rows of a part are gathered in so much memory."""
    if is_collapsed(form, part) or is_weighed(form, part):
        return _Joined(form, part, room_bytes)
    cap = record_cap(form, part)
    return _Every(part) if cap is None else _Held(part, cap, room_bytes)


def most_rows(part: Part, room_bytes: int) -> int:
    """How many rows that are records fit into so much memory."""
    columns = 1 if _is_packed(part) else 8
    return room_bytes // (_ROW_BYTES * columns)


def _is_packed(part: Part) -> bool:
    return record_number(part).all_bits <= _WORD - _UNIT_BITS


class _Every:
    """Every row counts: nothing is held but the sums."""

    by_unit = False

    def __init__(self, part: Part) -> None:
        self._part = part
        self._total: Tally = np.zeros((part.groups, tally_width(part)), dtype=np.int64)

    def add(self, units: IntVector, cells: IntVector, levels: Sequence[IntVector]) -> None:
        found = records_tally(units, cells, own_values(self._part, levels), self._part, None)
        self._total = added(self._total, found)

    def tally(self, seeds: NDArray[np.uint64], key: bytes) -> Tally:
        del seeds, key
        return self._total


class _Held:
    """Every row is a record, of which a unit has too many; one number for unit and record where they fit into one."""

    by_unit = True

    def __init__(self, part: Part, cap: int, room_bytes: int) -> None:
        self._part, self._cap, self._most = part, cap, most_rows(part, room_bytes)
        self._form, self._is_packed = record_number(part), _is_packed(part)
        self._packed: list[NDArray[np.uint64]] = [np.empty(0, dtype=np.uint64)]
        self._columns: list[tuple[IntVector, ...]] = []
        self._rows = 0

    def add(self, units: IntVector, cells: IntVector, levels: Sequence[IntVector]) -> None:
        self._rows += units.size
        if self._rows > self._most or (units.size and int(units.max()) >> _UNIT_BITS):
            raise Crammed
        if self._is_packed:
            number = numbered(cells, levels, self._form)
            self._packed.append(units.astype(np.uint64) << np.uint64(self._form.bits) | number)
        else:
            self._columns.append((units, cells, *levels))

    def tally(self, seeds: NDArray[np.uint64], key: bytes) -> Tally:
        if self._is_packed:
            packed = np.concatenate(self._packed)
            self._packed.clear()
            return packed_tally(packed, self._part, cap=self._cap, key=key, seeds=seeds.__getitem__)
        if not self._columns:
            return np.zeros((self._part.groups, tally_width(self._part)), dtype=np.int64)
        units, cells, *levels = map(np.concatenate, zip(*self._columns, strict=True))
        return records_tally(units, cells, levels, self._part, Choice(self._cap, seeds, key))


class _Joined:
    """One record for each unit and cell."""

    by_unit = True

    def __init__(self, form: AnswerLayout, part: Part, room_bytes: int) -> None:
        self._form, self._part = form, part
        self._rows = Joining(part, room_bytes // (_JOINED_BYTES * (2 + len(part.quantisers))))

    def add(self, units: IntVector, cells: IntVector, levels: Sequence[IntVector]) -> None:
        self._rows.add(units * self._part.groups + cells, levels)

    def tally(self, seeds: NDArray[np.uint64], key: bytes) -> Tally:
        place, rows, values = self._rows.records()
        if is_weighed(self._form, self._part):
            return np.array([[int(np.minimum(rows, self._form.table.max_rows_per_unit).sum())]])
        units, cells = np.divmod(place, self._part.groups)
        cap = record_cap(self._form, self._part)
        return records_tally(units, cells, values, self._part, None if cap is None else Choice(cap, seeds, key))


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
