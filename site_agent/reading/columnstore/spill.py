"""Rows on their way into a snapshot: on disk in partitions, each of which fits into memory.

The files lie in the snapshot's own folder, readable by the agent's user alone, and are gone when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
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
from site_agent.reading.columnstore.clustering import PARTITIONS, Dictionary, KeyedOrder, Words, partition_of
from site_agent.reading.columnstore.column_encoding import NO_INTEGER, CodeRange, raw_type
from site_agent.reading.columnstore.sorting import ORDER, UNIT, Sorted, in_order
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import SourceFailed
from wardround.federation.limits import MAX_TEXT
from wardround.federation.private_files import create_private
from wardround.federation.study.study import Column, ColumnType, Table

_SORTING_BYTES = 100
"""What else a row takes while rows are put in order."""

_GAP_WORDS = {ABSENT: np.uint64(1), OTHER: np.uint64(2)}


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
