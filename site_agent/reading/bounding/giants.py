"""The choice among the records of a giant: a unit that has more of them than fit into memory at once.

It is the choice of `contribution_bounding`, record for record, found without holding the records. Numbers are
counted by their first bits, then those that begin like a wanted one by their next bits, until every wanted
number is known. Texts, of which equal ones count once, are counted range by range, each so small that it fits.

A giant is read by several statements. Whatever happens to a file between them, no more than the wanted number of
records comes out, each of them one that a record can be: so the bound holds, and only the choice is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.bounding.unit_shares import Crammed
from wardround.privacy.noise.vectors import IntVector

Numbers = NDArray[np.uint64]
Places = Callable[[int], IntVector]
"""From how many records there are to the places of those that count, in rising order."""

_TABLE_BITS = 20
"""Of a pass at most about 2^20 different beginnings come back."""

_RANGES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Beginnings:
    """Numbers that begin with one of `first`, which is what is left of them when they are moved right by `moved`."""

    first: Numbers
    moved: int


Counts = Callable[[Beginnings, int], tuple[Numbers, IntVector]]
"""How many of a unit's numbers with such a beginning there are for each longer one, which has so many bits behind it.

What comes back is (beginnings in rising order, how many numbers have each).
"""


def numbers_at(counts: Counts, bits: int, places: Places) -> Numbers:
    """A unit's numbers of so many bits that stand at the wanted places of their order; equal ones stand together."""
    within = Beginnings(np.zeros(1, dtype=np.uint64), bits)
    # Of each wanted number: how it begins, and its place among those that begin so.
    begins, place = within.first, np.zeros(0, dtype=np.int64)
    while within.moved:
        step = max(min(_TABLE_BITS - int(within.first.size - 1).bit_length(), within.moved), 1)
        found, copies = counts(within, within.moved - step)
        ends = np.cumsum(copies, dtype=np.int64)
        if within.moved == bits:
            place = places(int(ends[-1]) if ends.size else 0)
            begins = np.zeros(place.size, dtype=np.uint64)
        first, place = _sought(found >> np.uint64(step), ends, begins, place)
        begins = found[first]
        within = Beginnings(np.unique(begins), within.moved - step)
    return begins


def _sought(parents: Numbers, ends: IntVector, begins: Numbers, place: IntVector) -> tuple[NDArray[np.intp], IntVector]:
    """Where the wanted numbers are among those found, and their places there."""
    first, last = (np.searchsorted(parents, begins, side=side) for side in ("left", "right"))
    # A file that changed meanwhile may hold none of them any more: then nothing counts in their place.
    there = last > first
    first, last, place = first[there], last[there], place[there]
    before = np.concatenate((np.zeros(1, dtype=np.int64), ends))
    wanted = np.minimum(before[first] + place, before[last] - 1)
    found = np.searchsorted(ends, wanted, side="right")
    return found, wanted - before[found]


# --- Texts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """Texts, as bytes, from `low` on and below `high`; None is without end."""

    low: bytes | None = None
    high: bytes | None = None


class TextsInOrder(Protocol):
    """The different texts of one unit, in the order of their bytes."""

    def number(self, within: Range) -> int:
        """How many there are; `Crammed` where they do not fit."""

    def at(self, within: Range, places: Sequence[int]) -> list[bytes]:
        """Those at some places of the range."""

    def some(self, within: Range) -> list[bytes]:
        """A few of them, spread over all there are; which ones decides nothing."""


def texts_at(texts: TextsInOrder, places: Places) -> list[bytes]:
    """A unit's different texts that stand at the wanted places of their order."""
    ranges = list(_counted(texts, Range()))
    return list(_found(texts, ranges, places(sum(number for _, number in ranges))))


def _found(texts: TextsInOrder, ranges: Sequence[tuple[Range, int]], wanted: IntVector) -> Iterator[bytes]:
    start = 0
    for within, number in ranges:
        inside = wanted[(wanted >= start) & (wanted < start + number)] - start
        start += number
        if not inside.size:
            continue
        try:
            found = texts.at(within, inside.tolist())
        except Crammed:
            # To count them takes less than to put them in order.
            found = list(_found(texts, list(_parted(texts, within)), inside))
        yield from found


def _counted(texts: TextsInOrder, within: Range) -> Iterator[tuple[Range, int]]:
    """Ranges that fit, in order, and how many texts each of them holds."""
    try:
        found = [(within, texts.number(within))]
    except Crammed:
        found = list(_parted(texts, within))
    yield from found


def _parted(texts: TextsInOrder, within: Range) -> Iterator[tuple[Range, int]]:
    """The same of ranges that together are one that does not fit."""
    borders = _borders(texts.some(within), within)
    if not borders:
        # One text alone fits: whoever says otherwise would be asked for ever.
        raise Crammed
    for low, high in zip((within.low, *borders), (*borders, within.high), strict=True):
        yield from _counted(texts, Range(low, high))


def _borders(some: Sequence[bytes], within: Range) -> list[bytes]:
    order = sorted(text for text in set(some) if text != within.low)
    if len(order) <= _RANGES:
        return order
    return [order[place * len(order) // _RANGES] for place in range(1, _RANGES)]
