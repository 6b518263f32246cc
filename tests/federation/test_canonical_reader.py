"""Canonical bytes are read as the one word that has them, and nothing else is read at all."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Annotated

import pytest
from hypothesis import given, settings

from tests.protos import words
from tests.recorded.recording import read
from tests.recorded.spoken import ASKED_BY, PLANS, SIGNED, TASKS
from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import Many, Member, Whole
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import SignedTask, Task
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.trust.asked_by import AskedBy


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Shade(Enum):
    DARK = "dark"


class Tint(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Small:
    number: Annotated[int, Whole("a number", upper=9)]
    more: Small | None = None


@dataclass(frozen=True, slots=True)
class Large:
    """Everything that the form knows."""

    text: str = "a"
    size: float = 1.5
    part: Fraction = Fraction(1, 2)
    content: bytes = b"\x0a"
    day: datetime.date = datetime.date(2026, 1, 2)
    yes: bool = True
    colour: Annotated[Colour | Shade, Member("a colour", but=(Colour.BLUE,))] = Colour.RED
    items: Annotated[tuple[Small, ...], Many("too many.", 2)] = (Small(1), Small(2, Small(3)))
    value: bool | int | float | str | datetime.date | None = None
    grown: int = field(default=0, metadata=canonical.LATER)


LARGE = canonical.encode(Large()).decode("ascii")


@given(words.tasks)
@settings(max_examples=50)
def test_every_task_comes_back_from_its_bytes(signed: SignedTask) -> None:
    content = canonical.encode(signed)
    again = decode(SignedTask, content)
    assert again == signed
    assert canonical.encode(again) == content
    assert again.task.plan.plan_id == signed.task.plan.plan_id


@pytest.mark.parametrize(
    "word",
    [Large(), *(Large(value=value) for value in (True, 1, 1.0, "1", datetime.date.min, -0.0)), Large(grown=7)],
    ids=lambda word: f"{word.value!r} {word.grown}",
)
def test_each_value_keeps_its_type(word: Large) -> None:
    again = decode(Large, canonical.encode(word))
    assert again == word
    assert type(again.value) is type(word.value)


def test_what_was_recorded_is_read() -> None:
    recorded = {key: text for key, text in read("canonical").items() if not key.startswith("study")}
    signed = [key for key in recorded if key.endswith(", signed")]
    assert len(signed) == len(ASKED_BY)
    recorded = {key: text for key, text in recorded.items() if key not in signed}
    assert len(recorded) == len(PLANS) + len(TASKS) + len(ASKED_BY) + len(SIGNED) > 4
    kinds = {"plan": Plan, "task": Task, "asked by": AskedBy, "stored task": SignedTask}
    for key, found in recorded.items():
        kind, text = kinds[key.rpartition(" ")[0]], found[1] if isinstance(found, list) else found
        assert canonical.encode(decode(kind, str(text).encode())) == str(text).encode(), key


# Other bytes that would mean the same, or nearly: replaced text of `LARGE`.
UNLIKE: Mapping[str, tuple[str, str]] = {
    "a space": (",", ", "),
    "another order": ('"size":{"float":"0x1.8000000000000p+0"},"text":"a"', '"text":"a","size":{"float":"0x1.8p+0"}'),
    "a field twice": ('"text":"a"', '"text":"b","text":"a"'),
    "a field of nobody": ('"text":"a"', '"text":"a","texts":"a"'),
    "a field that is missing": ('"text":"a",', ""),
    "a later field that says nothing": ('"items"', '"grown":0,"items"'),
    "another word": ('"word":"Large"', '"word":"Small"'),
    "no word": ('"word":"Large"', '"word":["Large"]'),
    "a word without fields": ('"fields":{"more":null,"number":1}', '"fields":[]'),
    "a tag in place of a word": ('"word":"Small"', '"word":"float"'),
    "a bare number": ('{"float":"0x1.8000000000000p+0"}', "1.5"),
    "a short number": ("0x1.8000000000000p+0", "0x1.8p+0"),
    "a number in decimal": ("0x1.8000000000000p+0", "1.5"),
    "an infinite number": ("0x1.8000000000000p+0", "inf"),
    "a number beyond all": ("0x1.8000000000000p+0", "0x1.8p+99999"),
    "a number that is none": ('"0x1.8000000000000p+0"', "null"),
    "a fraction that can be reduced": ('"1/2"', '"2/4"'),
    "a fraction of nothing": ('"1/2"', '"1/0"'),
    "a fraction of a fraction": ('"1/2"', '"1/2/3"'),
    "upper-case bytes": ('"0a"', '"0A"'),
    "half a byte": ('"0a"', '"0"'),
    "another spelling of a day": ("2026-01-02", "20260102"),
    "no day": ("2026-01-02", "2026-02-30"),
    "a number for a truth": ('"yes":true', '"yes":1'),
    "a truth for a number": ('"number":1', '"number":true'),
    "a kind of nobody": ('"red"', '"green"'),
    "a kind that is left out": ('"red"', '"blue"'),
    "an item for a list": ('"value":null', '"value":[]'),
    "an escape that is not needed": ('"text":"a"', '"text":"\\u0061"'),
    "a number above its limit": ('"number":1', '"number":10'),
    "a word inside above its limit": ('"number":3', '"number":10'),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_other_bytes_are_refused(name: str) -> None:
    assert decode(Large, LARGE.encode()) == Large()
    before, after = UNLIKE[name]
    assert before in LARGE
    with pytest.raises(MalformedMessage):
        decode(Large, LARGE.replace(before, after, 1).encode())


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b"{}", b'"a"', b"\xff", b"{", LARGE.encode("utf-16"), LARGE.encode() + b"\n"),
        *(b"[" * 100_000, b'{"fields":{"text":' * 3_000, b'{"word":[]}', b'{"word":{}}'),
        b'{"fields":{},"word":"Large"}',
    ],
    ids=lambda content: repr(content[:20]),
)
def test_what_is_no_word_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(Large, content)


@pytest.mark.parametrize("signed", TASKS, ids=lambda signed: type(signed.task.plan.query).__name__)
@pytest.mark.parametrize("damage", [lambda byte: byte ^ 1, lambda byte: byte ^ 0x20, lambda byte: byte % 0x7F + 1])
def test_a_changed_byte_is_refused_or_is_another_word(signed: SignedTask, damage: Callable[[int], int]) -> None:
    content = canonical.encode(signed)
    refused = 0
    for index in range(0, len(content), 1 + len(content) // 500):
        damaged = content[:index] + bytes([damage(content[index])]) + content[index + 1 :]
        try:
            found = decode(SignedTask, damaged)
        except MalformedMessage:
            refused += 1
        else:
            assert canonical.encode(found) == damaged
            assert found != signed
    assert refused > 50


def test_limits_have_their_own_sentences() -> None:
    query = Query("visits", (Aggregate(Statistic.COUNT),) * 33)
    with pytest.raises(MalformedMessage, match=r"^a query has too few or too many aggregates\.$"):
        decode(Query, canonical.encode(query))
    step = next(plan.query for plan in PLANS if isinstance(plan.query, Step))
    late = dataclasses.replace(step, turn=99_999)
    with pytest.raises(MalformedMessage, match=r"^the turn of a step is out of bounds\.$"):
        decode(Step, canonical.encode(late))


@dataclass(frozen=True, slots=True)
class Mapped:
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Alike:
    kind: Annotated[Colour | Tint, Member("a kind")]


@dataclass(frozen=True, slots=True)
class Lists:
    held: tuple[int, ...] | tuple[str, ...]


@pytest.mark.parametrize("kind", [Mapped, Alike, Lists], ids=lambda kind: kind.__name__)
def test_what_could_not_be_told_apart_is_a_mistake_of_the_program(kind: type) -> None:
    content = json.dumps({"fields": {}, "word": kind.__name__}, separators=(",", ":"))
    with pytest.raises(TypeError):
        decode(kind, content.encode())
