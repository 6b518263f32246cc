"""Rows on their way into a snapshot: on disk in partitions, each of which fits into memory, and then in order.

The files lie in the snapshot's own folder, readable by the agent's user alone, and are gone when it is complete.
A partition that does not fit is parted again, by units. The rows of a giant, which all belong to one unit, are parted
by the first bits of their keyed order: rows whose order is the same all the way are equal and need none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import (
    ABSENT,
    OTHER,
    Batch,
    Booleans,
    Days,
    Integers,
    Numbers,
    Places,
    TextCodes,
    Values,
)
from site_agent.reading.columnstore.clustering import PARTITIONS, Dictionary, KeyedOrder, Words, clustered, partition_of
from site_agent.reading.columnstore.column_encoding import NO_INTEGER, CodeRange, raw_type
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import SourceFailed
from wardround.federation.limits import MAX_TEXT
from wardround.federation.private_files import create_private
from wardround.federation.study.study import Column, ColumnType, Table

_SORTING_BYTES = 100
"""What else a row takes while rows are put in order."""

_GAP_WORDS = {ABSENT: np.uint64(1), OTHER: np.uint64(2)}
UNIT, ORDER = "unit", "order"
_PART_BITS = 8
_MOST_FILES = 256
_WORD = 64
# An odd number that is not the one that made the partitions.
_SPREADING = 0xD1B54A32D192ED03
Rows = NDArray[np.void]


class Partitions:
    """Takes batches in, and hands the rows out partition by partition."""

    def __init__(self, folder: Path, table: Table, key: bytes, limits: Limits) -> None:
        self._folder, self._table = folder, table
        self._order = KeyedOrder(key)
        # A database that only hands out rows takes little of what it might.
        self._units = Dictionary(self._order, room_bytes=limits.working_bytes * 3 // 8, what="patients")
        self._whole: bool | None = None
        names = [column.name for column in table.columns if column.open]
        self._open = {
            name: Dictionary(
                self._order,
                room_bytes=limits.working_bytes // (8 * len(names)),
                what=f"different texts in the column {name!r}",
            )
            for name in names
        }
        self.extents = {column.name: CodeRange(column) for column in table.columns}
        self.rows = 0
        columns = [(field_name(place), raw_type(column)) for place, column in enumerate(table.columns)]
        self.row_type = np.dtype([(UNIT, "<i8"), (ORDER, "<u8"), *columns])
        self._most_rows = max(limits.array_bytes // (2 * self.row_type.itemsize + _SORTING_BYTES), 1)
        self._closing = ExitStack()
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def add(self, batch: Batch) -> None:
        """Put the rows of a batch where their units belong."""
        if batch.units.size == 0:
            return
        rows = np.empty(batch.units.size, dtype=self.row_type)
        rows[UNIT], unit_words = self._numbered(batch.units)
        words = [unit_words]
        for place, column in enumerate(self._table.columns):
            raw, word = self._raw(column, batch.columns[column.name])
            rows[field_name(place)] = raw
            self.extents[column.name].see(raw)
            words.append(word)
        rows[ORDER] = self._order.of_rows(words)
        self.rows += rows.size
        self._spread(rows)

    def each(self) -> Iterator[tuple[int, Sorted]]:
        """The rows of every partition in order, each with its number; its file is removed as it is read."""
        self._closing.close()
        for place in sorted(self._files):
            for found in in_order(self._path(place), self.row_type, self._most_rows):
                yield place, found

    def texts(self, column: str) -> list[str]:
        """The texts of an open category in the order of their numbers."""
        return [str(text) for text in self._open[column].texts()]

    def _numbered(self, units: NDArray[np.int64] | NDArray[np.object_]) -> tuple[NDArray[np.int64], Words]:
        whole = units.dtype != np.object_
        if self._whole is not None and self._whole is not whole:
            raise SourceFailed(private="a source handed out unit keys of two kinds")
        self._whole = whole
        if whole:
            numbers = np.ascontiguousarray(units, dtype=np.int64)
            return numbers, numbers.view(np.uint64)
        numbers = self._units.numbers(units, units.size)
        return numbers, self._units.words(numbers)

    def _raw(self, column: Column, values: Values) -> tuple[NDArray[np.generic], Words]:
        """The values in one simple type, and what of them enters the keyed order."""
        match column.type, values:
            case ColumnType.NUMBER, Numbers(number):
                # Adding zero makes one zero of two, and one NaN stands for all that is not finite.
                plain = np.where(np.isfinite(number), number + 0.0, np.nan)
                return plain, plain.view(np.uint64)
            case ColumnType.INTEGER, Integers(whole, present):
                # The lowest of all 64-bit numbers means absent; it moves up by one.
                plain = np.where(present, np.maximum(whole, NO_INTEGER + 1), NO_INTEGER)
                return plain, plain.view(np.uint64)
            case ColumnType.BOOLEAN, Booleans(sign):
                return sign, sign.astype(np.int64).view(np.uint64)
            case ColumnType.DATE, Days(day):
                return day, day.astype(np.int64).view(np.uint64)
            case ColumnType.CATEGORY, Places(place) if not column.open:
                return place, place.astype(np.int64).view(np.uint64)
            case ColumnType.CATEGORY, TextCodes(place, texts):
                if not column.open:
                    return self._public(column, place, texts)
                return self._numbered_texts(self._open[column.name], place, texts)
            case _:
                raise SourceFailed(private="a source handed out a column in another type than the study's")

    def _public(
        self, column: Column, place: NDArray[np.int32], texts: Sequence[str]
    ) -> tuple[NDArray[np.generic], Words]:
        places = {text: number for number, text in enumerate(column.values)}
        table = np.array([*(places.get(text, OTHER) for text in texts), ABSENT], dtype=np.int32)
        found = table[place]
        return found, found.astype(np.int64).view(np.uint64)

    def _numbered_texts(
        self, dictionary: Dictionary, place: NDArray[np.int32], texts: Sequence[str]
    ) -> tuple[NDArray[np.generic], Words]:
        """A text too long to be asked for is only known not to be absent."""
        short = [text for text in texts if 0 < len(text) <= MAX_TEXT]
        numbers = iter(dictionary.numbers(short, len(short)))
        listed = [int(next(numbers)) if 0 < len(text) <= MAX_TEXT else OTHER for text in texts]
        found = np.array([*listed, ABSENT], dtype=np.int32)[place]
        words = np.zeros(found.size, dtype=np.uint64)
        present = found >= 0
        words[present] = dictionary.words(found[present].astype(np.int64))
        for gap, word in _GAP_WORDS.items():
            words[found == gap] = word
        return found, words

    def _spread(self, rows: NDArray[np.void]) -> None:
        partition = partition_of(np.ascontiguousarray(rows[UNIT]))
        rows = rows.take(np.argsort(partition, kind="stable"))
        ends = np.cumsum(np.bincount(partition, minlength=PARTITIONS))
        start = 0
        for place, end in enumerate(ends.tolist()):
            if end > start:
                self._file(place).write(rows[start:end].tobytes())
            start = end

    def _file(self, place: int) -> BinaryIO:
        if place not in self._files:
            self._files[place] = self._closing.enter_context(create_private(self._path(place)))
        return self._files[place]

    def _path(self, place: int) -> Path:
        return self._folder / f"rows-{place:03d}"


def field_name(place: int) -> str:
    """How rows on their way call a column: by its place, because a study's names are its own."""
    return f"c{place}"


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """Some rows in order, and where a unit begins; where none does, they go on with the last unit. Secret."""

    rows: Rows = field(repr=False)
    begins: NDArray[np.bool_] = field(repr=False)


def in_order(path: Path, row_type: np.dtype[np.void], most: int, *, again: int = 0) -> Iterator[Sorted]:
    """All rows of a file, at most `most` at a time; the file is gone when they were read."""
    number = path.stat().st_size // row_type.itemsize
    if number <= most:
        found = np.fromfile(path, dtype=row_type)
        path.unlink()
        places, begins = clustered(np.ascontiguousarray(found[UNIT]), np.ascontiguousarray(found[ORDER]))
        yield Sorted(found.take(places), begins)
        return
    giants = _giants(path, row_type, most)
    shares = np.uint64(min(-(-2 * number // most), _MOST_FILES))

    def part_of(rows: Rows) -> NDArray[np.int64]:
        """Each giant by itself, before the shares of all others."""
        units = np.ascontiguousarray(rows[UNIT])
        # Every time by other bits: units that met in one share need not meet again.
        spread = (units.view(np.uint64) * np.uint64(_SPREADING + 2 * again)) >> np.uint64(_WORD // 2)
        share = giants.size + (spread % shares).astype(np.int64)
        place = np.searchsorted(giants, units)
        is_giant = np.append(giants, 0)[place] == units
        return np.where(is_giant & (place < giants.size), place, share)

    for part, piece in _parted(path, row_type, most, part_of):
        if part < giants.size:
            yield from _one_unit(piece, row_type, most)
        else:
            yield from in_order(piece, row_type, most, again=again + 1)


def _one_unit(
    path: Path, row_type: np.dtype[np.void], most: int, *, known: int = 0, begins: bool = True
) -> Iterator[Sorted]:
    """The rows of one unit, of whose order the first `known` bits are the same."""
    fits = path.stat().st_size // row_type.itemsize <= most
    if known < _WORD and not fits:
        moved = np.uint64(_WORD - known - _PART_BITS)

        def part_of(rows: Rows) -> NDArray[np.int64]:
            return ((rows[ORDER] >> moved) & np.uint64(2**_PART_BITS - 1)).astype(np.int64)

        for _, piece in _parted(path, row_type, most, part_of):
            yield from _one_unit(piece, row_type, most, known=known + _PART_BITS, begins=begins)
            begins = False
        return
    # What does not fit even now has one order in all 64 bits, so that no part of it has to be sorted.
    for found in [np.fromfile(path, dtype=row_type)] if fits else _read(path, row_type, most):
        marks = np.zeros(found.size, dtype=np.bool_)
        marks[0], begins = begins, False
        yield Sorted(found.take(np.argsort(found[ORDER])), marks)
    path.unlink()


def _giants(path: Path, row_type: np.dtype[np.void], most: int) -> NDArray[np.int64]:
    """The units with more than a quarter of the rows that fit, in rising order."""
    units, sizes = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for found in _read(path, row_type, most):
        fresh, counts = np.unique(found[UNIT], return_counts=True)
        units, place = np.unique(np.concatenate((units, fresh)), return_inverse=True)
        both, sizes = np.concatenate((sizes, counts)), np.zeros(units.size, dtype=np.int64)
        np.add.at(sizes, place, both)
    return units[sizes > most // 4]


def _parted(
    path: Path, row_type: np.dtype[np.void], most: int, part_of: Callable[[Rows], NDArray[np.int64]]
) -> Iterator[tuple[int, Path]]:
    """The rows of a file in several files, each with its number and in the order of these; the file itself is gone."""
    parts: set[int] = set()
    for found in _read(path, row_type, most):
        part = part_of(found)
        order = np.argsort(part, kind="stable")
        numbers, starts = np.unique(part[order], return_index=True)
        for number, mine in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            _add(_piece(path, number), found.take(mine).tobytes(), is_new=number not in parts)
            parts.add(number)
    path.unlink()
    for number in sorted(parts):
        yield number, _piece(path, number)


def _piece(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}-{number}")


def _read(path: Path, row_type: np.dtype[np.void], most: int) -> Iterator[Rows]:
    """The rows of a file as they stand there, some at a time."""
    at_once = max(most // 4, 1)
    with path.open("rb") as file:
        while (found := np.fromfile(file, dtype=row_type, count=at_once)).size:
            yield found


def _add(path: Path, raw: bytes, *, is_new: bool) -> None:
    """Write behind what a file holds, which only this user can read."""
    flags = os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with create_private(path) if is_new else os.fdopen(os.open(path, flags), "ab") as file:
        file.write(raw)
