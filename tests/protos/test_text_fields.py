"""Every text that can travel, and what becomes of one that would forge a line: no field is forgotten.

`ESCAPED` are the few that may hold anything: they come from rows or from an older version's study, plan or answer, or
are an error's own words. Each of them names where it is refused nevertheless, if somebody sends it anew, and where it
is escaped; all other fields are refused by the codec. A field that is added is in no sample, and a test says so.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

import protos._generated
from protos import chunked_release, pages, statuses, words
from protos._generated import (
    analyst_service_pb2,
    answer_pb2,
    fault_pb2,
    member_pb2,
    plan_pb2,
    release_pb2,
    site_service_pb2,
)
from tests.protos import test_codec_malformed as sound
from tests.protos.conversations import AnyPieces
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.plain_text import is_plain
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Query, Statistic

HASH = "ab" * 32
COUNT = (Aggregate(Statistic.COUNT),)
# Not NUL, which no text has had at any time.
HIDDEN = ("\x1b", "\n", "\x7f", "\x9b", "\u061c", "\u200e", "\u202e", "\u2028", "\u2067")

# Field: (where it is refused when it is sent anew, where it is escaped when it is shown).
ESCAPED: dict[str, tuple[str, str]] = {
    "Value.text": ("words.read_question; at a site admission.admit", "tables, drawing, steward"),
    "Grouping.keys": ("words.read_question; at a site admission.admit", "tables, drawing, steward"),
    "Estimate.term": ("nowhere: a key of rows, or a category of the study", "tables, drawing"),
    "DescribeReply.study": ("configuration.check_plain, before the study is signed", "wording.study_text, tables"),
    "Fault.message": ("nowhere: it is what went wrong", "statuses.decode_fault, errors.FederationError"),
}


def expression(text: str = "E11") -> plan_pb2.Expression:
    """Every kind of term there is."""
    value = plan_pb2.Value(text=text)
    terms = [
        plan_pb2.Expression(comparison=plan_pb2.Comparison(column="dx", operator=plan_pb2.OPERATOR_EQUAL, value=value)),
        plan_pb2.Expression(within=plan_pb2.Within(column="dx", values=[value, plan_pb2.Value(date="2026-01-31")])),
        plan_pb2.Expression(between=plan_pb2.Between(column="dx", lower=value, upper=value)),
        plan_pb2.Expression(negation=plan_pb2.Expression(is_null=plan_pb2.IsNull(column="dx"))),
    ]
    both = [plan_pb2.Expression(disjunction=plan_pb2.Terms(terms=terms)), terms[0]]
    return plan_pb2.Expression(conjunction=plan_pb2.Terms(terms=both))


def query() -> plan_pb2.Query:
    return plan_pb2.Query(
        table="visits",
        aggregates=[
            plan_pb2.Aggregate(
                statistic=plan_pb2.STATISTIC_CORRELATION,
                column="age",
                others=["sbp"],
                clips=[plan_pb2.Clip(column="age", lower=1.0, upper=2.0)],
            )
        ],
        cohort=expression(),
        group_by=[plan_pb2.Grouping(column="dx", by=plan_pb2.GROUP_BY_VALUE, keys=["E11"])],
    )


def step() -> plan_pb2.Step:
    model = plan_pb2.Model(
        kind=plan_pb2.MODEL_KIND_LINEAR, table="visits", target="sbp", features=["age"], cohort=expression()
    )
    stage = plan_pb2.Stage(kind=plan_pb2.STAGE_KIND_MOMENTS, scale_1024ths=1, rounds=1, steps=1, rate=1)
    return plan_pb2.Step(training=plan_pb2.Training(model=model, stages=[stage], clip=1.0))


def plan(query: plan_pb2.Query | None = None, step: plan_pb2.Step | None = None) -> plan_pb2.Plan:
    return plan_pb2.Plan(
        study_hash=HASH,
        mechanism=plan_pb2.MECHANISM_DISCRETE_GAUSSIAN,
        scales_1024ths=[4096],
        participants=["north", "south"],
        nonce="n",
        query=query,
        step=step,
    )


def task(asked: plan_pb2.Plan) -> plan_pb2.SignedTask:
    head = plan_pb2.Head(sequence=3, digest=HASH)
    return plan_pb2.SignedTask(
        task=plan_pb2.Task(plan=asked, site="north", head=head), signature=sound.SIGNATURE, asked_by=sound.asked_by()
    )


def answer() -> answer_pb2.Answer:
    message = sound.answer()
    message.missing.append("east")
    message.left_out.append("west")
    message.estimates[0].column = "dx"
    message.estimates[0].term = "E11"
    message.estimates[0].group.append(answer_pb2.GroupKey(column="dx", value=plan_pb2.Value(text="E11")))
    message.estimates[0].group.append(answer_pb2.GroupKey(column="on", value=plan_pb2.Value(date="2026-01-31")))
    return message


def page() -> analyst_service_pb2.AwaitReply:
    updates = [analyst_service_pb2.UpdateSize(site="north", bytes=8)]
    whole = analyst_service_pb2.AnswerPage(answer=answer(), all_estimates=1, updates=updates, update_bytes=b"\0" * 8)
    return analyst_service_pb2.AwaitReply(page=whole)


def preview() -> answer_pb2.Preview:
    expected = answer_pb2.ExpectedError(
        statistic=plan_pb2.STATISTIC_SUM, column="sbp", groups=1, standard_error=1.0, note="so many", share=1.0
    )
    return answer_pb2.Preview(
        plan_id=HASH,
        unit=answer_pb2.UNIT_PATIENT,
        sites=["north"],
        expected=[expected],
        privacy=answer().privacy,
        block=HASH,
        foreseen=[answer_pb2.Foreseen(site="north", code="EpsilonTooLarge", sentence="north allows ε = 1")],
    )


def hospital() -> member_pb2.PublicSite:
    limits = member_pb2.PublicLimits(statistics=["count", "training"], max_epsilon=1.0, delta=1e-7)
    return member_pb2.PublicSite(name="north", patients=5, active=True, limits=limits)


def report() -> answer_pb2.BudgetReport:
    loss = answer_pb2.Loss(epsilon=0.5, delta=1e-7)
    return answer_pb2.BudgetReport(
        study="trial",
        unit=answer_pb2.UNIT_PATIENT,
        overlap=1,
        cap=loss,
        spent=loss,
        remaining=answer_pb2.Remaining(),
        accountants=[answer_pb2.Accountant(name="pld", epsilon=1.0)],
        sites=[answer_pb2.SiteBudget(name="north", spent=loss)],
        by_overlap=answer_pb2.ByOverlap(),
        statements=[answer_pb2.Statement(name="cap", epsilon=1.0)],
    )


def submission(message: release_pb2.Submission) -> object:
    return chunked_release.read_submission(message, AnyPieces())


def fault(message: fault_pb2.Fault) -> statuses.Fault:
    return statuses.decode_fault(message.SerializeToString())


Sample = tuple[Message, Callable[[Any], object]]
# A sound message with every text it can have, and who reads it.
SAMPLES: dict[str, Sample] = {
    "question": (answer_pb2.Question(query=query(), nonce="n"), words.read_question),
    "signed question": (sound.asked_question(), words.read_question),
    "step": (answer_pb2.Question(step=step(), nonce="n"), words.read_question),
    "ask": (
        analyst_service_pb2.AskRequest(question=answer_pb2.Question(query=query())),
        lambda message: words.read_question(message.question),
    ),
    "preview request": (
        analyst_service_pb2.PreviewRequest(question=answer_pb2.Question(query=query())),
        lambda message: words.read_question(message.question),
    ),
    "asked": (analyst_service_pb2.AskReply(plan_id=HASH), words.ASKED.read),
    "watch": (analyst_service_pb2.AwaitRequest(plan_id=HASH), words.WATCH.read),
    "task": (task(plan(query=query())), words.TASK.read),
    "task of a training": (task(plan(step=step())), words.TASK.read),
    "progress": (sound.progress(), words.PROGRESS.read),
    "page": (page(), pages.read_watched),
    "preview": (preview(), words.PREVIEW.read),
    "sites": (analyst_service_pb2.SitesReply(sites=["north"]), words.SITES.read),
    "hospitals request": (analyst_service_pb2.HospitalsRequest(after="north"), words.AFTER.read),
    "hospitals": (analyst_service_pb2.HospitalsReply(hospitals=[hospital()]), words.HOSPITALS.read),
    "presenting": (site_service_pb2.GreetRequest(limits=hospital().limits, version="0.1.0"), words.PRESENTING.read),
    "report": (report(), words.BUDGET.read),
    "study": (analyst_service_pb2.DescribeReply(study="name = 'trial'"), words.STUDY.read),
    "released": (sound.released(), submission),
    "chunked": (sound.chunked(), submission),
    "declined": (sound.declined(), submission),
    "pending": (release_pb2.Submission(pending=release_pb2.Pending(plan_id=HASH)), submission),
    "failed": (release_pb2.Submission(failed=release_pb2.Failed(plan_id=HASH)), submission),
    "recalled": (
        site_service_pb2.RecallRequest(recalled=site_service_pb2.Recalled(plan_id=HASH), answer=sound.declined()),
        lambda message: chunked_release.read_recalled(message, AnyPieces()),
    ),
    "wanted": (site_service_pb2.ReturnPlanRequest(plan_id=HASH), words.WANTED.read),
    "list after": (site_service_pb2.ListReservedRequest(after=HASH), words.LIST_AFTER.read),
    "reserved": (site_service_pb2.ListReservedReply(plan_ids=[HASH]), words.RESERVED.read),
    "chunk": (sound.chunk(), chunked_release.CHUNK.read),
    "greeting": (
        site_service_pb2.GreetReply(site="north", study_hash=HASH, unix_milliseconds=1),
        words.GREETING.read,
    ),
    "enrolment": (sound.enrol(), words.ENROLMENT.read),
    "fault": (fault_pb2.Fault(code="TooFewSites", message="Too few."), fault),
}
# What somebody sends of their own accord; anything else was, or may have been, made from rows or of before.
ANEW = ("question", "signed question", "step", "ask", "preview request")


def generated() -> Iterator[FieldDescriptor]:
    """Every text field of every message of the wire."""
    for module in pkgutil.iter_modules(protos._generated.__path__):
        if not module.name.endswith("_pb2"):
            continue
        described = importlib.import_module(f"protos._generated.{module.name}").DESCRIPTOR
        for message in described.message_types_by_name.values():
            assert not message.nested_types, "a message inside a message is not looked at here"
            yield from (field for field in message.fields if field.type == FieldDescriptor.TYPE_STRING)


def named(field: FieldDescriptor) -> str:
    return f"{field.containing_type.name}.{field.name}"


def texts(message: Message) -> Iterator[tuple[str, Callable[[str], None], str]]:
    """Every text in a message: its field, how to put another one in its place, and what it is now."""
    for field, value in message.ListFields():
        several = list(value) if field.is_repeated else [value]
        for place, each in enumerate(several):
            if isinstance(each, Message):
                yield from texts(each)
            elif field.type == FieldDescriptor.TYPE_STRING:
                yield named(field), _putter(message, field, place), each


def _putter(message: Message, field: FieldDescriptor, place: int) -> Callable[[str], None]:
    def put(text: str) -> None:
        if field.is_repeated:
            getattr(message, field.name)[place] = text
        else:
            setattr(message, field.name, text)

    return put


def test_every_text_field_is_in_a_sample() -> None:
    looked_at = {name for message, _ in SAMPLES.values() for name, _, _ in texts(message)}
    assert {named(field) for field in generated()} == looked_at
    assert set(ESCAPED) <= looked_at


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_hidden_character_is_refused_in_every_text_that_is_not_escaped(sample: str) -> None:
    message, read = SAMPLES[sample]
    read(message)
    for name, put, before in list(texts(message)):
        for hidden in HIDDEN:
            put(f"{before[:1]}{hidden}{before[1:]}")
            if name in ESCAPED and sample not in ANEW:
                read(message)
            else:
                with pytest.raises(MalformedMessage) as caught:
                    read(message)
                assert is_plain(caught.value.message)
        put(before)


def test_the_sentence_names_the_character_and_its_place_and_nothing_else() -> None:
    asked = answer_pb2.Question(query=query())
    asked.query.group_by[0].keys[0] = "secret\u202e"
    with pytest.raises(MalformedMessage, match=r"^a text in a question has U\+202E at place 7, ") as caught:
        words.read_question(asked)
    assert "secret" not in caught.value.message


def test_whoever_asks_is_told_before_anything_is_sent() -> None:
    for asked in (Query("t", COUNT, Comparison("dx", Operator.EQUAL, "a\x1b")), Query("t\x1b", COUNT)):
        with pytest.raises(QueryMistaken, match=r"^a text in the question has U\+001B at place 2, "):
            words.write_question(AskRequest(asked))


def test_what_was_let_in_before_is_still_read() -> None:
    stored = plan(query=query())
    stored.query.cohort.CopyFrom(expression("E\x1b[2J\u202e11\n"))
    again = words.PLAN.decode(stored.SerializeToString(deterministic=True))
    assert words.PLAN.encode(again) == stored.SerializeToString(deterministic=True)
    whole = answer()
    whole.estimates[0].term = whole.estimates[0].group[0].value.text = "E\x1b[2J\u202e11\n"
    assert words.ANSWER.read(whole).estimates[0].term == "E\x1b[2J\u202e11\n"


def test_an_errors_words_are_escaped_by_whoever_reads_them() -> None:
    read = fault(fault_pb2.Fault(code="TooFewSites", message="a\x1b[2J\nb\u202e"))
    assert read.message == "a\\x1b[2J\\nb\\u202e"
