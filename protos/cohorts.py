"""The two words whose messages are not their fields, by hand.

A value is told by its type. A cohort is a tree, counted while it is read, so that a hostile one is left before it has
cost anything; its leaves are words like all others.

Both are written by a person, so what cannot travel is that person's mistake, said before anything is sent. Texts may be
any here, since plans that an older version stored are read by the same functions: a question is refused for them by
`AskRequest`, and a task by the site's admission, as a refusal that is signed and lets the other tasks pass.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import cast

from google.protobuf.message import Message

from protos._generated import plan_pb2 as pb
from protos.codec import Codec
from protos.fields import Body
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.limits import MAX_TEXT, Finite, Many, Text, refuse
from wardround.federation.question.cohort import (
    MAX_DEPTH,
    MAX_TERMS,
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Or,
    Within,
    depth,
    leaves,
)
from wardround.federation.study.study import Value, parse_date

_NUMBER = Finite("a number in a query")
_TEXT = Text("a text in a query", longest=MAX_TEXT, shortest=0, plain=False)
_TERMS = Many("a cohort has too few or too many terms.", MAX_TERMS, least=1)


class Values:
    """A public value."""

    def fill(self, message: Message, word: object, /) -> None:
        """Write it; `QueryMistaken` when it cannot be compared with anything."""
        into, value = cast("pb.Value", message), cast("Value", word)
        match value:
            case bool():
                into.boolean = value
            case int():
                _allow(-(2**63) <= value < 2**63, "a whole number in a question has at most 64 bits.")
                into.integer = value
            case float():
                _allow(math.isfinite(value), "a number in a question must be finite.")
                into.number = value
            case str():
                _allow(_sound(value), f"a text in a question has at most {MAX_TEXT} characters, none of them NUL.")
                into.text = value
            case datetime.date():
                into.date = value.isoformat()

    def read(self, message: Message, /) -> Value:
        """The public value in a message."""
        held = cast("pb.Value", message)
        match held.WhichOneof("kind"):
            case "boolean":
                return held.boolean
            case "integer":
                return held.integer
            case "number":
                refuse(_NUMBER.fault(held.number))
                return held.number
            case "text":
                refuse(_TEXT.fault(held.text))
                return held.text
            case "date":
                return _date(held.date)
            case None:
                raise MalformedMessage("a value is empty.")


def _date(text: str) -> datetime.date:
    day = parse_date(text)
    # `fromisoformat` also reads other spellings of the same day; one day has one spelling here.
    if day is None or day.isoformat() != text:
        raise MalformedMessage("a date in a query is not a calendar date.")
    return day


VALUE = Values()
LEAVES = Codec({Value: VALUE})
_LEAVES: Mapping[str, Body] = {
    "comparison": LEAVES.record(Comparison, pb.Comparison),
    "within": LEAVES.record(Within, pb.Within),
    "between": LEAVES.record(Between, pb.Between),
    "is_null": LEAVES.record(IsNull, pb.IsNull),
}
_LEAF_NAMES: Mapping[type, str] = {
    Comparison: "comparison",
    Within: "within",
    Between: "between",
    IsNull: "is_null",
}


class Cohorts:
    """Which rows a question is about."""

    def fill(self, message: Message, word: object, /) -> None:
        """Write it; `QueryMistaken` when it is too large to be asked about."""
        cohort = cast("Expression", word)
        small = depth(cohort) <= MAX_DEPTH and sum(1 for _ in leaves(cohort)) <= MAX_TERMS
        _allow(small, f"a cohort has at most {MAX_TERMS} terms, nested at most {MAX_DEPTH} deep.")
        _write(cast("pb.Expression", message), cohort)

    def read(self, message: Message, /) -> Expression:
        """The cohort in a message."""
        return _Reader().read(cast("pb.Expression", message))


def _write(into: pb.Expression, term: Expression) -> None:
    match term:
        case Not(inner):
            _write(into.negation, inner)
        case And(terms) | Or(terms):
            _allow(len(terms) > 0, "AND and OR join at least one term.")
            joined = into.conjunction if isinstance(term, And) else into.disjunction
            for each in terms:
                _write(joined.terms.add(), each)
        case leaf:
            name = _LEAF_NAMES[type(leaf)]
            inner_message = getattr(into, name)
            inner_message.SetInParent()
            _LEAVES[name].fill(inner_message, leaf)


class _Reader:
    """Reads one cohort, counting as it goes."""

    def __init__(self) -> None:
        self._leaves = 0

    def read(self, message: pb.Expression, *, level: int = 1) -> Expression:
        refuse("a cohort is nested too deep." if level > MAX_DEPTH else None)
        match message.WhichOneof("term"):
            case "negation":
                return Not(self.read(message.negation, level=level + 1))
            case "conjunction":
                return And(self._terms(message.conjunction, level=level + 1))
            case "disjunction":
                return Or(self._terms(message.disjunction, level=level + 1))
            case None:
                raise MalformedMessage("a term of a cohort is empty.")
            case leaf:
                self._leaves += 1
                refuse("a cohort has too many terms." if self._leaves > MAX_TERMS else None)
                return cast("Expression", _LEAVES[leaf].read(getattr(message, leaf)))

    def _terms(self, message: pb.Terms, *, level: int) -> tuple[Expression, ...]:
        # Each term holds at least one leaf, so more terms than leaves allowed need not be read.
        refuse(_TERMS.fault(message.terms))
        return tuple(self.read(term, level=level) for term in message.terms)


COHORT = Cohorts()
BY_HAND: Mapping[object, Body] = {Value: VALUE, Expression: COHORT}


def _allow(condition: bool, sentence: str) -> None:  # noqa: FBT001
    if not condition:
        raise QueryMistaken(sentence)


def _sound(value: str) -> bool:
    """Whether a text can travel: not too long, no NUL, and no half of a surrogate pair."""
    return len(value) <= MAX_TEXT and "\x00" not in value and not any("\ud800" <= each <= "\udfff" for each in value)
