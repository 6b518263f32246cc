"""Which records of a unit count, and their totals, over arrays of whole numbers.

A unit with more records than count keeps an evenly spread choice of them. Its n records are put in the
order of what they hold, and every (n / cap)-th counts, from a beginning that a keyed permutation of the
unit's own key decides: of the n beginnings, each record is chosen by exactly `cap`. Records that are equal
are the same to the question, so their order does not matter; nothing of another unit, no row number and
no order of a file enters. The bound needs no randomness: exactly `cap` records are chosen from any beginning.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from wardround.federation.shape import Part
from wardround.privacy.bounded import IntVector

Numbers = NDArray[np.unsignedinteger]
Seeds = Callable[[Numbers], NDArray[np.uint64]]

LARGEST_TOTAL = 2**62
"""Totals saturate here; clamping a sum moves no two totals further apart."""

MOST_RECORDS = 2**29 - 1
"""How many records may be added up at once: none holds more than 2^33, so no sum leaves 64 bits."""

_WORD = 64


@dataclass(frozen=True, slots=True)
class RecordNumber:
    """How a record is one whole number: its cell · 2^value_bits + (its value − lowest)."""

    cell_bits: int
    value_bits: int
    lowest: int

    @property
    def bits(self) -> int:
        """How many bits a record takes; at most 53."""
        return self.cell_bits + self.value_bits


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Records beside the codes and seeds of their units. Secret."""

    unit: NDArray[np.uint64] = field(repr=False)
    seed: NDArray[np.uint64 | np.int64] = field(repr=False)
    number: NDArray[np.uint64] = field(repr=False)
    copies: NDArray[np.uint64] = field(repr=False)


def record_number(part: Part) -> RecordNumber:
    """A counted record is worth one increment; any other holds a value between the quantiser's bounds."""
    cell_bits = (part.groups - 1).bit_length()
    if not part.quantisers:
        return RecordNumber(cell_bits, 0, part.increment)
    low, high = part.quantisers[0].low, part.quantisers[0].high
    return RecordNumber(cell_bits, (high - low).bit_length(), low)


def packed_totals(packed: Numbers, part: Part, *, cap: int, key: bytes, lowest_key: int) -> IntVector:
    """The totals of records whose numbers are preceded by the unit's place after `lowest_key`; sorts in place."""
    packed.sort()
    unit, number = _apart(packed, record_number(part).bits)

    def own(place: Numbers) -> NDArray[np.uint64]:
        return place.astype(np.uint64) + np.uint64(lowest_key % 2**_WORD)

    return _sum(_kept(unit, number, cap, own, key), part)


def coded_totals(found: Coded, part: Part, *, cap: int, key: bytes) -> IntVector:
    """The totals of units 1, 2, …, of each of which `cap` records count, and of unit 0, of which all do."""
    crowded = found.unit > 0
    total = _totals(found.number[~crowded], part, copies=found.copies[~crowded].astype(np.int64))
    unit, number = found.unit[crowded], found.number[crowded]
    if unit.size == 0:
        return total
    seeds = np.zeros(int(unit.max()) + 1, dtype=np.uint64)
    seeds[unit] = found.seed[crowded].view(np.uint64)
    bits = record_number(part).bits
    if seeds.size.bit_length() + bits <= _WORD:
        # Sorting one number is many times quicker than ordering by two.
        packed = np.sort(unit << np.uint64(bits) | number)
        unit, number = _apart(packed, bits)
    else:
        order = np.lexsort((number, unit))
        unit, number = unit[order], number[order]
    return total + _sum(_kept(unit, number, cap, seeds.__getitem__, key), part)


def _apart(packed: Numbers, bits: int) -> tuple[Numbers, Numbers]:
    unit = packed >> packed.dtype.type(bits)
    return unit, packed & packed.dtype.type((1 << bits) - 1)


def _kept(unit: Numbers, number: Numbers, cap: int, seeds: Seeds, key: bytes) -> tuple[Numbers, ...]:
    """The numbers that count; `unit` and, within a unit, `number` are in order."""
    starts = np.flatnonzero(np.concatenate(([True], unit[1:] != unit[:-1])))
    sizes = np.diff(starts, append=unit.size)
    crowded = sizes > cap
    if not crowded.any():
        return (number,)
    first, size = starts[crowded], sizes[crowded]
    beginning = (_keyed(seeds(unit[first]), key) % size.astype(np.uint64)).astype(np.int64)
    places = _spread(size, beginning, cap)
    places += first[:, np.newaxis]
    return number[np.repeat(~crowded, sizes)], number[places.ravel()]


def _spread(size: IntVector, beginning: IntVector, cap: int) -> IntVector:
    """⌊(j·size + beginning) / cap⌋ for j < cap: `cap` different places below `size`, because size > cap."""
    places: IntVector = np.multiply.outer(size, np.arange(cap))
    places += beginning[:, np.newaxis]
    places //= cap
    return places


def _keyed(seeds: NDArray[np.uint64], key: bytes) -> NDArray[np.uint64]:
    """64 bits for each seed that nobody without the key can tell from random ones."""
    blocks = np.zeros((seeds.size, 2), dtype="<u8")
    blocks[:, 0] = seeds
    # One block for each seed: as a keyed permutation of distinct blocks, not as a cipher of a text.
    permutation = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    return np.frombuffer(permutation.update(blocks.tobytes()), dtype="<u8")[::2].astype(np.uint64)


def _sum(pieces: tuple[Numbers, ...], part: Part) -> IntVector:
    return functools.reduce(np.add, (_totals(piece, part) for piece in pieces))


def _totals(number: Numbers, part: Part, *, copies: IntVector | None = None) -> IntVector:
    """Exact integer sums, each number once or as often as `copies` says; see `MOST_RECORDS`."""
    form = record_number(part)
    cell = (number >> number.dtype.type(form.value_bits)).astype(np.intp)
    if copies is None:
        records = np.bincount(cell, minlength=part.groups)
    else:
        records = np.zeros(part.groups, dtype=np.int64)
        np.add.at(records, cell, copies)
    first = records * form.lowest
    if form.value_bits:
        value = (number & number.dtype.type((1 << form.value_bits) - 1)).astype(np.int64)
        np.add.at(first, cell, value if copies is None else value * copies)
    if part.coordinates == 1:
        return first
    return np.stack((first, part.quantisers[0].high * records - first), axis=1).ravel()
