"""Whether a CSV file is CSV, found by one look at its bytes before any question; its header, and its escaped text.

A quotation mark that is never closed, or that stands where none may, lets one record hide or change others, and
readers disagree about what it means. So does a line that ends as no other line of the file does. Such a file is not
read at all. What a field holds never makes a file unsound: of text that is not UTF-8 each byte that is none is escaped,
and its field is absent. What is escaped depends on the field alone, never on what else the file holds. The escape
itself is escaped where it stands in a text, and SQL takes that back.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from site_agent.reading.sources.duckdb.mended_files import bytes_between
from site_agent.reading.statements.sql_trees import call, ref, text

_CHUNK_BYTES = 2**24
_QUOTE, _CR, _LF = 0x22, 0x0D, 0x0A
_MARK_ORDER = "\ufeff".encode()

Bytes = NDArray[np.uint8]
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_HEADER = 1 << 20
_BLOCK_BYTES = 2**20
_LONGEST_LETTER = 4
"""Bytes of one letter."""
_FIRST_BITS, _GOES_ON = 0xC0, 0x80
"""A byte in which a letter goes on; no other byte of UTF-8 begins so."""
_ESCAPE, _NO_TEXT, _ITSELF = "\x01", "\x01\x02", "\x01\x03"
"""Control characters, which delimit nothing."""
_UNDECODED = re.compile("[\udc80-\udcff]")
"""What Python puts in the place of a byte that is not UTF-8; no text in UTF-8 holds these."""


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
        self._ends_with_cr: bool | None = None

    def fault(self) -> str:
        for before, chunk, after in _in_view(self._file):
            if found := self._fault_in(before, chunk, after):
                return found
            self._lines += int(np.count_nonzero(chunk == (_CR if self._ends_with_cr else _LF)))
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
            self._quotes += places.size
            if self._quotes % 2:
                self._opened_at = self._line_of(chunk, int(places[-1]))
        if ends >= 0:
            return f"line {self._line_of(chunk, ends)} ends otherwise than the first one"
        return ""

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


# --- Text that is not UTF-8 -------------------------------------------------------------------------------


def is_utf8(path: Path) -> bool:
    """Whether all of the file is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


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


@dataclass(frozen=True, slots=True, eq=False)
class EscapedText:
    """The file in blocks; see `View`. Of each it is known where it begins when all before it are escaped."""

    file_bytes: int
    begins: NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        return int(self.begins[-1])

    def between(self, descriptor: int, begin: int, end: int) -> bytes:
        first = int(np.searchsorted(self.begins, begin, side="right")) - 1
        last = int(np.searchsorted(self.begins, end, side="left"))
        found = [_escaped(_block(descriptor, place, self.file_bytes)) for place in range(first, last)]
        if found:
            found[-1] = found[-1][: end - int(self.begins[last - 1])]
            found[0] = found[0][begin - int(self.begins[first]) :]
        return b"".join(found)


def escaped_text(path: Path) -> EscapedText:
    """The text of the file at `path`."""
    with path.open("rb") as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
        blocks = (_block(descriptor, place, size) for place in range(-(-size // _BLOCK_BYTES)))
        lengths = [len(_escaped(block)) for block in blocks]
    return EscapedText(size, np.array([0, *itertools.accumulate(lengths)], np.int64))


def unescaped(name: str) -> exp.Expression:
    """The field `name` as it was written, or NULL where it was no text."""

    def lacks(letters: str) -> exp.Expression:
        return exp.Not(this=call("CONTAINS", ref(name), text(letters)))

    written = call("REPLACE", ref(name), text(_ITSELF), text(_ESCAPE))
    # Nearly all fields hold no escape, and looking is quicker than replacing.
    return exp.Case().when(lacks(_ESCAPE), ref(name)).when(lacks(_NO_TEXT), written)


def _block(descriptor: int, place: int, size: int) -> bytes:
    """A block of the file; it begins and ends between two letters."""
    begin, end = place * _BLOCK_BYTES, min((place + 1) * _BLOCK_BYTES, size)
    found = bytes_between(descriptor, begin, min(end + _LONGEST_LETTER, size))
    first = _next_letter(found, 0) if place else 0
    return found[first : _next_letter(found, end - begin)]


def _next_letter(content: bytes, place: int) -> int:
    """The first place from `place` on where no letter from before goes on."""
    last = min(place + _LONGEST_LETTER - 1, len(content))
    return next((here for here in range(place, last) if content[here] & _FIRST_BITS != _GOES_ON), last)


def _escaped(block: bytes) -> bytes:
    marked = block.replace(_ESCAPE.encode(), _ITSELF.encode())
    if marked.isascii():
        return marked
    return _UNDECODED.sub(_NO_TEXT, marked.decode("utf-8", "surrogateescape")).encode()
