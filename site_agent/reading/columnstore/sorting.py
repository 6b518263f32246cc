"""The rows of a partition in the order of the snapshot, as many at a time as fit into memory.

A partition that does not fit is parted again, by units. The rows of a giant, which all belong to one unit, are parted
by the first bits of their keyed order: rows whose order is the same all the way are equal and need none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.columnstore.clustering import clustered
from wardround.federation.private_files import create_private

UNIT, ORDER = "unit", "order"
_PART_BITS = 8
_MOST_FILES = 256
_WORD = 64
# An odd number that is not the one that made the partitions.
_SPREADING = 0xD1B54A32D192ED03

Rows = NDArray[np.void]


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
