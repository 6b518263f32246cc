"""Files that are mended while DuckDB reads them: nothing is copied, so none of them is too large."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Protocol

SCHEME = "mended"
_NUMBERS = itertools.count()


class MendedBytes(Protocol):
    """What is read in place of a file's own bytes."""

    @property
    def size_bytes(self) -> int: ...

    def between(self, descriptor: int, begin: int, end: int) -> bytes:
        """The bytes from `begin` to `end` of what is read, out of the file behind `descriptor`."""
        ...


@dataclass(frozen=True, slots=True)
class MendedFile:
    """One version of a file, as it is mended; its name is no other's, so nothing is kept under it from before."""

    source: str
    state: str
    view: MendedBytes
    name: str = field(default_factory=lambda: f"{SCHEME}://{next(_NUMBERS)}")


def bytes_between(descriptor: int, begin: int, end: int) -> bytes:
    """The bytes of a file from `begin` to `end`.

    Raises:
        OSError: it has fewer.
    """
    found = os.pread(descriptor, max(end - begin, 0), begin)
    if len(found) < end - begin:
        raise OSError("cut short since it was looked at")
    return found
