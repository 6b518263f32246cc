"""The calls of each conversation: words in, words out, a deadline on every one.

A link of a role is a thin coat over one of these; gRPC's own types end here.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import grpc

from protos._generated import analyst_service_pb2 as analyst_pb
from protos._generated.analyst_service_pb2_grpc import AnalystServiceStub
from protos._generated.enrolment_service_pb2_grpc import EnrolmentServiceStub
from protos._generated.site_service_pb2_grpc import SiteServiceStub
from protos.channels import MAX_MESSAGE_BYTES
from protos.chunked_release import CALL_SECONDS, MAX_RELEASE_BYTES, recall, submit
from protos.pages import Page, Watched, joined, read_watched
from protos.statuses import call
from protos.words import (
    AFTER,
    ASKED,
    CLAIM,
    ENROLLED,
    ENROLMENT,
    GREETING,
    HOSPITALS,
    LIST_AFTER,
    LONGEST_WAIT_SECONDS,
    MAX_SHOWN,
    PIECE_BYTES,
    POLL,
    PRESENTING,
    PREVIEWED,
    REJOINING,
    RENEWAL,
    RENEWED,
    REPORT,
    RESERVED,
    RETURN_AFTER,
    RETURNED,
    RETURNED_CHAIN,
    SHOWN,
    SITES,
    STUDY,
    WANTED,
    WATCH,
    Poll,
    WantedPlan,
    Watch,
    write_question,
)
from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import refuse
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import AskRequest, SignedTask, Submission
from wardround.federation.question.answer import Answer, Estimate, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.trust.enrolment import Enrolment, Greeting, Presenting
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.public_limits import PublicSite

# How much longer than its wait a long poll may take.
_POLL_MARGIN_SECONDS = 10.0
_ENTRY_BYTES = 512
_NOTHING = Presenting()
_UNFITTING = "the pages of an answer do not fit together."

Pause = Callable[[float], object]
Each = Callable[[Callable[[], Watched]], Watched]
"""Who makes the call for each page of an answer, and makes it again where it failed."""


def _poll_seconds(wait_seconds: float) -> float:
    return min(max(wait_seconds, 0.0), LONGEST_WAIT_SECONDS) + _POLL_MARGIN_SECONDS


class SiteCalls:
    """What a site says to its coordinator."""

    def __init__(self, channel: grpc.Channel, *, deadline_seconds: float = CALL_SECONDS) -> None:
        self._stub = SiteServiceStub(channel)
        self._deadline = deadline_seconds

    def greet(self, presenting: Presenting = _NOTHING) -> Greeting:
        """Whom the coordinator takes us for, which study it runs, what time it has, how far it knows our ledger."""
        return GREETING.read(call(self._stub.Greet, PRESENTING.write(presenting), deadline_seconds=self._deadline))

    def show(self, chain: Sequence[Entry]) -> None:
        """Show entries of our own ledger, in order, as many at once as a message takes."""
        for page in pages_of(chain):
            call(self._stub.ShowChain, SHOWN.write(page), deadline_seconds=self._deadline)

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Show our ledger up to `head`, and remind the coordinator of every plan that it may have forgotten."""
        self.show(chain)
        for each in recalled:
            recall(self._stub, each, deadline_seconds=self._deadline)
        call(self._stub.Rejoin, REJOINING.write(head), deadline_seconds=self._deadline)

    def returned_chain(self, *, after: int) -> tuple[Entry, ...]:
        """The next entries of our own ledger that the coordinator keeps; none where nothing follows."""
        return RETURNED_CHAIN.read(
            call(self._stub.ReturnChain, RETURN_AFTER.write(after), deadline_seconds=self._deadline)
        )

    def returned_plan(self, plan_id: str) -> tuple[SignedTask, bytes]:
        """A plan that was asked of us, and what we released for it; no bytes where that was nothing."""
        content = b""
        while True:
            request = WANTED.write(WantedPlan(plan_id, len(content)))
            returned = RETURNED.read(call(self._stub.ReturnPlan, request, deadline_seconds=self._deadline))
            content += returned.payload
            refuse("a release is too large." if len(content) > MAX_RELEASE_BYTES else None)
            if len(returned.payload) < PIECE_BYTES:
                return returned.task, content

    def reserved(self) -> Iterator[str]:
        """The plans that the coordinator charged at us."""
        last = ""
        while True:
            request = LIST_AFTER.write(last)
            listed = RESERVED.read(call(self._stub.ListReserved, request, deadline_seconds=self._deadline))
            # Otherwise a coordinator could send the same list for ever.
            refuse(None if [last, *listed] == sorted({last, *listed}) else "the plans are not in order.")
            yield from listed
            if not listed:
                return
            last = listed[-1]

    def claim(
        self, *, wait_seconds: float, receipt: Entry | None = None, pause: Pause = time.sleep
    ) -> SignedTask | None:
        """The next task, waiting up to `wait_seconds`; `pause` is called when the coordinator asks for it."""
        request = POLL.write(Poll(wait_seconds, receipt))
        reply = call(self._stub.ClaimTask, request, deadline_seconds=_poll_seconds(wait_seconds))
        claim = CLAIM.read(reply)
        if claim.task is None and claim.pause_seconds > 0.0:
            pause(claim.pause_seconds)
        return claim.task

    def submit(self, submission: Submission) -> Entry | None:
        """Hand over an answer; a release or a refusal gets a receipt."""
        return submit(self._stub, submission, deadline_seconds=self._deadline)

    def renew(self, certificate_request: bytes) -> bytes:
        """A new certificate for our own name, as PEM."""
        request = RENEWAL.write(certificate_request)
        return RENEWED.read(call(self._stub.RenewCertificate, request, deadline_seconds=self._deadline))


def pages_of(chain: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Entries in order, on pages that a message takes."""
    page: list[Entry] = []
    room = MAX_MESSAGE_BYTES // 2
    for entry in chain:
        size = _ENTRY_BYTES + len(entry.body.encode())
        if page and (len(page) == MAX_SHOWN or size > room):
            yield tuple(page)
            page, room = [], MAX_MESSAGE_BYTES // 2
        page.append(entry)
        room -= size
    if page:
        yield tuple(page)


class EnrolmentCalls:
    """What a hospital says before it has a certificate."""

    def __init__(self, channel: grpc.Channel, *, deadline_seconds: float = CALL_SECONDS) -> None:
        self._stub = EnrolmentServiceStub(channel)
        self._deadline = deadline_seconds

    def enrol(self, enrolment: Enrolment) -> bytes:
        """The site's first certificate, as PEM."""
        reply = call(self._stub.Enrol, ENROLMENT.write(enrolment), deadline_seconds=self._deadline)
        return ENROLLED.read(reply)


class AnalystCalls:
    """What an analyst says to the coordinator."""

    def __init__(self, channel: grpc.Channel, *, deadline_seconds: float = CALL_SECONDS) -> None:
        self._stub = AnalystServiceStub(channel)
        self._deadline = deadline_seconds

    def ask(self, request: AskRequest) -> str:
        """The plan id of a question whose round is now open."""
        message = analyst_pb.AskRequest(question=write_question(request))
        by_error = self._stub.AskByError if request.errors else self._stub.Ask
        asking = self._stub.AskRequiring if request.require else by_error
        return ASKED.read(call(asking, message, deadline_seconds=self._deadline))

    def watch(
        self,
        plan_id: str,
        *,
        seen: int,
        wait_seconds: float,
        pause: Pause = time.sleep,
        each: Each = operator.call,
    ) -> Progress | Answer:
        """The next progress after `seen`, or the whole answer, page by page."""
        watched = each(lambda: self._watched(Watch(plan_id, seen, wait_seconds)))
        match watched.outcome:
            case Progress():
                if watched.pause_seconds > 0.0:
                    pause(watched.pause_seconds)
                return watched.outcome
            case Page():
                return self._whole(watched.outcome, each)

    def preview(self, request: AskRequest) -> Preview:
        """What a question would cost and how good its answer would be."""
        message = analyst_pb.PreviewRequest(question=write_question(request))
        previewing = self._stub.PreviewByError if request.errors else self._stub.Preview
        return PREVIEWED.read(call(previewing, message, deadline_seconds=self._deadline))

    def sites(self) -> tuple[str, ...]:
        """The sites that would be asked now."""
        return SITES.read(call(self._stub.Sites, analyst_pb.SitesRequest(), deadline_seconds=self._deadline))

    def hospitals(self) -> tuple[PublicSite, ...]:
        """The hospitals of the study with their public limits, page by page."""
        found: list[PublicSite] = []
        while True:
            request = AFTER.write(found[-1].name if found else "")
            page = HOSPITALS.read(call(self._stub.Hospitals, request, deadline_seconds=self._deadline))
            if not page:
                return tuple(found)
            # Otherwise a coordinator could send the same page for ever.
            names = [each.name for each in (*found[-1:], *page)]
            refuse(None if names == sorted(set(names)) else "the hospitals are not in order.")
            found.extend(page)

    def study_text(self) -> str:
        """The study as the consortium wrote it."""
        request = analyst_pb.DescribeRequest()
        return STUDY.read(call(self._stub.Describe, request, deadline_seconds=self._deadline))

    def budget(self) -> BudgetReport:
        """The study's budget as the coordinator's ledger has it."""
        request = analyst_pb.BudgetRequest()
        return REPORT.read(call(self._stub.Budget, request, deadline_seconds=self._deadline))

    def _watched(self, watch: Watch) -> Watched:
        reply = call(self._stub.Await, WATCH.write(watch), deadline_seconds=_poll_seconds(watch.wait_seconds))
        return read_watched(reply)

    def _whole(self, page: Page, each: Each) -> Answer:
        """The answer with what all its pages bring; each must continue the one before."""
        answer, total, sizes, all_bytes = page.answer, page.total, page.updates.sizes, page.updates.total
        estimates: list[Estimate] = []
        content = bytearray()
        while True:
            same = page.answer.plan_id == answer.plan_id and page.total == total and page.updates.sizes == sizes
            fits = same and page.first == len(estimates) and page.updates.first == len(content)
            refuse(None if fits else _UNFITTING)
            estimates.extend(page.answer.estimates)
            content += page.updates.content
            if len(estimates) == total and len(content) == all_bytes:
                updates = joined(sizes, bytes(content))
                return dataclasses.replace(answer, estimates=tuple(estimates), updates=updates)
            watch = Watch(answer.plan_id, 0, 0.0, len(estimates), len(content))
            outcome = each(functools.partial(self._watched, watch)).outcome
            if not isinstance(outcome, Page):
                raise MalformedMessage(_UNFITTING)
            page = outcome
