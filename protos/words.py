"""Which word is which message.

A word's fields and their limits are read from its dataclass when the program starts; a word that another one holds
needs no line of its own, unless its message calls a field otherwise. Pages, pieces and faults are protocol, not words:
see `protos.pages`, `protos.chunked_release` and `protos.statuses`.

A signature covers the canonical form of a decoded word, so a field that a reader does not know cannot change what it
believes was signed.

A ledger holds our own canonical form. Folders that were served before it did hold plans and waiting tasks as messages;
whoever serves such a folder hands `stored_plan` or `stored_task` to its store, which rewrites what it holds. Nothing
else of the program reads a message from a disk, and nothing writes one.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Annotated

from protos._generated import analyst_service_pb2 as analyst
from protos._generated import answer_pb2 as answer
from protos._generated import enrolment_service_pb2 as enrolment
from protos._generated import plan_pb2 as plan
from protos._generated import release_pb2 as release
from protos._generated import site_service_pb2 as site
from protos.channels import MAX_MESSAGE_BYTES
from protos.codec import Codec, Record, StandIn
from protos.cohorts import BY_HAND
from wardround.federation import canonical
from wardround.federation.errors import QueryMistaken
from wardround.federation.ledger.rewriting import Rewritten
from wardround.federation.limits import NAME, Counted, Form, Many, Names, Needed, Pem, PlanId, Text, Whole, refuse
from wardround.federation.models.training import Stage, Step
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import AskRequest, Declined, Failed, Pending, SignedTask
from wardround.federation.question.answer import MAX_ESTIMATES, MAX_UPDATE_BYTES, Answer, Estimate, Preview, Progress
from wardround.federation.question.query import Query
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.trust.enrolment import Enrolment, Greeting, Presenting
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.public_limits import PublicSite

LONGEST_WAIT_SECONDS = 20.0
MILLISECONDS = 1000
MAX_SHOWN = 256
"""Entries of a chain that are shown at once; each has its own limit, and a page ends where a message would."""
PIECE_BYTES = 1024 * 1024
MAX_HOSPITALS = 500
"""On one page: with all that each may say, well within one message."""
MAX_STUDY_TEXT = 3 * 1024 * 1024
# A task is the question with its participants: the names of ten thousand sites take a little more than half of a MiB.
MAX_QUESTION_BYTES = MAX_MESSAGE_BYTES * 3 // 4


@dataclass(frozen=True, slots=True)
class Wait(Counted[float]):
    """Seconds, never longer than a poll may last, as milliseconds."""

    def number(self, value: float, /) -> int:
        return round(min(max(value, 0.0), LONGEST_WAIT_SECONDS) * MILLISECONDS)

    def value(self, number: int, /) -> float:
        return number / MILLISECONDS

    def fault(self, value: float, /) -> str | None:
        return None if value <= LONGEST_WAIT_SECONDS else "a wait is out of bounds."


Seconds = Annotated[float, Wait()]


@dataclass(frozen=True, slots=True)
class Poll:
    """A long poll for work: how long to wait, and the newest receipt that the site holds."""

    wait_seconds: Seconds
    receipt: Entry | None = None


@dataclass(frozen=True, slots=True)
class WantedPlan:
    """A plan that a site has lost, and from which byte on it wants what it released for it."""

    plan_id: PlanId
    first_byte: Annotated[int, Whole("the first byte", upper=MAX_UPDATE_BYTES)] = 0


@dataclass(frozen=True, slots=True)
class Returned:
    """The plan as it would be handed out, and a piece of its release."""

    task: Annotated[SignedTask, Needed("a plan is missing.")]
    payload: Annotated[bytes, Many("a piece is too large.", PIECE_BYTES)] = b""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a long poll brought: perhaps a task, and how long to stay away when it could not wait."""

    task: SignedTask | None
    pause_seconds: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Watch:
    """A long poll for one plan: what was seen last, how long to wait, and which page of an answer."""

    plan_id: PlanId
    seen: Annotated[int, Whole("progress")]
    wait_seconds: Seconds
    first_estimate: Annotated[int, Whole("the first estimate", upper=MAX_ESTIMATES)] = 0
    first_update_byte: Annotated[int, Whole("the first byte of updates", upper=MAX_UPDATE_BYTES)] = 0


def _with_middle(estimate: Estimate) -> Estimate:
    """A peer that does not know of reasons reads the middle of all that is possible."""
    if estimate.reason is None:
        return estimate
    lower, upper = estimate.interval
    return dataclasses.replace(estimate, value=lower / 2 + upper / 2, standard_error=upper / 2 - lower / 2)


def _without_middle(estimate: Estimate) -> Estimate:
    """With a reason there is no value, whatever stood in for it."""
    return estimate if estimate.reason is None else dataclasses.replace(estimate, value=None, standard_error=None)


WORDS = Codec(BY_HAND)

# Questions, plans and tasks.
QUERY = WORDS.record(Query, plan.Query)
STAGE = WORDS.record(Stage, plan.Stage, names={"scale": "scale_1024ths"})
STEP = WORDS.record(Step, plan.Step)
PLAN = WORDS.record(Plan, plan.Plan, names={"scales": "scales_1024ths"})
HEAD = WORDS.record(Head, plan.Head)
TASK = WORDS.record(SignedTask, plan.SignedTask)
QUESTION = WORDS.record(AskRequest, answer.Question)

# What comes back from sites.
ENTRY = WORDS.record(Entry, release.Entry)
DECLINED = WORDS.record(Declined, release.Declined)
PENDING = WORDS.record(Pending, release.Pending)
FAILED = WORDS.record(Failed, release.Failed)

# What comes back to analysts; the updates of an answer travel beside it, in pages.
PROGRESS = WORDS.record(Progress, answer.Progress)
ESTIMATE = WORDS.record(
    Estimate, answer.Estimate, names={"interval": ("lower", "upper")}, stand_in=StandIn(_with_middle, _without_middle)
)
ANSWER = WORDS.record(Answer, answer.Answer, beside=("updates",))
PREVIEW = WORDS.record(Preview, answer.Preview)
BUDGET = WORDS.record(BudgetReport, answer.BudgetReport)

# The site's conversation.
PRESENTING = WORDS.record(Presenting, site.GreetRequest)
GREETING = WORDS.record(Greeting, site.GreetReply)
_CHAIN = Annotated[tuple[Entry, ...], Many("too many entries are shown at once.", MAX_SHOWN)]
SHOWN: Record[tuple[Entry, ...], site.ShowChainRequest] = WORDS.alone(_CHAIN, site.ShowChainRequest)
RECALLED = WORDS.record(Recalled, site.Recalled, beside=("answer",))
_REACHED = Annotated[Head, Needed("a place is missing.")]
REJOINING: Record[Head, site.RejoinRequest] = WORDS.alone(_REACHED, site.RejoinRequest)
_PLACE = Annotated[int, Whole("a place of a chain", upper=2**62)]
RETURN_AFTER: Record[int, site.ReturnChainRequest] = WORDS.alone(_PLACE, site.ReturnChainRequest)
RETURNED_CHAIN: Record[tuple[Entry, ...], site.ReturnChainReply] = WORDS.alone(_CHAIN, site.ReturnChainReply)
WANTED = WORDS.record(WantedPlan, site.ReturnPlanRequest)
RETURNED = WORDS.record(Returned, site.ReturnPlanReply)
_AFTER_PLAN = Annotated[str, Form("a list begins after a plan id.", re.compile(r"(?:[0-9a-f]{64})?"))]
_RESERVED = Annotated[tuple[PlanId, ...], Many("too many plans are listed at once.", MAX_SHOWN)]
LIST_AFTER: Record[str, site.ListReservedRequest] = WORDS.alone(_AFTER_PLAN, site.ListReservedRequest)
RESERVED: Record[tuple[str, ...], site.ListReservedReply] = WORDS.alone(_RESERVED, site.ListReservedReply)
POLL = WORDS.record(Poll, site.ClaimTaskRequest, names={"wait_seconds": "wait_milliseconds"})
CLAIM = WORDS.record(Claim, site.ClaimTaskReply, names={"pause_seconds": "pause_milliseconds"})
RECEIPT: Record[Entry | None, site.SubmitReleaseReply] = WORDS.alone(Entry | None, site.SubmitReleaseReply)
_REQUEST, _CERTIFICATE = Annotated[bytes, Pem("a certificate request")], Annotated[bytes, Pem("a certificate")]
RENEWAL: Record[bytes, site.RenewCertificateRequest] = WORDS.alone(_REQUEST, site.RenewCertificateRequest)
RENEWED: Record[bytes, site.RenewCertificateReply] = WORDS.alone(_CERTIFICATE, site.RenewCertificateReply)
ENROLMENT = WORDS.record(Enrolment, enrolment.EnrolRequest, names={"identity": "identity_key"})
ENROLLED: Record[bytes, enrolment.EnrolReply] = WORDS.alone(_CERTIFICATE, enrolment.EnrolReply)

# The analyst's conversation.
ASKED: Record[str, analyst.AskReply] = WORDS.alone(PlanId, analyst.AskReply)
WATCH = WORDS.record(Watch, analyst.AwaitRequest, names={"wait_seconds": "wait_milliseconds"})
PREVIEWED: Record[Preview, analyst.PreviewReply] = WORDS.alone(Preview, analyst.PreviewReply)
_AFTER = Annotated[str, Form("a page begins after a name.", re.compile(rf"(?:{NAME.pattern})?"))]
_HOSPITALS = Annotated[tuple[PublicSite, ...], Many("a page has too many hospitals.", MAX_HOSPITALS)]
_SITES = Annotated[tuple[str, ...], Names("the participants")]
SITES: Record[tuple[str, ...], analyst.SitesReply] = WORDS.alone(_SITES, analyst.SitesReply)
AFTER: Record[str, analyst.HospitalsRequest] = WORDS.alone(_AFTER, analyst.HospitalsRequest)
HOSPITALS: Record[tuple[PublicSite, ...], analyst.HospitalsReply] = WORDS.alone(_HOSPITALS, analyst.HospitalsReply)
_STUDY = Annotated[str, Text("a study", longest=MAX_STUDY_TEXT, plain=False)]
STUDY: Record[str, analyst.DescribeReply] = WORDS.alone(_STUDY, analyst.DescribeReply)
REPORT: Record[BudgetReport, analyst.BudgetReply] = WORDS.alone(BudgetReport, analyst.BudgetReply)


def write_question(request: AskRequest) -> answer.Question:
    """A question as a message; `QueryMistaken` when it cannot travel, or is too large for the tasks made from it."""
    message = QUESTION.sendable(request)
    # Only now: its depth was looked at.
    if (fault := fault_in(request.query)) is not None:
        raise QueryMistaken(f"a text in the question {fault}.")
    if (size := message.ByteSize()) > MAX_QUESTION_BYTES:
        raise QueryMistaken(
            f"the question takes {size} bytes; at most {MAX_QUESTION_BYTES} can be sent; list fewer values."
        )
    return QUESTION.readable(message)


def read_question(message: answer.Question) -> AskRequest:
    """The question in a message."""
    refuse("a question is too large." if message.ByteSize() > MAX_QUESTION_BYTES else None)
    return QUESTION.read(message)


def stored_plan(message: bytes) -> Rewritten:
    """A plan that a coordinator reserved."""
    plan = PLAN.decode(message)
    return Rewritten(plan.plan_id, plan.encoding)


def stored_task(message: bytes) -> Rewritten:
    """A task that waits for a site's steward, or did."""
    signed = TASK.decode(message)
    return Rewritten(signed.task.plan.plan_id, canonical.encode(signed))
