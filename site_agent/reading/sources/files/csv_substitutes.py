"""The text of a CSV file that is not all UTF-8: SUBSTITUTE stands for each byte that is none, and its field is absent.

ASCII has this control character for letters that were lost; a field that holds one is absent in every CSV file. One
byte stands for one byte, so that no record is longer than it was written, and what is absent depends on the field
alone, never on what else the file holds.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from site_agent.reading.sources.duckdb.mended_files import bytes_between
from site_agent.reading.statements.sql_trees import call, ref, text

_BLOCK_BYTES = 2**20
_BESIDE = 3
"""So many bytes of one letter may be before or behind a place."""

_SUBSTITUTE = "\x1a"
_UNDECODED = re.compile("[\udc80-\udcff]")
"""What Python puts in the place of a byte that is not UTF-8; no text in UTF-8 holds these."""


@dataclass(frozen=True, slots=True)
class SubstitutedText:
    """The file, byte for byte; see `MendedBytes`."""

    size_bytes: int

    def between(self, descriptor: int, begin: int, end: int) -> bytes:
        # By blocks: Python's letters take up to four times the memory of their bytes.
        ends = ((place, min(place + _BLOCK_BYTES, end)) for place in range(begin, end, _BLOCK_BYTES))
        return b"".join(self._block(descriptor, *places) for places in ends)

    def _block(self, descriptor: int, begin: int, end: int) -> bytes:
        first, last = max(begin - _BESIDE, 0), min(end + _BESIDE, self.size_bytes)
        found = bytes_between(descriptor, first, last)
        if not found.isascii():
            found = _UNDECODED.sub(_SUBSTITUTE, found.decode("utf-8", "surrogateescape")).encode()
        return found[begin - first : end - first]


def is_whole(path: Path) -> bool:
    """Whether all of the file is UTF-8, and no letter was lost before it was written."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while chunk := file.read(_BLOCK_BYTES):
                decoder.decode(chunk)
                if _SUBSTITUTE.encode() in chunk:
                    return False
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def whole_field(name: str) -> exp.Expression:
    """The field `name`, or NULL where a letter of it was lost."""
    return exp.Case().when(exp.Not(this=call("CONTAINS", ref(name), text(_SUBSTITUTE))), ref(name))
