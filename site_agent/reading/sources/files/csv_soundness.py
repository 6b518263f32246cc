"""Whether a CSV file is CSV, found by one look at its bytes before any question; and its header.

A quotation mark that is never closed, or that stands where none may, lets one record hide or change others, and
readers disagree about what it means. So does a line that ends as no other line of the file does, and behind a field in
quotation marks that is longer than its buffer DuckDB finds no record. Such a file is not read at all. What a field
holds never makes a file unsound: text that is not UTF-8 is absent (`csv_substitutes`).
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

_CHUNK_BYTES = 2**24
_LONGEST_FIELD_BYTES = 2**25
"""About half of the buffer."""

_QUOTE, _CR, _LF = 0x22, 0x0D, 0x0A
_MARK_ORDER = "\ufeff".encode()

Bytes = NDArray[np.uint8]
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_HEADER = 1 << 20


def csv_fault(path: Path, delimiter: str) -> str:
    """What makes the file no CSV, with the number of its line; empty where nothing does."""
    with path.open("rb") as file:
        return _Scan(file, delimiter).fault()


class _Scan:
    """One pass over the file, with one byte before and one after each chunk in view."""

    def __init__(self, file: BinaryIO, delimiter: str) -> None:
        self._file = file
        self._delimiter = ord(delimiter)
        self._quotes = 0
        self._lines = 1
        self._opened_at = 1
        self._place = 0
        self._field_begins = 0
        self._ends_with_cr: bool | None = None

    def fault(self) -> str:
        for before, chunk, after in _in_view(self._file):
            if found := self._fault_in(before, chunk, after):
                return found
            self._lines += int(np.count_nonzero(chunk == (_CR if self._ends_with_cr else _LF)))
            self._place += chunk.size
        return f"the quotation mark in line {self._opened_at} is never closed" if self._quotes % 2 else ""

    def _fault_in(self, before: int, chunk: Bytes, after: int) -> str:
        places = np.flatnonzero(chunk == _QUOTE)
        around = np.concatenate([[before], chunk, [after]]).astype(np.int16) if places.size else None
        ends = self._ends(chunk, places, after)
        if around is not None:
            opening = (np.arange(places.size) + self._quotes) % 2 == 0
            neighbours = np.where(opening, around[places], around[places + 2])
            fine = np.isin(neighbours, [self._delimiter, _CR, _LF, -1, _QUOTE])
            # A doubled mark is one that closes and one that opens at once: only such neighbours may be marks.
            if not fine.all():
                wrong = int(np.argmin(fine))
                what = "stands inside a field" if opening[wrong] else "is followed by more text"
                return f"a quotation mark in line {self._line_of(chunk, int(places[wrong]))} {what}"
            if (ends_long := self._ends_long(around, places, opening)) >= 0:
                return f"a field in quotation marks that ends in line {self._line_of(chunk, ends_long)} is too long"
            self._quotes += places.size
            if self._quotes % 2:
                self._opened_at = self._line_of(chunk, int(places[-1]))
        if ends >= 0:
            return f"line {self._line_of(chunk, ends)} ends otherwise than the first one"
        return ""

    def _ends_long(self, around: NDArray[np.int16], places: NDArray[np.intp], opening: NDArray[np.bool_]) -> int:
        """Where a field in quotation marks ends that is too long, or -1; a doubled mark neither begins nor ends one."""
        begins = places[opening & (around[places] != _QUOTE)] + self._place
        ends = places[~opening & (around[places + 2] != _QUOTE)]
        begins = np.concatenate([[self._field_begins], begins])
        self._field_begins = int(begins[-1])
        sizes = ends + self._place - begins[np.searchsorted(begins, ends + self._place) - 1]
        long = ends[sizes > _LONGEST_FIELD_BYTES]
        return int(long[0]) if long.size else -1

    def _ends(self, chunk: Bytes, places: NDArray[np.intp], after: int) -> int:
        """Where a line ends otherwise than the first one did, or -1; what stands in quotation marks ends no line."""
        cr = np.flatnonzero(chunk == _CR)
        if self._ends_with_cr is None:
            lf = np.flatnonzero(chunk == _LF)
            if not cr.size and not lf.size:
                return -1
            first = int(cr[0]) if cr.size else chunk.size
            follows = int(chunk[first + 1]) if first + 1 < chunk.size else after
            self._ends_with_cr = first < (int(lf[0]) if lf.size else chunk.size) and follows != _LF
        if self._ends_with_cr:
            odd = np.flatnonzero(chunk == _LF)
        else:
            following = np.concatenate([chunk[1:], [after]]).astype(np.int16)[cr] if cr.size else cr
            odd = cr[following != _LF]
        outside = odd[(np.searchsorted(places, odd) + self._quotes) % 2 == 0]
        return int(outside[0]) if outside.size else -1

    def _line_of(self, chunk: Bytes, place: int) -> int:
        return self._lines + int(np.count_nonzero(chunk[:place] == (_CR if self._ends_with_cr else _LF)))


def _in_view(file: BinaryIO) -> Iterator[tuple[int, Bytes, int]]:
    """Each chunk with the byte before it and the one after it, -1 where there is none."""
    start = file.read(len(_MARK_ORDER))
    chunk = (b"" if start == _MARK_ORDER else start) + file.read(_CHUNK_BYTES)
    before = -1
    while chunk:
        following = file.read(_CHUNK_BYTES)
        yield before, np.frombuffer(chunk, np.uint8), following[0] if following else -1
        before, chunk = chunk[-1], following


# --- The header ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """The names in the header line, in order, and what separates them."""

    names: tuple[str, ...]
    delimiter: str


def read_header(path: Path, wanted: Collection[str]) -> Header | str:
    """The header with the delimiter that finds most of `wanted`, or what is wrong with the line."""
    with path.open("rb") as file:
        line = file.read(_LONGEST_HEADER).replace(b"\r", b"\n").split(b"\n", 1)[0]
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "does not begin with a header line in UTF-8"
    if not text.strip():
        return "has no header line"
    if text.count('"') % 2 or "\x00" in text:
        return "has a header line that cannot be read"
    headers = [_split(text, delimiter) for delimiter in _DELIMITERS]
    return max(headers, key=lambda header: len(set(wanted) & set(header.names)))


def _split(text: str, delimiter: str) -> Header:
    names = next(csv.reader([text], delimiter=delimiter), [])
    return Header(tuple(name.strip() for name in names), delimiter)
