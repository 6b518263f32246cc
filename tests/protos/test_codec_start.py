"""What the codec refuses to start with: a field without a limit, a field that no word has, types that do not agree."""

from __future__ import annotations

import dataclasses
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from importlib import import_module
from typing import Annotated

import pytest
from google.protobuf.message import Message

import protos._generated
from protos import cohorts
from protos._generated import analyst_service_pb2, answer_pb2, enrolment_service_pb2, plan_pb2, site_service_pb2
from protos.codec import Codec
from protos.words import WORDS
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.limits import (
    INFINITE_IF_ABSENT,
    Above,
    Distinct,
    Finite,
    Many,
    Member,
    Needed,
    Parts,
    Text,
    Whole,
    name_of,
)
from wardround.federation.question.answer import Loss, SiteState
from wardround.federation.question.query import Statistic
from wardround.federation.question.study_budget import BudgetReport

Name = Annotated[str, name_of("a name")]
Number = Annotated[float, Finite("a number")]
Count = Annotated[int, Whole("a count")]


def record(message: type[Message], **fields: object) -> object:
    """A word with these fields, as that message."""
    return Codec(cohorts.BY_HAND).record(dataclasses.make_dataclass("Throwaway", fields.items(), frozen=True), message)


def test_a_word_whose_fields_all_have_limits_starts() -> None:
    record(plan_pb2.Head, sequence=Count, digest=Name)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (plan_pb2.Head, {"sequence": int, "digest": Name}),
        (plan_pb2.Head, {"sequence": Count, "digest": str}),
        (answer_pb2.Loss, {"epsilon": Number, "delta": float}),
        (answer_pb2.Loss, {"epsilon": Number, "delta": Annotated[float, "a note that limits nothing"]}),
        (site_service_pb2.RenewCertificateReply, {"certificate": bytes}),
        (answer_pb2.Accountant, {"name": Name, "epsilon": float | None}),
        (answer_pb2.Accountant, {"name": Name, "epsilon": Annotated[float, INFINITE_IF_ABSENT]}),
        # What limits something else: such a text may hold an escape sequence, and such a number may be infinite.
        (plan_pb2.Head, {"sequence": Count, "digest": Annotated[str, Many("many.", 9)]}),
        (answer_pb2.Loss, {"epsilon": Number, "delta": Annotated[float, Above("δ", 0.0)]}),
        (plan_pb2.Head, {"sequence": Annotated[int, Finite("a number")], "digest": Name}),
        # Of a list: how many there are, what each of them is, and both of a pair's parts.
        (plan_pb2.Terms, {"terms": tuple[cohorts.Expression, ...]}),
        (plan_pb2.Within, {"column": Name, "values": Annotated[tuple[cohorts.Value, ...], Needed("not how many.")]}),
        (answer_pb2.Progress, {"seen": Count, "sites": Annotated[tuple[tuple[Name, str], ...], Many("many.", 9)]}),
        (plan_pb2.Within, {"column": Name, "values": Annotated[tuple[cohorts.Value, ...], Distinct("a list", str)]}),
        # Of kinds: what they are called.
        (plan_pb2.Aggregate, {"statistic": Statistic}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_field_that_a_peer_can_fill_without_a_limit_does_not_start(
    message: type[Message], fields: dict[str, object]
) -> None:
    with pytest.raises(TypeError, match=r"does not say (what it may hold|first how many|what its kinds are called)"):
        record(message, **fields)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (answer_pb2.Accountant, {"name": Name, "epsilon": Annotated[float | None, Finite("ε")]}),
        (analyst_service_pb2.BudgetReply, {"report": Annotated[BudgetReport, Many("many.", 9)]}),
        (answer_pb2.SiteProgress, {"site": Name, "state": Annotated[SiteState, Member("a state"), Whole("a count")]}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_limit_that_nobody_would_ask_does_not_start(message: type[Message], fields: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="names a limit that nobody would ask"):
        record(message, **fields)


def test_a_word_inside_another_is_looked_at_too() -> None:
    @dataclass(frozen=True)
    class Lost:
        epsilon: float
        delta: Number

    with pytest.raises(TypeError, match=r"Loss\.epsilon does not say what it may hold"):
        record(answer_pb2.SiteBudget, name=Name, spent=Lost, frozen=bool)


def test_a_field_that_no_word_has_does_not_start() -> None:
    with pytest.raises(TypeError, match=r"no word has the fields \['digest'\] of the message Head"):
        record(plan_pb2.Head, sequence=Count)


def test_a_word_with_a_field_that_the_message_lacks_does_not_start() -> None:
    with pytest.raises(TypeError, match="the message Head has no field colour"):
        record(plan_pb2.Head, sequence=Count, digest=Name, colour=Name)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (plan_pb2.Head, {"sequence": Number, "digest": Name}),
        (plan_pb2.Head, {"sequence": Count, "digest": Annotated[bytes, Many("many.", 9)]}),
        (plan_pb2.Head, {"sequence": Count | None, "digest": Name}),
        (plan_pb2.Head, {"sequence": Annotated[tuple[Count, ...], Many("many.", 9)], "digest": Name}),
        (answer_pb2.Loss, {"epsilon": Number, "delta": Annotated[Fraction, Parts("a part", 8, 0, 8)]}),
        (answer_pb2.RefusedSite, {"site": Name, "code": Annotated[tuple[Name, ...], Many("many.", 9)]}),
        # Read as 0 where it is absent, it would be a number that nobody sent.
        (answer_pb2.Accountant, {"name": Name, "epsilon": Number}),
        (enrolment_service_pb2.EnrolReply, {"certificate": Annotated[str, Text("a text", longest=9, plain=True)]}),
        (answer_pb2.Excess, {"asked": Loss, "remaining": Number}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_field_that_is_not_what_its_message_says_does_not_start(
    message: type[Message], fields: dict[str, object]
) -> None:
    with pytest.raises(TypeError, match="is not what its word says"):
        record(message, **fields)


def test_kinds_that_are_not_those_of_the_message_do_not_start() -> None:
    more = StrEnum("Unit", {"PATIENT": "patient", "EVENT": "event", "HOSPITAL": "hospital"})
    fewer = StrEnum("Unit", {"PATIENT": "patient"})
    rest = {"plan_id": Name, "replayed": bool}
    for kinds in (more, fewer):
        with pytest.raises(TypeError, match=r"Preview\.unit has other kinds than its word"):
            record(answer_pb2.Preview, unit=Annotated[str, Member("a unit", of=(kinds,))], **rest)


# --- every message has a reader ---------------------------------------------------------------------------------

# What is no word of its own: requests without content, and what is read by hand.
_EMPTY = {"BudgetRequest", "DescribeRequest", "SitesRequest"} | {
    f"{call}Reply" for call in ("PutChunk", "Recall", "Rejoin", "ShowChain")
}
_BY_HAND = {
    "Value": "cohorts",
    "Expression": "cohorts",
    "Terms": "cohorts",
    "AskRequest": "words.read_question, of its one field",
    "PreviewRequest": "words.read_question, of its one field",
    "AwaitReply": "pages",
    "AnswerPage": "pages",
    "UpdateSize": "pages",
    "SubmitReleaseRequest": "chunked_release.read_submission, of its one field",
    "RecallRequest": "chunked_release.read_recalled, with the answer beside",
    "Submission": "chunked_release",
    "Released": "chunked_release",
    "Chunked": "chunked_release",
    "Fault": "statuses",
    "Shortfall": "statuses",
}


def generated() -> Iterator[str]:
    for module in pkgutil.iter_modules(protos._generated.__path__):
        if module.name.endswith("_pb2"):
            yield from import_module(f"protos._generated.{module.name}").DESCRIPTOR.message_types_by_name


def test_every_message_is_read_by_the_codec_or_by_hand_for_a_reason() -> None:
    import protos.chunked_release  # noqa: F401 -- a piece is a word too

    read = WORDS.messages() | cohorts.LEAVES.messages()
    assert not read & (_EMPTY | set(_BY_HAND))
    assert read | _EMPTY | set(_BY_HAND) == set(generated())


# --- what a limit says ------------------------------------------------------------------------------------------


def test_an_infinity_that_is_written_down_is_not_one_that_was_left_out() -> None:
    @dataclass(frozen=True)
    class Figure:
        name: Name
        epsilon: Annotated[float, Finite("ε", lower=0.0), INFINITE_IF_ABSENT]

    figures = Codec({}).record(Figure, answer_pb2.Accountant)
    assert figures.read(answer_pb2.Accountant(name="pld")).epsilon == math.inf
    assert not figures.write(Figure("pld", math.inf)).HasField("epsilon")
    for written in (math.inf, -math.inf, math.nan, -1.0):
        with pytest.raises(MalformedMessage):
            figures.read(answer_pb2.Accountant(name="pld", epsilon=written))


def test_what_travels_beside_a_word_leaves_the_other_fields_in_their_places() -> None:
    @dataclass(frozen=True)
    class Lost:
        epsilon: Number
        note: str = "beside"
        delta: Number = 0.0

    losses = Codec({}).record(Lost, answer_pb2.Loss, beside=("note",))
    assert losses.read(losses.write(Lost(1.0, "not sent", 0.5))) == Lost(1.0, "beside", 0.5)


def test_what_a_person_wrote_is_read_back_before_it_is_sent() -> None:
    @dataclass(frozen=True)
    class Named:
        sequence: Count
        digest: Name

    named = Codec({}).record(Named, plan_pb2.Head)
    assert named.readable(named.sendable(Named(1, "north"))) == plan_pb2.Head(sequence=1, digest="north")
    with pytest.raises(QueryMistaken, match=r"^a name is not a name\.$"):
        named.readable(named.sendable(Named(1, "../north")))
    with pytest.raises(QueryMistaken, match="outside what can be sent"):
        named.readable(named.sendable(Named(-1, "north")))
