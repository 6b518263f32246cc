"""All units of a table, or as many at a time as fit into memory; each is answered for once.

What does not fit is read again as several smaller shares of the units. A giant, a unit that alone has too many
records, is left out of them and answered for by itself. Which units share a reading, and which are giants, decides how
they are read and never what counts: a unit's choice is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

Answer = TypeVar("Answer", covariant=True)  # noqa: PLC0105

Key = int | float | str | bytes
"""A unit's key as a source hands it out."""

GIANT = 8
"""A giant has more than this part of the records that fit."""

_PARTS = 8
_MOST = 2**18


class Crammed(Exception):
    """More than fits into memory at once."""


@dataclass(frozen=True, slots=True)
class UnitShare:
    """Those units whose key falls into one of `of` equal shares, but for some; a unit is always whole in one."""

    place: int = 0
    of: int = 1
    without: tuple[Key, ...] = field(default=(), repr=False)

    def parts(self) -> Iterator[UnitShare]:
        """Smaller ones that together hold the same units."""
        for place in range(_PARTS):
            yield UnitShare(self.place + self.of * place, self.of * _PARTS, self.without)


EVERYBODY = UnitShare()


class ShareReader(Protocol[Answer]):
    """How a question is answered for some units."""

    def at_once(self, share: UnitShare) -> Answer:
        """For all units of a share; `Crammed` where they do not fit."""

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], Answer]]:
        """The giants of a share, and how each is answered for; `Crammed` where there are too many units to look."""


def pieces(reading: ShareReader[Answer], share: UnitShare = EVERYBODY) -> Iterator[Answer]:
    """The answer for all units of a share, in one piece or in several; each unit is in one of them.

    Raises:
        MemoryError: so little memory that it does not hold a share of a few units.
    """
    try:
        whole = [reading.at_once(share)]
    except Crammed:
        whole = []
    yield from whole
    if whole:
        return
    try:
        giants = reading.giants(share)
    except Crammed:
        giants = {}
    for alone in giants.values():
        yield alone()
    if giants:
        # Named before any of them was read: whatever a file holds by now, nobody counts twice.
        yield from pieces(reading, UnitShare(share.place, share.of, (*share.without, *giants)))
        return
    if share.of >= _MOST:
        raise MemoryError
    for part in share.parts():
        yield from pieces(reading, part)
