"""The text of a CSV file that is not all UTF-8: each byte that is none is escaped, and its field is absent.

What is escaped depends on the field alone, never on what else the file holds. The escape itself is escaped where it
stands in a text, and SQL takes that back.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from site_agent.reading.sources.duckdb.mended_files import bytes_between
from site_agent.reading.statements.sql_trees import call, ref, text

_BLOCK_BYTES = 2**20
_LONGEST = 4
"""Bytes of one letter."""

_FIRST_BITS, _GOES_ON = 0xC0, 0x80
"""A byte in which a letter goes on; no other byte of UTF-8 begins so."""

_ESCAPE, _NO_TEXT, _ITSELF = "\x01", "\x01\x02", "\x01\x03"
"""Control characters, which delimit nothing."""

_UNDECODED = re.compile("[\udc80-\udcff]")
"""What Python puts in the place of a byte that is not UTF-8; no text in UTF-8 holds these."""


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
    found = bytes_between(descriptor, begin, min(end + _LONGEST, size))
    first = _next_letter(found, 0) if place else 0
    return found[first : _next_letter(found, end - begin)]


def _next_letter(content: bytes, place: int) -> int:
    """The first place from `place` on where no letter from before goes on."""
    last = min(place + _LONGEST - 1, len(content))
    return next((here for here in range(place, last) if content[here] & _FIRST_BITS != _GOES_ON), last)


def _escaped(block: bytes) -> bytes:
    marked = block.replace(_ESCAPE.encode(), _ITSELF.encode())
    if marked.isascii():
        return marked
    return _UNDECODED.sub(_NO_TEXT, marked.decode("utf-8", "surrogateescape")).encode()
