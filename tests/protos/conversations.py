"""Every pair of codec functions, as bytes: what one side writes and what the other reads from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from hypothesis import strategies as st

from protos import chunked_release, pages, statuses
from protos import words as wire
from protos._generated import analyst_service_pb2, enrolment_service_pb2, plan_pb2, release_pb2, site_service_pb2
from protos.codec import Record, parse
from protos.cohorts import VALUE
from protos.pages import joined
from tests.protos import words
from wardround.federation.question.answer import Answer


class AnyPieces:
    """A store in which every announced release has arrived; its content is not what these tests ask about."""

    def assemble(self, release_hash: str, *, size: int) -> bytes:
        return b"pieces"


@dataclass(frozen=True)
class Conversation:
    """One word on the wire."""

    name: str
    words: st.SearchStrategy[Any]
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _pair(
    name: str,
    strategy: st.SearchStrategy[Any],
    kind: type[Message],
    to: Callable[[Any], Message],
    back: Callable[[Any], Any],
) -> Conversation:
    return Conversation(name, strategy, lambda word: to(word).SerializeToString(), lambda raw: back(parse(kind, raw)))


def _word(name: str, strategy: st.SearchStrategy[Any], kind: type[Message], record: Record[Any, Any]) -> Conversation:
    assert record.message is kind
    return _pair(name, strategy, kind, record.write, record.read)


def _value(value: object) -> plan_pb2.Value:
    message = plan_pb2.Value()
    VALUE.fill(message, value)
    return message


def _lone_page(watched: pages.Watched) -> Answer | None:
    """The answer in a page that holds all of it."""
    page = watched.outcome
    if not isinstance(page, pages.Page) or len(page.updates.content) < page.updates.total:
        return None
    return dataclasses.replace(page.answer, updates=joined(page.updates.sizes, page.updates.content))


waits = st.integers(0, 20_000).map(lambda milliseconds: milliseconds / 1000)

CONVERSATIONS: tuple[Conversation, ...] = (
    _pair("value", words.values, plan_pb2.Value, _value, VALUE.read),
    _word("query", words.queries, plan_pb2.Query, wire.QUERY),
    _word("step", words.steps, plan_pb2.Step, wire.STEP),
    _word("head", words.heads, plan_pb2.Head, wire.HEAD),
    Conversation("plan", words.plans, wire.PLAN.encode, wire.PLAN.decode),
    Conversation("task", words.tasks, wire.TASK.encode, wire.TASK.decode),
    _word("entry", words.entries, release_pb2.Entry, wire.ENTRY),
    _pair(
        "submission",
        words.submissions,
        site_service_pb2.SubmitReleaseRequest,
        chunked_release.write_submission,
        lambda message: chunked_release.read_submission(message.submission, AnyPieces()),
    ),
    _word("receipt", st.none() | words.entries, site_service_pb2.SubmitReleaseReply, wire.RECEIPT),
    _word(
        "claim request",
        st.builds(wire.Poll, waits, st.none() | words.entries),
        site_service_pb2.ClaimTaskRequest,
        wire.POLL,
    ),
    _word("shown", st.lists(words.entries, max_size=3).map(tuple), site_service_pb2.ShowChainRequest, wire.SHOWN),
    _pair(
        "recalled",
        words.recollections,
        site_service_pb2.RecallRequest,
        chunked_release.write_recalled,
        lambda message: chunked_release.read_recalled(message, AnyPieces()),
    ),
    _word("rejoining", words.heads, site_service_pb2.RejoinRequest, wire.REJOINING),
    _word("return after", st.integers(0, 2**62), site_service_pb2.ReturnChainRequest, wire.RETURN_AFTER),
    _word(
        "returned chain",
        st.lists(words.entries, max_size=3).map(tuple),
        site_service_pb2.ReturnChainReply,
        wire.RETURNED_CHAIN,
    ),
    _word(
        "wanted",
        st.builds(wire.WantedPlan, words.digests, st.integers(0, 2**20)),
        site_service_pb2.ReturnPlanRequest,
        wire.WANTED,
    ),
    _word(
        "returned",
        st.builds(wire.Returned, words.tasks, st.binary(max_size=200)),
        site_service_pb2.ReturnPlanReply,
        wire.RETURNED,
    ),
    _word("list after", st.just("") | words.digests, site_service_pb2.ListReservedRequest, wire.LIST_AFTER),
    _word(
        "reserved",
        st.lists(words.digests, max_size=3).map(tuple),
        site_service_pb2.ListReservedReply,
        wire.RESERVED,
    ),
    _word("claim", st.builds(wire.Claim, st.none() | words.tasks, waits), site_service_pb2.ClaimTaskReply, wire.CLAIM),
    _word(
        "chunk",
        st.builds(chunked_release.Chunk, words.digests, st.just(2), st.just(3), st.binary(min_size=1, max_size=99)),
        site_service_pb2.PutChunkRequest,
        chunked_release.CHUNK,
    ),
    _pair(
        "question",
        words.questions,
        analyst_service_pb2.AskRequest,
        lambda word: analyst_service_pb2.AskRequest(question=wire.write_question(word)),
        lambda message: wire.read_question(message.question),
    ),
    _pair(
        "preview request",
        words.questions,
        analyst_service_pb2.PreviewRequest,
        lambda word: analyst_service_pb2.PreviewRequest(question=wire.write_question(word)),
        lambda message: wire.read_question(message.question),
    ),
    _word("asked", words.digests, analyst_service_pb2.AskReply, wire.ASKED),
    _word(
        "watch",
        st.builds(wire.Watch, words.digests, words.counts, waits, st.integers(0, 10**6), st.integers(0, 2**30)),
        analyst_service_pb2.AwaitRequest,
        wire.WATCH,
    ),
    _pair(
        "progress",
        words.progress,
        analyst_service_pb2.AwaitReply,
        lambda word: pages.write_watched(word, first_estimate=0),
        lambda message: pages.read_watched(message).outcome,
    ),
    _pair(
        "page",
        words.answers,
        analyst_service_pb2.AwaitReply,
        lambda word: pages.write_watched(word, first_estimate=0),
        lambda message: _lone_page(pages.read_watched(message)),
    ),
    _word("preview", words.previews, analyst_service_pb2.PreviewReply, wire.PREVIEWED),
    _word("sites", words.sites, analyst_service_pb2.SitesReply, wire.SITES),
    _word("hospitals request", st.just("") | words.names, analyst_service_pb2.HospitalsRequest, wire.AFTER),
    _word("hospitals", words.hospitals, analyst_service_pb2.HospitalsReply, wire.HOSPITALS),
    _word("budget", words.reports, analyst_service_pb2.BudgetReply, wire.REPORT),
    _word("study", words.columns, analyst_service_pb2.DescribeReply, wire.STUDY),
    _word("presenting", words.presentings, site_service_pb2.GreetRequest, wire.PRESENTING),
    _word("greeting", words.greetings, site_service_pb2.GreetReply, wire.GREETING),
    _word("renewal", words.pems, site_service_pb2.RenewCertificateRequest, wire.RENEWAL),
    _word("renewed", words.pems, site_service_pb2.RenewCertificateReply, wire.RENEWED),
    _word("enrolment", words.enrolments, enrolment_service_pb2.EnrolRequest, wire.ENROLMENT),
    _word("enrolled", words.pems, enrolment_service_pb2.EnrolReply, wire.ENROLLED),
    Conversation(
        "fault",
        st.builds(statuses.Fault, words.codes, st.just("A sentence about ε."), words.amounts, words.amounts),
        statuses.encode_fault,
        statuses.decode_fault,
    ),
)
