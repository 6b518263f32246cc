"""Which records of a unit count, and their tally, over arrays of whole numbers.

If a unit has more records than may count, the hospital picks `cap` of them with a secret key, the same ones
each time. The unit's n records are sorted by what they hold, and every (n / cap)-th is taken; a permutation
with the secret key, applied to the unit's own key, decides which one is first. Each record is taken for
exactly `cap` of the n possible first ones. Equal records are the same to the question, so their order does
not matter. Nothing depends on another unit, on a row number or on the order of a file. The bound needs no
randomness: exactly `cap` records are taken, whichever is first.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from site_agent.reading.bounding.giants import Counts, numbers_at
from site_agent.reading.bounding.tally import tally_width
from wardround.federation.forms.parts import Part, Sums, Tally
from wardround.privacy.noise.vectors import IntVector

Numbers = NDArray[np.unsignedinteger]
Seeds = Callable[[Numbers], NDArray[np.uint64]]

MOST_RECORDS = 2**28 - 1
"""How many records may be added up at once: no product of two levels is above 2^34, so no sum leaves 64 bits."""

_WORD = 64
_NARROW = 53
_PIECE = 2**18


@dataclass(frozen=True, slots=True)
class RecordNumber:
    """How a record is one whole number: its cell, then each of its values less the lowest one, in so many bits.

    Where its values do not fit, the number is the cell alone and the values stand beside it.
    """

    cell_bits: int
    value_bits: tuple[int, ...]
    lowest: tuple[int, ...]
    wide: bool

    @property
    def bits(self) -> int:
        """How many bits a record takes; at most 53."""
        return self.cell_bits if self.wide else self.all_bits

    @property
    def all_bits(self) -> int:
        """How many it would take in one number with all its values; of a row's record at most 54."""
        return self.cell_bits + sum(self.value_bits)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Records beside the codes and seeds of their units; `wide` holds the values that did not fit. Secret."""

    unit: NDArray[np.uint64] = field(repr=False)
    seed: NDArray[np.uint64 | np.int64] = field(repr=False)
    number: NDArray[np.uint64] = field(repr=False)
    copies: NDArray[np.uint64] = field(repr=False)
    wide: tuple[IntVector, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """How many records of a unit count, and what decides which: the units' seeds, in order, and the site's key."""

    cap: int
    seeds: NDArray[np.uint64] = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    number: Numbers = field(repr=False)
    wide: tuple[IntVector, ...] = field(default=(), repr=False)
    copies: IntVector | None = field(default=None, repr=False)

    def at(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> _Records:
        copies = None if self.copies is None else self.copies[places]
        return _Records(self.number[places], tuple(value[places] for value in self.wide), copies)


def record_number(part: Part) -> RecordNumber:
    """What a record of the part holds beside its cell: nothing, a code, or the level of each column."""
    cell_bits = (part.groups - 1).bit_length()
    bits: tuple[int, ...] = ()
    lowest: tuple[int, ...] = ()
    match part.sums:
        case Sums.COUNT:
            pass
        case Sums.CODES:
            bits, lowest = ((tally_width(part) - 1).bit_length(),), (0,)
        case Sums.LEVELS | Sums.COUNTED_LEVELS | Sums.PRODUCTS:
            bits = tuple((quantiser.high - quantiser.low).bit_length() for quantiser in part.quantisers)
            lowest = tuple(quantiser.low for quantiser in part.quantisers)
        case _:
            assert_never(part.sums)
    return RecordNumber(cell_bits, bits, lowest, wide=cell_bits + sum(bits) > _NARROW)


def packed_tally(packed: Numbers, part: Part, *, cap: int, key: bytes, seeds: Seeds) -> Tally:
    """The tally of records whose numbers are preceded by a number of the unit, which has a seed; sorts in place."""
    packed.sort()
    bits = record_number(part).bits
    total = _nothing(part)
    for some in _whole_units(packed, bits, at_least=max(_PIECE, 4 * total.size)):
        unit, number = _apart(some, bits)
        total = total + _sum(_kept(unit, _Records(number), cap, seeds, key), part)
    return total


def keys_as_seeds(lowest: int) -> Seeds:
    """The seeds of units that are numbered by their keys, which are whole numbers, from the lowest on: the keys."""

    def seeds(place: Numbers) -> NDArray[np.uint64]:
        return place.astype(np.uint64) + np.uint64(lowest % 2**_WORD)

    return seeds


def coded_tally(found: Coded, part: Part, *, cap: int, key: bytes) -> Tally:
    """The tally of units 1, 2, …, of each of which `cap` records count, and of unit 0, of which all do."""
    crowded = found.unit > 0
    every = _Records(found.number, found.wide, found.copies.astype(np.int64))
    tally = _tally(every.at(~crowded), part)
    unit = found.unit[crowded]
    if unit.size == 0:
        return tally
    seeds = np.zeros(int(unit.max()) + 1, dtype=np.uint64)
    seeds[unit] = found.seed[crowded].view(np.uint64)
    mine = _Records(found.number[crowded], tuple(value[crowded] for value in found.wide))
    bits = record_number(part).bits
    if not mine.wide and seeds.size.bit_length() + bits <= _WORD:
        # Sorting one number is many times quicker than ordering by two.
        unit, number = _apart(np.sort(unit << np.uint64(bits) | mine.number), bits)
        mine = _Records(number)
    else:
        # By the values too: rows of one unit in one cell stand in the order of what they hold, not of the file.
        order = np.lexsort((*reversed(mine.wide), mine.number, unit))
        unit, mine = unit[order], mine.at(order)
    return tally + _sum(_kept(unit, mine, cap, seeds.__getitem__, key), part)


def records_tally(
    unit: IntVector, cell: IntVector, values: Sequence[IntVector], part: Part, choice: Choice | None
) -> Tally:
    """The tally of records of units 0, 1, …: of all of them, or of those that a choice leaves."""
    form = record_number(part)
    number = cell.astype(np.uint64) if form.wide else numbered(cell, values, form)
    codes = np.zeros(cell.size, dtype=np.uint64) if choice is None else (unit + 1).astype(np.uint64)
    seeds = np.zeros(1, dtype=np.uint64) if choice is None else np.concatenate(([np.uint64(0)], choice.seeds))
    wide = tuple(values) if form.wide else ()
    found = Coded(codes, seeds[codes], number, np.ones(cell.size, dtype=np.uint64), wide)
    cap, key = (1, b"") if choice is None else (choice.cap, choice.key)
    return coded_tally(found, part, cap=cap, key=key)


def numbered(cell: IntVector, values: Sequence[IntVector], form: RecordNumber) -> NDArray[np.uint64]:
    """Records as one number each."""
    number = cell.astype(np.uint64)
    for value, bits, lowest in zip(values, form.value_bits, form.lowest, strict=True):
        number = number << np.uint64(bits) | (value - lowest).astype(np.uint64)
    return number


def counted_tally(counts: Counts, part: Part, *, cap: int, seed: int, key: bytes) -> Tally:
    """The tally of one unit whose rows do not fit into memory and can only be counted; see `giants`."""
    form = record_number(part)
    drawn = int(_keyed(np.array([seed % 2**_WORD], dtype=np.uint64), key)[0])

    def places(size: int) -> IntVector:
        return places_of(size, drawn % size if size else 0, cap)

    return _tally(_apart_again(numbers_at(counts, form.all_bits, places), form), part)


def places_of(size: int, beginning: int, cap: int) -> IntVector:
    """The places of the records that count, of one unit that has `size`."""
    if size <= cap:
        return np.arange(size)
    return _spread(np.array([size]), np.array([beginning]), cap).ravel()


def _apart_again(number: NDArray[np.uint64], form: RecordNumber) -> _Records:
    """Records that were one number each although they are wide, as all others of their part are."""
    if not form.wide:
        return _Records(number)
    cell, values = _held(_Records(number), dataclasses.replace(form, wide=False))
    return _Records(cell.astype(np.uint64), tuple(values))


def _whole_units(packed: Numbers, bits: int, *, at_least: int) -> Iterator[Numbers]:
    """Sorted numbers piece by piece, each unit whole in one of them.

    A piece and what is made of it stay in the processor's cache, and in memory that is used again.
    """
    start = 0
    while start < packed.size:
        end = start + at_least
        if end < packed.size:
            last = packed[end - 1] >> packed.dtype.type(bits)
            # In Python's whole numbers: the unit after the last one may not have a number of this type.
            beyond = (int(last) + 1) << bits
            fits = beyond <= np.iinfo(packed.dtype).max
            end = int(np.searchsorted(packed, packed.dtype.type(beyond))) if fits else packed.size
        yield packed[start:end]
        start = end


def _nothing(part: Part) -> IntVector:
    return np.zeros((part.groups, tally_width(part)), dtype=np.int64)


def _apart(packed: Numbers, bits: int) -> tuple[Numbers, Numbers]:
    unit = packed >> packed.dtype.type(bits)
    return unit, packed & packed.dtype.type((1 << bits) - 1)


def _kept(unit: Numbers, mine: _Records, cap: int, seeds: Seeds, key: bytes) -> tuple[_Records, ...]:
    """The records that count; `unit` and, within a unit, their numbers are in order."""

    def beginning(crowded: Numbers, size: IntVector) -> IntVector:
        return (_keyed(seeds(crowded), key) % size.astype(np.uint64)).astype(np.int64)

    within, chosen = chosen_places(unit, cap, beginning)
    return (mine if within is None else mine.at(within), *([] if chosen is None else [mine.at(chosen)]))


def chosen_places(
    unit: Numbers, cap: int, beginning: Callable[[Numbers, IntVector], IntVector]
) -> tuple[NDArray[np.bool_] | None, IntVector | None]:
    """Which records of units in order count: all of those with at most `cap` (None: everybody's), and some places.

    `beginning` is asked for the units that have more, and how many each has.
    """
    starts = np.flatnonzero(np.concatenate(([True], unit[1:] != unit[:-1])))
    sizes = np.diff(starts, append=unit.size)
    crowded = sizes > cap
    if not crowded.any():
        return None, None
    first, size = starts[crowded], sizes[crowded]
    places = _spread(size, beginning(unit[first], size), cap)
    places += first[:, np.newaxis]
    return np.repeat(~crowded, sizes), places.ravel()


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


# --- Adding up --------------------------------------------------------------------------------------------


def _sum(pieces: tuple[_Records, ...], part: Part) -> Tally:
    return functools.reduce(np.add, (_tally(piece, part) for piece in pieces))


def _tally(records: _Records, part: Part) -> Tally:
    """Exact sums in whole numbers, each record once or as often as `copies` says; see `MOST_RECORDS`."""
    cell, values = _held(records, record_number(part))
    match part.sums:
        case Sums.COUNT:
            return _counted(cell, part.groups, records.copies)[:, np.newaxis]
        case Sums.CODES:
            width = tally_width(part)
            return _counted(cell * width + values[0], part.groups * width, records.copies).reshape(-1, width)
        case Sums.LEVELS | Sums.COUNTED_LEVELS | Sums.PRODUCTS:
            columns = [] if part.sums is Sums.LEVELS else [_counted(cell, part.groups, records.copies)]
            columns += [_added(cell, value, part.groups, records.copies) for value in values]
            if part.sums is Sums.PRODUCTS:
                pairs = itertools.combinations_with_replacement(values, 2)
                columns += [_added(cell, left * right, part.groups, records.copies) for left, right in pairs]
            return np.stack(columns, axis=1)
        case _:
            assert_never(part.sums)


def _held(records: _Records, form: RecordNumber) -> tuple[NDArray[np.intp], list[IntVector]]:
    """The cells, and the values one by one."""
    rest, kind = records.number, records.number.dtype.type
    if form.wide:
        return rest.astype(np.intp), list(records.wide)
    values: list[IntVector] = []
    for bits, lowest in zip(reversed(form.value_bits), reversed(form.lowest), strict=True):
        values.append((rest & kind((1 << bits) - 1)).astype(np.int64) + lowest)
        rest = rest >> kind(bits)
    return rest.astype(np.intp), values[::-1]


def _counted(cell: NDArray[np.intp], cells: int, copies: IntVector | None) -> IntVector:
    if copies is None:
        return np.bincount(cell, minlength=cells)
    return _added(cell, copies, cells, None)


def _added(cell: NDArray[np.intp], value: IntVector, cells: int, copies: IntVector | None) -> IntVector:
    total = np.zeros(cells, dtype=np.int64)
    np.add.at(total, cell, value if copies is None else value * copies)
    return total
