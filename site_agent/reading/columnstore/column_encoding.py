"""How a column is kept: whole numbers of as few bits as it needs, and back to the values without a difference.

A column whose values all lie on a decimal step is kept as the number of steps; dividing by the same power of ten
gives back the same double, because both are the double nearest to the same fraction. Whatever is asked of a
value can then be asked once of every value there is, and looked up for each row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import (
    ABSENT,
    NO_DAY,
    OTHER,
    Booleans,
    Days,
    Integers,
    Numbers,
    Places,
    TextCodes,
    Values,
)
from wardround.federation.study.study import Column, ColumnType

Codes = NDArray[np.unsignedinteger] | NDArray[np.int64] | NDArray[np.float64]
"""A column as it is kept."""

NO_INTEGER = -(2**63)
DIVISORS = (1, 10, 100, 1000, 10_000)
_MOST_STEPS = 2**31
_TABLE = 2**16 + 2
"""Up to so many different codes, what is asked of a column is asked of its codes instead of its rows."""

_FEW_RUNS = 3


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """Codes 1, 2, … for the values from `low` to `high` in steps of 1/`divisor`, and 0 where absent; or plain values.

    A category's code is its place + 2, so that 0 is a value that is not public and 1 an absent one.
    """

    dtype: str
    packed: bool
    low: int = 0
    high: int = -1
    divisor: int = 1

    @property
    def codes(self) -> int:
        """How many codes there can be."""
        return self.high - self.low + 2


@dataclass(slots=True)
class CodeRange:
    """What a column was seen to hold so far: its range in steps, and the fewest decimals that hold every value."""

    column: Column
    low: int = 0
    high: int = -1
    divisors: tuple[int, ...] = DIVISORS

    def see(self, raw: NDArray[np.generic]) -> None:
        """Widen to hold these raw values too."""
        match self.column.type:
            case ColumnType.NUMBER:
                self._see_numbers(raw[~np.isnan(raw.astype(np.float64))].astype(np.float64))
            case ColumnType.INTEGER:
                self._see_range(raw[raw != NO_INTEGER])
            case ColumnType.DATE:
                self._see_range(raw[raw != NO_DAY])
            case ColumnType.CATEGORY | ColumnType.BOOLEAN:
                self._see_range(raw)

    def layout(self) -> ColumnFile:
        """The narrowest way to keep what was seen."""
        low, high = self.low, self.high
        match self.column.type:
            case ColumnType.CATEGORY:
                low, high = 0, max(high, len(self.column.values) - 1)
                return ColumnFile(_unsigned(high + 3) or "<u4", packed=True, low=low, high=high + 1)
            case ColumnType.BOOLEAN:
                return ColumnFile("|u1", packed=True, low=0, high=1)
            case ColumnType.NUMBER if not self.divisors:
                return ColumnFile("<f8", packed=False)
            case _:
                narrow = _unsigned(high - low + 2)
                divisor = self.divisors[0] if self.column.type is ColumnType.NUMBER else 1
                if narrow is None:
                    return ColumnFile("<f8" if self.column.type is ColumnType.NUMBER else "<i8", packed=False)
                return ColumnFile(narrow, packed=True, low=low, high=high, divisor=divisor)

    def _see_range(self, found: NDArray[np.generic]) -> None:
        if found.size:
            low, high = int(found.min()), int(found.max())
            empty = self.high < self.low
            self.low, self.high = (low, high) if empty else (min(self.low, low), max(self.high, high))

    def _see_numbers(self, found: NDArray[np.float64]) -> None:
        while self.divisors and found.size:
            divisor = self.divisors[0]
            if (steps := _steps(found, divisor)) is not None:
                self._see_range(steps)
                return
            # What is a whole number of tenths is one of hundredths too: nothing seen before is lost.
            self.divisors = self.divisors[1:]
            if self.divisors:
                factor = self.divisors[0] // divisor
                self.low, self.high = self.low * factor, self.high * factor if self.high >= self.low else -1


def raw_type(column: Column) -> str:
    """The type of one value in a batch on its way into the snapshot."""
    match column.type:
        case ColumnType.NUMBER:
            return "<f8"
        case ColumnType.INTEGER:
            return "<i8"
        case ColumnType.CATEGORY | ColumnType.DATE:
            return "<i4"
        case ColumnType.BOOLEAN:
            return "|i1"


def encoded(raw: NDArray[np.generic], column: Column, layout: ColumnFile) -> NDArray[np.generic]:
    """Raw values as they are kept."""
    if not layout.packed:
        return raw.astype(layout.dtype)
    match column.type:
        case ColumnType.CATEGORY:
            return (raw.astype(np.int64) - OTHER).astype(layout.dtype)
        case ColumnType.BOOLEAN:
            return (raw.astype(np.int64) - ABSENT).astype(layout.dtype)
        case ColumnType.NUMBER:
            number = raw.astype(np.float64)
            absent = np.isnan(number)
            return _stepped(np.rint(np.where(absent, 0.0, number) * layout.divisor), absent, layout)
        case ColumnType.INTEGER:
            return _stepped(raw, np.asarray(raw == NO_INTEGER), layout)
        case ColumnType.DATE:
            return _stepped(raw, np.asarray(raw == NO_DAY), layout)


def _stepped(whole: NDArray[np.generic], absent: NDArray[np.bool_], layout: ColumnFile) -> NDArray[np.generic]:
    present = np.where(absent, layout.low, whole.astype(np.int64)) - (layout.low - 1)
    return np.where(absent, 0, present).astype(layout.dtype)


def decoded(codes: Codes, column: Column, layout: ColumnFile, texts: Sequence[str]) -> Values:
    """The values that codes stand for."""
    match column.type:
        case ColumnType.NUMBER if not layout.packed:
            return Numbers(np.asarray(codes, dtype=np.float64))
        case ColumnType.NUMBER:
            steps = codes.astype(np.float64) + (layout.low - 1)
            return Numbers(np.where(codes == 0, np.nan, steps / layout.divisor))
        case ColumnType.INTEGER if not layout.packed:
            return Integers(np.asarray(codes, dtype=np.int64), np.asarray(codes != NO_INTEGER))
        case ColumnType.INTEGER:
            return Integers(codes.astype(np.int64) + (layout.low - 1), np.asarray(codes != 0))
        case ColumnType.CATEGORY:
            places = (codes.astype(np.int64) + OTHER).astype(np.int32)
            return TextCodes(places, texts) if column.open else Places(places)
        case ColumnType.BOOLEAN:
            return Booleans((codes.astype(np.int64) + ABSENT).astype(np.int8))
        case ColumnType.DATE:
            days = codes.astype(np.int64) + (layout.low - 1)
            return Days(np.where(codes == 0, NO_DAY, days).astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class KeptColumn:
    """A column of a snapshot, mapped into memory. Secret."""

    column: Column
    layout: ColumnFile
    codes: Codes = field(repr=False)
    texts: Sequence[str] = field(repr=False, default=())
    # Whether a value may be absent or, in a category, not public.
    gaps: bool = True

    @property
    def small(self) -> bool:
        """Whether all its codes fit into a table."""
        return self.layout.packed and self.layout.codes <= _TABLE

    def table(self) -> Values:
        """The value of every code."""
        return decoded(np.arange(self.layout.codes, dtype=np.uint32), self.column, self.layout, self.texts)

    def values(self, rows: slice) -> Values:
        """The values of some rows."""
        return decoded(self.codes[rows], self.column, self.layout, self.texts)


def per_row(column: KeptColumn, answer: Callable[[Values], NDArray[np.int64]]) -> Callable[[slice], NDArray[np.int64]]:
    """`answer` for some rows at a time: looked up where every code has been asked beforehand, else computed."""
    if not column.small:
        return lambda rows: answer(column.values(rows))
    table, codes = answer(column.table()), cast("NDArray[np.unsignedinteger]", column.codes)
    return lambda rows: table.take(codes[rows])


def rows_where(
    column: KeptColumn, answer: Callable[[Values], NDArray[np.bool_]]
) -> Callable[[slice], NDArray[np.bool_]]:
    """As `per_row`, for a yes or no.

    Where the codes that mean yes form few runs, as those of a comparison do, rows are compared with the ends of the
    runs, many at once: a sixth of the time of looking each one up.
    """
    if not column.small:
        return lambda rows: answer(column.values(rows))
    table, codes = answer(column.table()), cast("NDArray[np.unsignedinteger]", column.codes)
    borders = np.flatnonzero(np.diff(table, prepend=False, append=False))
    if not 0 < borders.size <= 2 * _FEW_RUNS:
        return lambda rows: table.take(codes[rows])
    # A code below the first of its run is above every span: unsigned numbers begin again at their largest.
    firsts, spans = borders[::2].astype(codes.dtype), (borders[1::2] - borders[::2] - 1).astype(codes.dtype)
    runs = list(zip(firsts, spans, strict=True))
    return lambda rows: functools.reduce(np.logical_or, (codes[rows] - first <= span for first, span in runs))


def _steps(found: NDArray[np.float64], divisor: int) -> NDArray[np.int64] | None:
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(found * divisor)
        exact = (np.abs(steps) < _MOST_STEPS) & (steps / divisor == found)
    return steps.astype(np.int64) if exact.all() else None


def _unsigned(codes: int) -> str | None:
    """The narrowest type with so many different codes."""
    for bits, name in ((8, "|u1"), (16, "<u2"), (32, "<u4")):
        if codes <= 2**bits:
            return name
    return None
