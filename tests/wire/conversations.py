"""Every pair of codec functions, as bytes: what one side writes and what the other reads from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from hypothesis import strategies as st

from protos import (
    checks,
    codec_analyst,
    codec_fault,
    codec_plan,
    codec_query,
    codec_release,
    codec_site,
    codec_training,
    codec_trust,
)
from protos._generated import (
    analyst_service_pb2,
    enrolment_service_pb2,
    plan_pb2,
    release_pb2,
    site_service_pb2,
)
from protos.codec_update import joined
from tests.wire import words
from wardround.federation.answer import Answer


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
    return Conversation(
        name, strategy, lambda word: to(word).SerializeToString(), lambda raw: back(checks.parse(kind, raw))
    )


def _lone_page(watched: codec_analyst.Watched) -> Answer | None:
    """The answer in a page that holds all of it."""
    page = watched.outcome
    if not isinstance(page, codec_analyst.Page) or len(page.updates.content) < page.updates.total:
        return None
    return dataclasses.replace(page.answer, updates=joined(page.updates.sizes, page.updates.content))


waits = st.integers(0, 20_000).map(lambda milliseconds: milliseconds / 1000)

CONVERSATIONS: tuple[Conversation, ...] = (
    _pair("value", words.values, plan_pb2.Value, codec_query.value_to_message, codec_query.value_from_message),
    _pair("query", words.queries, plan_pb2.Query, codec_query.query_to_message, codec_query.query_from_message),
    _pair("step", words.steps, plan_pb2.Step, codec_training.step_to_message, codec_training.step_from_message),
    _pair("head", words.heads, plan_pb2.Head, codec_plan.head_to_message, codec_plan.head_from_message),
    Conversation("plan", words.plans, codec_plan.encode_plan, codec_plan.decode_plan),
    Conversation("task", words.tasks, codec_plan.encode_task, codec_plan.decode_task),
    _pair("entry", words.entries, release_pb2.Entry, codec_release.entry_to_message, codec_release.entry_from_message),
    _pair(
        "submission",
        words.submissions,
        site_service_pb2.SubmitReleaseRequest,
        codec_site.submit_to_message,
        lambda message: codec_site.submit_from_message(message, AnyPieces()),
    ),
    _pair(
        "receipt",
        st.none() | words.entries,
        site_service_pb2.SubmitReleaseReply,
        codec_site.receipt_to_message,
        codec_site.receipt_from_message,
    ),
    _pair(
        "claim request",
        waits,
        site_service_pb2.ClaimTaskRequest,
        lambda seconds: codec_site.claim_request_to_message(wait_seconds=seconds),
        codec_site.claim_request_from_message,
    ),
    _pair(
        "claim",
        st.builds(codec_site.Claim, st.none() | words.tasks, waits),
        site_service_pb2.ClaimTaskReply,
        codec_site.claim_to_message,
        codec_site.claim_from_message,
    ),
    _pair(
        "chunk",
        st.builds(codec_site.Chunk, words.digests, st.just(2), st.just(3), st.binary(min_size=1, max_size=99)),
        site_service_pb2.PutChunkRequest,
        codec_site.chunk_to_message,
        codec_site.chunk_from_message,
    ),
    _pair(
        "question",
        words.questions,
        analyst_service_pb2.AskRequest,
        codec_analyst.ask_to_message,
        codec_analyst.ask_from_message,
    ),
    _pair(
        "preview request",
        words.questions,
        analyst_service_pb2.PreviewRequest,
        codec_analyst.preview_request_to_message,
        codec_analyst.preview_request_from_message,
    ),
    _pair(
        "asked",
        words.digests,
        analyst_service_pb2.AskReply,
        codec_analyst.asked_to_message,
        codec_analyst.asked_from_message,
    ),
    _pair(
        "watch",
        st.builds(
            codec_analyst.Watch, words.digests, words.counts, waits, st.integers(0, 10**6), st.integers(0, 2**30)
        ),
        analyst_service_pb2.AwaitRequest,
        codec_analyst.watch_to_message,
        codec_analyst.watch_from_message,
    ),
    _pair(
        "progress",
        words.progress,
        analyst_service_pb2.AwaitReply,
        lambda word: codec_analyst.watched_to_message(word, first_estimate=0),
        lambda message: codec_analyst.watched_from_message(message).outcome,
    ),
    _pair(
        "page",
        words.answers,
        analyst_service_pb2.AwaitReply,
        lambda word: codec_analyst.watched_to_message(word, first_estimate=0),
        lambda message: _lone_page(codec_analyst.watched_from_message(message)),
    ),
    _pair(
        "preview",
        words.previews,
        analyst_service_pb2.PreviewReply,
        codec_analyst.previewed_to_message,
        codec_analyst.previewed_from_message,
    ),
    _pair(
        "budget",
        words.reports,
        analyst_service_pb2.BudgetReply,
        codec_analyst.report_to_message,
        codec_analyst.report_from_message,
    ),
    _pair(
        "study",
        words.columns,
        analyst_service_pb2.DescribeReply,
        codec_analyst.study_to_message,
        codec_analyst.study_from_message,
    ),
    _pair(
        "greeting",
        words.greetings,
        site_service_pb2.GreetReply,
        codec_trust.greeting_to_message,
        codec_trust.greeting_from_message,
    ),
    _pair(
        "renewal",
        words.pems,
        site_service_pb2.RenewCertificateRequest,
        codec_trust.renewal_to_message,
        codec_trust.renewal_from_message,
    ),
    _pair(
        "renewed",
        words.pems,
        site_service_pb2.RenewCertificateReply,
        codec_trust.renewed_to_message,
        codec_trust.renewed_from_message,
    ),
    _pair(
        "enrolment",
        words.enrolments,
        enrolment_service_pb2.EnrolRequest,
        codec_trust.enrolment_to_message,
        codec_trust.enrolment_from_message,
    ),
    _pair(
        "enrolled",
        words.pems,
        enrolment_service_pb2.EnrolReply,
        codec_trust.enrolled_to_message,
        codec_trust.enrolled_from_message,
    ),
    Conversation(
        "fault",
        st.builds(codec_fault.Fault, words.codes, st.just("A sentence about ε."), words.amounts, words.amounts),
        codec_fault.encode_fault,
        codec_fault.decode_fault,
    ),
)
