"""What analysts may call: each method decodes, calls one function, encodes. The caller is checked every time.

A page of an answer costs what it holds and not the whole answer: many estimates are stored on pages. Of long updates
somebody reads on in, one answer is kept at a time, and only until its last page. An answer never changes, so the ledger
can always give it again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import grpc

from coordinator.members.roster import authorize
from coordinator.rounds.coordinator import Coordinator
from coordinator.rounds.statements import Wanted
from coordinator.rounds.stored_answers import PAGE_ESTIMATES
from protos._generated import analyst_service_pb2 as pb
from protos._generated.analyst_service_pb2_grpc import AnalystServiceServicer
from protos.pages import PAGE_BYTES, write_watched
from protos.serving import WaitingRoom
from protos.tls import caller_certificate
from protos.words import (
    AFTER,
    ASKED,
    HOSPITALS,
    MAX_HOSPITALS,
    PREVIEWED,
    REPORT,
    SITES,
    STUDY,
    WATCH,
    Watch,
    read_question,
)
from wardround.federation.question.answer import Excerpt, Progress
from wardround.federation.trust.certificates import Role

# Whoever reads longer updates than these has each page made from the ledger anew.
KEPT_BYTES = 256 * PAGE_BYTES
ESTIMATES_AT_ONCE = 4 * PAGE_ESTIMATES


class PagedAnswer:
    """The answer that is being read page by page, and by whom."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: dict[tuple[str, str], Excerpt] = {}

    def begun(self, analyst: str, watch: Watch) -> Excerpt | None:
        """The answer whose first page this analyst has read, if it is the one that is kept."""
        with self._guard:
            return self._kept.get((analyst, watch.plan_id)) if watch.first_update_byte > 0 else None

    def note(self, analyst: str, watch: Watch, outcome: Progress | Excerpt) -> None:
        """Keep an answer that has further pages, instead of any other, and let go of it with the last."""
        if not isinstance(outcome, Excerpt):
            return
        size = sum(len(update.total) for update in outcome.answer.updates)
        with self._guard:
            if watch.first_update_byte + PAGE_BYTES < size <= KEPT_BYTES:
                self._kept = {(analyst, watch.plan_id): outcome}
            else:
                self._kept.pop((analyst, watch.plan_id), None)


@dataclass(frozen=True, slots=True)
class AnalystService(AnalystServiceServicer):
    """The analyst's conversation, over a coordinator."""

    coordinator: Coordinator
    study_text: str
    room: WaitingRoom
    reading: PagedAnswer = field(default_factory=PagedAnswer)

    def _analyst(self, context: grpc.ServicerContext) -> str:
        return authorize(self.coordinator.ledger, caller_certificate(context), Role.ANALYST)

    def Ask(self, request: pb.AskRequest, context: grpc.ServicerContext) -> pb.AskReply:
        """Open a round, or find the answer that is stored."""
        analyst = self._analyst(context)
        return ASKED.write(self.coordinator.ask(analyst, read_question(request.question)))

    def Await(self, request: pb.AwaitRequest, context: grpc.ServicerContext) -> pb.AwaitReply:
        """Wait for news of a plan."""
        analyst = self._analyst(context)
        watch = WATCH.read(request)
        outcome, pause_seconds = self._news(analyst, watch)
        self.reading.note(analyst, watch, outcome)
        return write_watched(
            outcome,
            first_estimate=watch.first_estimate,
            first_update_byte=watch.first_update_byte,
            pause_seconds=pause_seconds,
        )

    def _news(self, analyst: str, watch: Watch) -> tuple[Progress | Excerpt, float]:
        if (begun := self.reading.begun(analyst, watch)) is not None:
            return begun, 0.0
        wanted = Wanted(watch.first_estimate, ESTIMATES_AT_ONCE)
        with self.room.seat(analyst, wait_seconds=watch.wait_seconds) as seat:
            outcome = self.coordinator.watch_excerpt(
                analyst, watch.plan_id, seen=watch.seen, wait_seconds=seat.wait_seconds, wanted=wanted
            )
        return outcome, seat.pause_seconds

    def Preview(self, request: pb.PreviewRequest, context: grpc.ServicerContext) -> pb.PreviewReply:
        """Say what a question would cost."""
        analyst = self._analyst(context)
        return PREVIEWED.write(self.coordinator.preview(analyst, read_question(request.question)))

    def AskByError(self, request: pb.AskRequest, context: grpc.ServicerContext) -> pb.AskReply:
        """The same, where the question says which error it takes."""
        return self.Ask(request, context)

    def AskRequiring(self, request: pb.AskRequest, context: grpc.ServicerContext) -> pb.AskReply:
        """The same, where the question requires a number of hospitals."""
        return self.Ask(request, context)

    def PreviewByError(self, request: pb.PreviewRequest, context: grpc.ServicerContext) -> pb.PreviewReply:
        """The same, where the question says which error it takes."""
        return self.Preview(request, context)

    def Sites(self, request: pb.SitesRequest, context: grpc.ServicerContext) -> pb.SitesReply:
        """Who would be asked now."""
        return SITES.write(self.coordinator.sites(self._analyst(context)))

    def Hospitals(self, request: pb.HospitalsRequest, context: grpc.ServicerContext) -> pb.HospitalsReply:
        """A page of the hospitals that belong to the study."""
        found, after = self.coordinator.hospitals(self._analyst(context)), AFTER.read(request)
        return HOSPITALS.write(tuple(each for each in found if each.name > after)[:MAX_HOSPITALS])

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.DescribeReply:
        """The study as it was written."""
        self._analyst(context)
        return STUDY.write(self.study_text)

    def Budget(self, request: pb.BudgetRequest, context: grpc.ServicerContext) -> pb.BudgetReply:
        return REPORT.write(self.coordinator.budget(self._analyst(context)))
