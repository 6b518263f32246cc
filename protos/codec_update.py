"""The updates of an answer, as slices of bytes and back.

The noised sums of a step can be larger than one message, so they are laid end to end and cut anywhere; how many
bytes are whose is said up front, and the reader believes no more than it can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protos import checks
from protos._generated import analyst_service_pb2 as pb
from wardround.federation.answer import MAX_UPDATE_BYTES, Update
from wardround.federation.shape import MAX_DIMENSION

NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Slice:
    """Some bytes of an answer's updates, from number `first` on; `sizes` name every update and its length."""

    sizes: tuple[tuple[str, int], ...] = ()
    first: int = 0
    content: bytes = b""

    @property
    def total(self) -> int:
        """How many bytes there are in all."""
        return sum(size for _, size in self.sizes)


def cut(updates: Sequence[Update], *, first: int, room: int) -> Slice:
    """At most `room` bytes of the updates, from byte `first` on."""
    whole = Slice(tuple((update.site, len(update.total)) for update in updates))
    checks.require(first <= whole.total, "an answer has no such update.")
    return Slice(whole.sizes, first, b"".join(_pieces(updates, first, first + room)))


def joined(sizes: Sequence[tuple[str, int]], content: bytes) -> tuple[Update, ...]:
    """The updates, once all their bytes are here."""
    updates: list[Update] = []
    begin = 0
    for site, size in sizes:
        updates.append(Update(site, content[begin : begin + size]))
        begin += size
    return tuple(updates)


def slice_to_page(part: Slice, page: pb.AnswerPage) -> None:
    """Write a slice into the page of an answer."""
    page.updates.extend(pb.UpdateSize(site=site, bytes=size) for site, size in part.sizes)
    page.first_update_byte = part.first
    page.update_bytes = part.content


def slice_from_page(page: pb.AnswerPage) -> Slice:
    """The slice in the page of an answer: of one total, or of sites that answered."""
    sites = [update.site for update in page.updates]
    if sites != [""]:
        answered = set(page.answer.answered)
        checks.require(
            answered.issuperset(checks.names(sites, "the updates")), "an update is of no site that answered."
        )
    largest = NUMBER_BYTES * MAX_DIMENSION
    sizes = [checks.whole(update.bytes, "an update's size", lower=1, upper=largest) for update in page.updates]
    checks.require(len(set(sizes)) <= 1, "the updates of a step differ in size.")
    checks.require(all(size % NUMBER_BYTES == 0 for size in sizes), "an update does not hold whole numbers.")
    part = Slice(tuple(zip(sites, sizes, strict=True)), page.first_update_byte, page.update_bytes)
    checks.require(part.total <= MAX_UPDATE_BYTES, "the updates of an answer are too large.")
    checks.require(part.first + len(part.content) <= part.total, "an answer has more updates than it names.")
    return part


def _pieces(updates: Sequence[Update], begin: int, end: int) -> Iterator[memoryview]:
    """What of each update lies between two places of the whole."""
    for update in updates:
        yield memoryview(update.total)[max(begin, 0) : max(end, 0)]
        begin, end = begin - len(update.total), end - len(update.total)
