"""Answers in pages.

An answer per group of a large domain, or the update of a large model, is larger than one message may be, so it
travels in pages; an answer never changes once it is stored, so pages read at different times fit together. The noised
sums of a step are laid end to end and cut anywhere; how many bytes are whose is said up front, and the reader believes
no more than it can hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from protos._generated import analyst_service_pb2 as pb
from protos._generated import answer_pb2
from protos.words import ANSWER, ESTIMATE, PROGRESS, Wait
from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import NUMBER_BYTES, Names, Whole, refuse
from wardround.federation.question.answer import (
    MAX_ESTIMATES,
    MAX_UPDATE_BYTES,
    Answer,
    Estimate,
    Excerpt,
    Progress,
    Update,
)
from wardround.federation.question.query import MAX_DIMENSION

PAGE_BYTES = 1024 * 1024

_WAIT = Wait()
_ESTIMATES = Whole("the number of estimates", upper=MAX_ESTIMATES)
_OWNERS = Names("the updates")
_SIZE = Whole("an update's size", 1, NUMBER_BYTES * MAX_DIMENSION)


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


@dataclass(frozen=True, slots=True)
class Page:
    """An answer with some of its estimates, from number `first` of `total`, and a slice of its updates."""

    answer: Answer
    first: int
    total: int
    updates: Slice = field(default_factory=Slice)


@dataclass(frozen=True, slots=True)
class Watched:
    """What a long poll brought, and how long to stay away when it could not wait."""

    outcome: Progress | Page
    pause_seconds: float = 0.0


def write_watched(
    outcome: Progress | Answer | Excerpt,
    *,
    first_estimate: int,
    first_update_byte: int = 0,
    pause_seconds: float = 0.0,
) -> pb.AwaitReply:
    """Progress, or as much of an answer from `first_estimate` and `first_update_byte` on as one message takes."""
    match outcome:
        case Progress():
            return pb.AwaitReply(progress=PROGRESS.write(outcome), pause_milliseconds=_WAIT.number(pause_seconds))
        case Answer():
            whole = Excerpt(outcome, 0, len(outcome.estimates))
            return pb.AwaitReply(page=_write_page(whole, first_estimate, first_update_byte))
        case Excerpt():
            return pb.AwaitReply(page=_write_page(outcome, first_estimate, first_update_byte))


def read_watched(message: pb.AwaitReply) -> Watched:
    """The progress, or the page of an answer, in a reply."""
    pause_seconds = _WAIT.value(message.pause_milliseconds)
    refuse(_WAIT.fault(pause_seconds))
    match message.WhichOneof("kind"):
        case "progress":
            return Watched(PROGRESS.read(message.progress), pause_seconds)
        case "page":
            return Watched(_read_page(message.page), pause_seconds)
        case None:
            raise MalformedMessage("a reply is neither progress nor an answer.")


def joined(sizes: Sequence[tuple[str, int]], content: bytes) -> tuple[Update, ...]:
    """The updates, once all their bytes are here."""
    updates: list[Update] = []
    begin = 0
    for site, size in sizes:
        updates.append(Update(site, content[begin : begin + size]))
        begin += size
    return tuple(updates)


def _write_page(excerpt: Excerpt, first_estimate: int, first_update_byte: int) -> pb.AnswerPage:
    answer, skipped = excerpt.answer, first_estimate - excerpt.first
    _require(0 <= skipped <= len(answer.estimates), "an answer has no such estimate.")
    estimates = tuple(_fitting(islice(answer.estimates, skipped, None)))
    room = max(PAGE_BYTES - sum(estimate.ByteSize() for estimate in estimates), 0)
    part = _cut(answer.updates, first=first_update_byte, room=room)
    page = pb.AnswerPage(
        answer=ANSWER.write(dataclasses.replace(answer, estimates=())),
        first_estimate=first_estimate,
        all_estimates=excerpt.total,
        updates=[pb.UpdateSize(site=site, bytes=size) for site, size in part.sizes],
        first_update_byte=part.first,
        update_bytes=part.content,
    )
    page.answer.estimates.extend(estimates)
    return page


def _read_page(page: pb.AnswerPage) -> Page:
    total, first = page.all_estimates, page.first_estimate
    refuse(_ESTIMATES.fault(total))
    refuse(Whole("the first estimate", upper=total).fault(first))
    answer, updates = ANSWER.read(page.answer), _read_slice(page)
    here = len(answer.estimates)
    ended = first == total and updates.first == updates.total
    _require(first + here <= total, "a page has more estimates than its answer.")
    _require(here > 0 or len(updates.content) > 0 or ended, "a page of an answer is empty.")
    return Page(answer, first, total, updates)


def _fitting(estimates: Iterable[Estimate]) -> Iterator[answer_pb2.Estimate]:
    """As many of the estimates as fit into a page; at least one, so that pages come to an end."""
    room = PAGE_BYTES
    for estimate in estimates:
        message = ESTIMATE.write(estimate)
        yield message
        room -= message.ByteSize()
        if room <= 0:
            return


def _cut(updates: Sequence[Update], *, first: int, room: int) -> Slice:
    """At most `room` bytes of the updates, from byte `first` on."""
    whole = Slice(tuple((update.site, len(update.total)) for update in updates))
    _require(first <= whole.total, "an answer has no such update.")
    return Slice(whole.sizes, first, b"".join(_pieces(updates, first, first + room)))


def _pieces(updates: Sequence[Update], begin: int, end: int) -> Iterator[memoryview]:
    """What of each update lies between two places of the whole."""
    for update in updates:
        yield memoryview(update.total)[max(begin, 0) : max(end, 0)]
        begin, end = begin - len(update.total), end - len(update.total)


def _read_slice(page: pb.AnswerPage) -> Slice:
    """The slice in the page of an answer: of one total, or of sites that answered."""
    sites = [update.site for update in page.updates]
    if sites != [""]:
        refuse(_OWNERS.fault(sites))
        _require(set(page.answer.answered).issuperset(sites), "an update is of no site that answered.")
    sizes = [update.bytes for update in page.updates]
    for size in sizes:
        refuse(_SIZE.fault(size))
    _require(len(set(sizes)) <= 1, "the updates of a step differ in size.")
    _require(all(size % NUMBER_BYTES == 0 for size in sizes), "an update does not hold whole numbers.")
    part = Slice(tuple(zip(sites, sizes, strict=True)), page.first_update_byte, page.update_bytes)
    _require(part.total <= MAX_UPDATE_BYTES, "the updates of an answer are too large.")
    _require(part.first + len(part.content) <= part.total, "an answer has more updates than it names.")
    return part


def _require(condition: bool, sentence: str) -> None:  # noqa: FBT001
    refuse(None if condition else sentence)
