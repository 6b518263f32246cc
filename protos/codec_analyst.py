"""The requests and replies of the analyst's conversation, as messages and back.

An answer per group of a large domain, or the update of a large model, is larger than one message may be, so it
travels in pages; an answer never changes once it is stored, so pages read at different times fit together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from protos import checks
from protos._generated import analyst_service_pb2 as pb
from protos._generated import answer_pb2
from protos.codec_answer import (
    MAX_ESTIMATES,
    answer_from_message,
    answer_to_message,
    estimate_to_message,
    preview_from_message,
    preview_to_message,
    progress_from_message,
    progress_to_message,
    question_from_message,
    question_to_message,
)
from protos.codec_budget import budget_from_message, budget_to_message
from protos.codec_site import wait_from_milliseconds, wait_to_milliseconds
from protos.codec_update import Slice, cut, slice_from_page, slice_to_page
from wardround.federation.answer import (
    MAX_UPDATE_BYTES,
    Answer,
    AskRequest,
    BudgetReport,
    Estimate,
    Preview,
    Progress,
)

PAGE_BYTES = 1024 * 1024
MAX_STUDY_TEXT = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Watch:
    """A long poll for one plan: what was seen last, how long to wait, and which page of an answer."""

    plan_id: str
    seen: int
    wait_seconds: float
    first_estimate: int = 0
    first_update_byte: int = 0


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


def ask_to_message(request: AskRequest) -> pb.AskRequest:
    """A question as a request."""
    return pb.AskRequest(question=question_to_message(request))


def ask_from_message(message: pb.AskRequest) -> AskRequest:
    """The question in a request."""
    return question_from_message(message.question)


def asked_to_message(plan_id: str) -> pb.AskReply:
    """The plan id of a question as a reply."""
    return pb.AskReply(plan_id=plan_id)


def asked_from_message(message: pb.AskReply) -> str:
    """The plan id in a reply."""
    return checks.digest(message.plan_id, "a plan id")


def watch_to_message(watch: Watch) -> pb.AwaitRequest:
    """A long poll as a request."""
    return pb.AwaitRequest(
        plan_id=watch.plan_id,
        seen=watch.seen,
        wait_milliseconds=wait_to_milliseconds(watch.wait_seconds),
        first_estimate=watch.first_estimate,
        first_update_byte=watch.first_update_byte,
    )


def watch_from_message(message: pb.AwaitRequest) -> Watch:
    """The long poll in a request."""
    return Watch(
        plan_id=checks.digest(message.plan_id, "a plan id"),
        seen=checks.whole(message.seen, "progress"),
        wait_seconds=wait_from_milliseconds(message.wait_milliseconds),
        first_estimate=checks.whole(message.first_estimate, "the first estimate", upper=MAX_ESTIMATES),
        first_update_byte=checks.whole(message.first_update_byte, "the first byte of updates", upper=MAX_UPDATE_BYTES),
    )


def watched_to_message(
    outcome: Progress | Answer, *, first_estimate: int, first_update_byte: int = 0, pause_seconds: float = 0.0
) -> pb.AwaitReply:
    """Progress, or as much of an answer from `first_estimate` and `first_update_byte` on as one message takes."""
    pause = wait_to_milliseconds(pause_seconds)
    match outcome:
        case Progress():
            return pb.AwaitReply(progress=progress_to_message(outcome), pause_milliseconds=pause)
        case Answer():
            return pb.AwaitReply(page=_page(outcome, first_estimate, first_update_byte))


def watched_from_message(message: pb.AwaitReply) -> Watched:
    """The progress, or the page of an answer, in a reply."""
    pause_seconds = wait_from_milliseconds(message.pause_milliseconds)
    match message.WhichOneof("kind"):
        case "progress":
            return Watched(progress_from_message(message.progress), pause_seconds)
        case "page":
            page = message.page
            total = checks.whole(page.all_estimates, "the number of estimates", upper=MAX_ESTIMATES)
            first = checks.whole(page.first_estimate, "the first estimate", upper=total)
            answer, updates = answer_from_message(page.answer), slice_from_page(page)
            here = len(answer.estimates)
            ended = first == total and updates.first == updates.total
            checks.require(first + here <= total, "a page has more estimates than its answer.")
            checks.require(here > 0 or len(updates.content) > 0 or ended, "a page of an answer is empty.")
            return Watched(Page(answer, first, total, updates), pause_seconds)
        case None:
            raise checks.malformed("a reply is neither progress nor an answer.")


def _page(answer: Answer, first_estimate: int, first_update_byte: int) -> pb.AnswerPage:
    checks.require(first_estimate <= len(answer.estimates), "an answer has no such estimate.")
    estimates = tuple(_fitting(islice(answer.estimates, first_estimate, None)))
    room = max(PAGE_BYTES - sum(estimate.ByteSize() for estimate in estimates), 0)
    page = pb.AnswerPage(
        answer=answer_to_message(answer, estimates),
        first_estimate=first_estimate,
        all_estimates=len(answer.estimates),
    )
    slice_to_page(cut(answer.updates, first=first_update_byte, room=room), page)
    return page


def _fitting(estimates: Iterable[Estimate]) -> Iterator[answer_pb2.Estimate]:
    """As many of the estimates as fit into a page; at least one, so that pages come to an end."""
    room = PAGE_BYTES
    for estimate in estimates:
        message = estimate_to_message(estimate)
        yield message
        room -= message.ByteSize()
        if room <= 0:
            return


def preview_request_to_message(request: AskRequest) -> pb.PreviewRequest:
    """A question for a dry run as a request."""
    return pb.PreviewRequest(question=question_to_message(request))


def preview_request_from_message(message: pb.PreviewRequest) -> AskRequest:
    """The question for a dry run in a request."""
    return question_from_message(message.question)


def previewed_to_message(preview: Preview) -> pb.PreviewReply:
    """A dry run as a reply."""
    return pb.PreviewReply(preview=preview_to_message(preview))


def previewed_from_message(message: pb.PreviewReply) -> Preview:
    """The dry run in a reply."""
    return preview_from_message(message.preview)


def study_to_message(text: str) -> pb.DescribeReply:
    """The text of a study as a reply."""
    return pb.DescribeReply(study=text)


def study_from_message(message: pb.DescribeReply) -> str:
    """The text of a study in a reply; reading it is for `parse_study`."""
    return checks.foreign_text(message.study, "a study", longest=MAX_STUDY_TEXT)


def report_to_message(report: BudgetReport) -> pb.BudgetReply:
    """A budget report as a reply."""
    return pb.BudgetReply(report=budget_to_message(report))


def report_from_message(message: pb.BudgetReply) -> BudgetReport:
    """The budget report in a reply."""
    return budget_from_message(message.report)
