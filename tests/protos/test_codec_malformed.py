"""Whatever a peer sends either decodes to a valid word or is refused in one way; nothing else happens."""

from __future__ import annotations

import math
import random

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from protos._generated import (
    analyst_service_pb2,
    answer_pb2,
    enrolment_service_pb2,
    plan_pb2,
    release_pb2,
    site_service_pb2,
)
from protos.chunked_release import CHUNK, read_submission
from protos.pages import read_watched
from protos.words import ANSWER, ENROLMENT, ENTRY, PLAN, PROGRESS, QUERY, TASK, read_question
from tests.protos.conversations import CONVERSATIONS, AnyPieces, Conversation
from tests.protos.putting import put
from wardround.federation.errors import MalformedMessage

HASH = "ab" * 32
SIGNATURE = b"s" * 64


def read_or_refuse(conversation: Conversation, content: bytes) -> bool:
    """Whether the bytes were read; anything but a word or `MalformedMessage` fails the test."""
    try:
        word = conversation.read(content)
    except MalformedMessage:
        return False
    if word is not None:
        conversation.write(word)
    return True


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)
def test_random_bytes_are_a_word_or_malformed(conversation: Conversation) -> None:
    source = random.Random(conversation.name)
    for _ in range(2000):
        read_or_refuse(conversation, source.randbytes(source.randrange(200)))


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)
@given(choice=st.data())
@settings(max_examples=20)
def test_truncated_and_flipped_bytes_are_a_word_or_malformed(conversation: Conversation, choice: st.DataObject) -> None:
    content = conversation.write(choice.draw(conversation.words))
    if not content:
        return
    for _ in range(10):
        at = choice.draw(st.integers(0, len(content) - 1))
        read_or_refuse(conversation, content[:at])
        flipped = bytearray(content)
        flipped[at] ^= choice.draw(st.integers(1, 255))
        read_or_refuse(conversation, bytes(flipped))


def task() -> plan_pb2.SignedTask:
    return plan_pb2.SignedTask(
        task=plan_pb2.Task(plan=plan(), site="north", head=plan_pb2.Head(sequence=3, digest=HASH)),
        signature=SIGNATURE,
    )


def asked_by() -> plan_pb2.AskedBy:
    return plan_pb2.AskedBy(
        analyst="amira", key=HASH, purpose="a pilot", epsilon=1.0, delta=1e-6, errors=[2.0], signature=SIGNATURE
    )


def asked_task() -> plan_pb2.SignedTask:
    message = task()
    message.asked_by.CopyFrom(asked_by())
    return message


def asked_question() -> answer_pb2.Question:
    message = question()
    message.errors.append(2.0)
    message.asked_by.CopyFrom(asked_by())
    return message


def plan() -> plan_pb2.Plan:
    return plan_pb2.Plan(
        study_hash=HASH,
        query=query(),
        mechanism=plan_pb2.MECHANISM_DISCRETE_GAUSSIAN,
        scales_1024ths=[4096],
        participants=["north", "south"],
    )


def query() -> plan_pb2.Query:
    leaf = plan_pb2.Comparison(column="age", operator=plan_pb2.OPERATOR_LESS, value=plan_pb2.Value(integer=40))
    return plan_pb2.Query(
        table="encounters",
        aggregates=[plan_pb2.Aggregate(statistic=plan_pb2.STATISTIC_COUNT)],
        cohort=plan_pb2.Expression(comparison=leaf),
    )


def entry() -> release_pb2.Entry:
    return release_pb2.Entry(sequence=2, previous=HASH, kind="released", body="{}", signature=SIGNATURE)


def released() -> release_pb2.Submission:
    return release_pb2.Submission(released=release_pb2.Released(plan_id=HASH, payload=b"x", entry=entry()))


def declined() -> release_pb2.Submission:
    return release_pb2.Submission(declined=release_pb2.Declined(plan_id=HASH, code="PlanRefused", entry=entry()))


def chunked() -> release_pb2.Submission:
    message = released()
    message.released.chunked.CopyFrom(release_pb2.Chunked(release_hash=HASH, size=2**21))
    return message


def question() -> answer_pb2.Question:
    return answer_pb2.Question(query=query(), epsilon=1.0, delta=1e-6)


def answer() -> answer_pb2.Answer:
    loss = answer_pb2.Loss(epsilon=0.5, delta=1e-7)
    return answer_pb2.Answer(
        plan_id=HASH,
        unit=answer_pb2.UNIT_PATIENT,
        answered=["north"],
        refused=[answer_pb2.RefusedSite(site="south", code="PlanRefused")],
        estimates=[
            answer_pb2.Estimate(statistic=plan_pb2.STATISTIC_COUNT, value=1.0, lower=0.0, upper=2.0, confidence=0.95)
        ],
        privacy=answer_pb2.PrivacyStatement(
            mechanism=plan_pb2.MECHANISM_DISCRETE_LAPLACE,
            charged=loss,
            spent=loss,
            remaining=answer_pb2.Remaining(epsilon=1.0, fraction=0.5),
            overlap=1,
            composition="parallel",
        ),
    )


def progress() -> answer_pb2.Progress:
    return answer_pb2.Progress(seen=1, sites=[answer_pb2.SiteProgress(site="north", state=answer_pb2.SITE_STATE_OPEN)])


def page() -> analyst_service_pb2.AwaitReply:
    return analyst_service_pb2.AwaitReply(page=analyst_service_pb2.AnswerPage(answer=answer(), all_estimates=1))


def chunk() -> site_service_pb2.PutChunkRequest:
    return site_service_pb2.PutChunkRequest(release_hash=HASH, index=1, total=2, content=b"x")


def enrol() -> enrolment_service_pb2.EnrolRequest:
    return enrolment_service_pb2.EnrolRequest(
        secret=b"s" * 32,
        site="north",
        identity_key=HASH,
        study_hash=HASH,
        study_signature=SIGNATURE,
        certificate_request=b"-----BEGIN CERTIFICATE REQUEST-----",
        patients=1,
        dataset="ehr",
    )


def submission(message: release_pb2.Submission) -> object:
    return read_submission(message, AnyPieces())


READERS = {
    task: TASK.read,
    plan: PLAN.read,
    query: QUERY.read,
    entry: ENTRY.read,
    released: submission,
    declined: submission,
    chunked: submission,
    question: read_question,
    answer: ANSWER.read,
    progress: PROGRESS.read,
    page: read_watched,
    chunk: CHUNK.read,
    enrol: ENROLMENT.read,
    asked_task: TASK.read,
    asked_question: read_question,
}

# A sound message, and one thing done to it: the field by its path, and what is put there.
BAD: list[tuple[object, str, object]] = [
    (task, "signature", b"s" * 63),
    (task, "task.plan", None),
    (task, "task.head", None),
    (task, "task.site", "../north"),
    (task, "task.head.digest", HASH.upper()),
    (task, "task.head.digest", HASH + "\n"),
    (task, "task.head.sequence", 0),
    (task, "task.head.sequence", 2**63),
    (plan, "study_hash", HASH[1:]),
    (plan, "query", None),
    (plan, "mechanism", 0),
    (plan, "mechanism", 4),
    (plan, "threshold", 2**60 + 1),
    (plan, "scales_1024ths", []),
    (plan, "scales_1024ths", [0]),
    (plan, "scales_1024ths", [2**60 + 1]),
    (plan, "scales_1024ths", [4096] * 33),
    (plan, "participants", ["north", "north"]),
    (plan, "participants", ["north", ""]),
    (plan, "participants", [f"site-{number}" for number in range(10_001)]),
    (plan, "nonce", "a b"),
    (plan, "nonce", "n" * 65),
    (query, "table", ""),
    (query, "table", "t" * 257),
    (query, "table", "a\x00b"),
    (query, "aggregates", []),
    (query, "aggregates.0.statistic", 0),
    (query, "aggregates.0.statistic", 99),
    (query, "aggregates.0.column", ""),
    (query, "group_by", [plan_pb2.Grouping(column="a", by=plan_pb2.GROUP_BY_VALUE)] * 5),
    (query, "cohort.comparison.operator", 0),
    (query, "cohort.comparison.operator", -1),
    (query, "cohort.comparison.value", None),
    (query, "cohort.comparison.column", ""),
    (query, "cohort.comparison.value.number", math.nan),
    (query, "cohort.comparison.value.number", math.inf),
    (query, "cohort.comparison.value.text", "x" * 257),
    (query, "cohort.comparison.value.text", "\x00"),
    (query, "cohort.comparison.value.date", "2026-02-30"),
    (query, "cohort.comparison.value.date", "20260201"),
    (query, "cohort.comparison.value.date", "2026-W05-7"),
    (query, "cohort.within.column", "age"),
    (query, "cohort.within.values", [plan_pb2.Value(integer=1)] * 1025),
    (query, "cohort.between.column", "age"),
    (query, "cohort.is_null.column", ""),
    (query, "cohort.conjunction.terms", [plan_pb2.Expression()]),
    (query, "cohort.disjunction.terms", [plan_pb2.Expression(is_null=plan_pb2.IsNull(column="a"))] * 257),
    (entry, "sequence", 0),
    (entry, "sequence", 1),
    (entry, "previous", "0" * 64),
    (entry, "kind", ""),
    (entry, "kind", "two words"),
    (entry, "body", ""),
    (entry, "body", "x" * (256 * 1024 + 1)),
    (entry, "signature", b""),
    (released, "released.plan_id", "PLAN-7"),
    (released, "released.entry", None),
    (released, "released.payload", b""),
    (released, "released.payload", b"x" * (2**20 + 1)),
    (declined, "declined.code", "<script>"),
    (declined, "declined.entry", None),
    (declined, "pending.plan_id", "short"),
    (declined, "failed.plan_id", ""),
    (chunked, "released.chunked.size", 2**20),
    (chunked, "released.chunked.size", 2**26 + 1),
    (chunked, "released.chunked.release_hash", "zz" * 32),
    (question, "query", None),
    (question, "epsilon", 0.0),
    (question, "epsilon", -1.0),
    (question, "epsilon", math.nan),
    (question, "epsilon", math.inf),
    (question, "delta", -1e-9),
    (question, "delta", 1.0),
    (question, "delta", math.nan),
    (answer, "unit", 0),
    (answer, "privacy", None),
    (answer, "answered", ["north", "north"]),
    (answer, "refused.0.site", ""),
    (answer, "refused.0.code", "no code"),
    (answer, "estimates.0.value", math.nan),
    (answer, "estimates.0.standard_error", -1.0),
    (answer, "estimates.0.standard_error", math.inf),
    (answer, "estimates.0.lower", 3.0),
    (answer, "estimates.0.confidence", 1.5),
    (answer, "estimates.0.statistic", 0),
    (answer, "privacy.mechanism", 0),
    (answer, "privacy.charged.epsilon", -0.5),
    (answer, "privacy.spent.delta", 2.0),
    (answer, "privacy.remaining.fraction", math.nan),
    (answer, "privacy.overlap", 0),
    (answer, "privacy.composition", ""),
    (progress, "seen", 2**63),
    (progress, "sites.0.state", 0),
    (progress, "sites.0.state", 8),
    (page, "page.all_estimates", 0),
    (page, "page.all_estimates", 2**40),
    (page, "page.first_estimate", 1),
    (page, "page.answer.estimates", []),
    (page, "pause_milliseconds", 20_001),
    (chunk, "total", 0),
    (chunk, "total", 65),
    (chunk, "index", 2),
    (chunk, "index", 0),
    (chunk, "content", b""),
    (chunk, "content", b"x" * (2**20 + 1)),
    (chunk, "release_hash", ""),
    (enrol, "secret", b""),
    (enrol, "site", "north\n"),
    (enrol, "identity_key", HASH + "ab"),
    (enrol, "study_signature", b""),
    (enrol, "certificate_request", b"certificate"),
    (enrol, "certificate_request", b"-----BEGIN " + b"x" * 16384),
    (enrol, "patients", 0),
    (enrol, "patients", 10**10 + 1),
    (enrol, "dataset", ""),
    (asked_task, "asked_by.analyst", ""),
    (asked_task, "asked_by.analyst", "amira ben"),
    (asked_task, "asked_by.key", HASH.upper()),
    (asked_task, "asked_by.key", ""),
    (asked_task, "asked_by.purpose", "a\nline"),
    (asked_task, "asked_by.purpose", "p" * 501),
    (asked_task, "asked_by.epsilon", 0.0),
    (asked_task, "asked_by.epsilon", math.inf),
    (asked_task, "asked_by.delta", 1.0),
    (asked_task, "asked_by.errors", [math.nan]),
    (asked_task, "asked_by.errors", [1.0] * 33),
    (asked_task, "asked_by.signature", b"s" * 63),
    (asked_question, "asked_by.epsilon", 2.0),
    (asked_question, "asked_by.delta", 1e-7),
    (asked_question, "asked_by.errors", []),
    (asked_question, "asked_by.signature", b""),
]


@pytest.mark.parametrize("make", READERS, ids=lambda make: make.__name__)
def test_the_sound_messages_are_sound(make: object) -> None:
    READERS[make](make())  # type: ignore[index, operator]


@pytest.mark.parametrize(("make", "path", "content"), BAD, ids=lambda part: str(getattr(part, "__name__", part))[:40])
def test_one_bad_field_makes_a_message_malformed(make: object, path: str, content: object) -> None:
    message = make()  # type: ignore[operator]
    put(message, path, content)
    with pytest.raises(MalformedMessage) as caught:
        READERS[make](message)  # type: ignore[index]
    # The sentence names the field and repeats nothing the peer sent.
    if isinstance(content, str) and len(content) > 1:
        assert content not in caught.value.message


def twice(message: Message, field: str) -> Message:
    """The message with one item of a list said again."""
    held = getattr(message, field)
    held.append(held[0])
    return message


def test_a_site_that_is_listed_twice_is_refused_wherever_sites_are_listed() -> None:
    for read, message in ((PROGRESS.read, twice(progress(), "sites")), (ANSWER.read, twice(answer(), "refused"))):
        with pytest.raises(MalformedMessage, match="names a site twice"):
            read(message)


@pytest.mark.parametrize("missing", ["charged", "spent", "remaining"])
def test_what_an_answer_does_not_say_it_cost_is_not_taken_for_nothing(missing: str) -> None:
    message = answer()
    message.privacy.ClearField(missing)
    with pytest.raises(MalformedMessage, match="a privacy statement does not say what"):
        ANSWER.read(message)
