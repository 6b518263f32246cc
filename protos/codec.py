"""Words as messages and back: one reading of the dataclasses, and no second list of their fields.

A word's fields are those of its message, and its limits are in its own annotations (`wardround.federation.limits`):

    bool, int, float, str, bytes    the same                X | None       an optional field
    Enum, or a union of them        by the member's name    tuple[X, ...]  a repeated field
    what is `Counted`               a whole number          tuple[X, Y]    a message with these fields, in order
    another word                    a message               Query | Step   a oneof of messages with these names

The peer may send anything, so whatever is read is asked for its fault, a list before its items. Three things are a
`TypeError` when the program starts, so that no check can be forgotten: a field that a peer can fill and that names no
limit, or one that nobody would ask; a field of a message that no word has; a field whose type is not the message's.

What is written is not asked, since the other side will do that. `Record.sendable` and `readable` are for what a person
wrote: a question that cannot travel is that person's mistake, said before anything is sent.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import reduce
from types import NoneType, UnionType
from typing import Annotated, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from protos import fields
from protos.fields import Body, Field, Item
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.limits import (
    INFINITE_IF_ABSENT,
    Convert,
    Counted,
    Doubles,
    Finite,
    Form,
    Limit,
    Limits,
    Many,
    Member,
    Names,
    Needed,
    Pem,
    Size,
    Text,
    Unfit,
    Whole,
    limited,
    refuse,
)

_W = TypeVar("_W")
_M = TypeVar("_M", bound=Message)
Otherwise = Mapping[str, str | tuple[str, str]]
"""What a message calls a field of a word: by another name, or two where the field is a pair."""

_KINDS: Mapping[object, tuple[int, ...]] = {
    bool: (FieldDescriptor.CPPTYPE_BOOL,),
    str: (FieldDescriptor.CPPTYPE_STRING,),
    bytes: (FieldDescriptor.CPPTYPE_STRING,),
    float: (FieldDescriptor.CPPTYPE_DOUBLE,),
    int: (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64),
    Enum: (FieldDescriptor.CPPTYPE_ENUM,),
    Message: (FieldDescriptor.CPPTYPE_MESSAGE,),
}
# One of these is needed: a text that is short enough may hold an escape sequence, a number above 0 may be infinite.
_ENOUGH: Mapping[object, tuple[type, ...]] = {
    str: (Text, Form),
    bytes: (Size, Pem, Doubles, Many),
    int: (Whole,),
    float: (Finite, Counted),
    Fraction: (Counted,),
}


def parse(kind: type[_M], content: bytes) -> _M:
    """The message in these bytes."""
    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError:
        raise MalformedMessage(private=f"not a {kind.__name__}") from None
    return message


@dataclass(frozen=True, slots=True)
class Record(Generic[_W, _M]):
    """A word, and the message that it is."""

    message: type[_M]
    writers: tuple[Callable[[Message, object], None], ...]
    readers: tuple[Callable[[Message], object], ...]
    parts: Callable[[_W], tuple[object, ...]]
    make: Callable[..., _W]
    rule: Callable[[_W], str | None] | None

    def write(self, word: _W) -> _M:
        """The word as a message."""
        message = self.message()
        self.fill(message, word)
        return message

    def fill(self, message: Message, word: _W, /) -> None:
        """Write the word into a message that is there already."""
        for write, value in zip(self.writers, self.parts(word), strict=True):
            write(message, value)

    def read(self, message: Message, /) -> _W:
        """The word in a message; `MalformedMessage` unless every limit holds."""
        word = self.make(*[read(message) for read in self.readers])
        if self.rule is not None:
            refuse(self.rule(word))
        return word

    def readable(self, message: _M) -> _M:
        """The same message, once it was read as the other side will; `QueryMistaken` when it would not."""
        try:
            # Read back, so that the bounds of both directions are one set and cannot drift apart.
            self.read(message)
        except MalformedMessage as malformed:
            raise QueryMistaken(malformed.message) from None
        return message

    def sendable(self, word: _W) -> _M:
        """What a person wrote, as a message, whatever the other side thinks of it; `QueryMistaken` if there is none."""
        try:
            return self.write(word)
        except Unfit as unfit:
            raise QueryMistaken(str(unfit)) from None
        except ValueError:
            # protobuf's way to say that a number has no room in its field, or a text no bytes.
            raise QueryMistaken("a number or a name is outside what can be sent.") from None

    def encode(self, word: _W) -> bytes:
        """The word as bytes."""
        return self.write(word).SerializeToString(deterministic=True)

    def decode(self, content: bytes) -> _W:
        """The word in these bytes."""
        return self.read(parse(self.message, content))


@dataclass(frozen=True, slots=True)
class StandIn(Generic[_W]):
    """The word that is sent in place of one with Nones, and the way back."""

    sent: Callable[[_W], _W]
    taken: Callable[[_W], _W]

    def around(self, record: Record[_W, _M]) -> Record[_W, _M]:
        """The record that sends and takes it."""
        parts, make = record.parts, record.make
        return dataclasses.replace(
            record, parts=lambda word: parts(self.sent(word)), make=lambda *held: self.taken(make(*held))
        )


class Codec:
    """How words become messages; `by_hand` are the types whose messages are not their fields."""

    def __init__(self, by_hand: Mapping[object, Body]) -> None:
        self._by_hand = by_hand
        self._records: dict[tuple[object, str], Body] = {}

    def record(
        self,
        kind: type[_W],
        message: type[_M],
        *,
        names: Otherwise | None = None,
        beside: tuple[str, ...] = (),
        stand_in: StandIn[_W] | None = None,
    ) -> Record[_W, _M]:
        """How this word is that message, here and inside every word declared after it.

        `names` are the fields that the message calls otherwise, or holds as two; those `beside` it travel elsewhere.
        With a `stand_in` the word may hold None where its message always has a number.
        """
        described = cast("Descriptor", message.DESCRIPTOR)
        reading = _Reading(self, described, names or {}, stands_in=stand_in is not None)
        made = cast("Record[_W, _M]", reading.word(kind, beside))
        if stand_in is not None:
            made = stand_in.around(made)
        self._records[kind, described.full_name] = cast("Body", made)
        return made

    def alone(self, hint: object, message: type[_M]) -> Record[_W, _M]:
        """A message with one field, which is all that is said: a plain value with its limit, or a word."""
        described = cast("Descriptor", message.DESCRIPTOR)
        field = _Reading(self, described, {}).field(described.fields[0].name, hint)
        self._records[hint, described.full_name] = made = _made(described, [field], lambda value: (value,), _itself)
        return cast("Record[_W, _M]", made)

    def body(self, kind: object, message: Descriptor) -> Body:
        """How a type becomes a message inside another."""
        if (body := self.by_hand(kind) or self._records.get((kind, message.full_name))) is not None:
            return body
        reading = _Reading(self, message, {})
        made = reading.pair(get_args(kind)) if get_origin(kind) is tuple else reading.word(cast("type", kind))
        self._records[kind, message.full_name] = made
        return made

    def messages(self) -> set[str]:
        """The names of all messages that are read."""
        return {name.rpartition(".")[2] for _, name in self._records}

    def by_hand(self, kind: object) -> Body | None:
        """How a type is read and written that is not its fields."""
        return self._by_hand.get(kind)


def _itself(value: object) -> object:
    return value


def _together(*parts: object) -> tuple[object, ...]:
    return parts


def _made(
    message: Descriptor,
    made: list[Field],
    parts: Callable[[object], tuple[object, ...]],
    make: Callable[..., object],
    rule: Callable[[object], str | None] | None = None,
) -> Record[object, Message]:
    known = {wire for field in made for wire in field.wires}
    if unread := sorted(set(message.fields_by_name) - known):
        raise TypeError(f"no word has the fields {unread} of the message {message.name}")
    writers, readers = tuple(field.write for field in made), tuple(field.read for field in made)
    return Record(GetMessageClass(message), writers, readers, parts, make, rule)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading of annotations, beside the message that they describe."""

    codec: Codec
    message: Descriptor
    names: Otherwise
    stands_in: bool = False

    def word(self, kind: type, beside: tuple[str, ...] = ()) -> Record[object, Message]:
        hints = get_type_hints(kind, include_extras=True)
        names = [field.name for field in dataclasses.fields(kind) if field.name not in beside]
        parts = operator.attrgetter(*names) if len(names) > 1 else lambda word: (getattr(word, names[0]),)
        # By name where one is left out, or the next would take its place.
        make = (lambda *held: kind(**dict(zip(names, held, strict=True)))) if beside else kind
        made = [self.field(name, hints[name]) for name in names]
        return _made(self.message, made, parts, make, getattr(kind, "fault", None))

    def pair(self, hints: tuple[object, ...]) -> Record[object, Message]:
        order = sorted(self.message.fields, key=lambda field: field.number)
        made = [self.field(wire.name, hint) for wire, hint in zip(order, hints, strict=True)]
        return _made(self.message, made, cast("Callable[[object], tuple[object, ...]]", _itself), _together)

    def field(self, name: str, hint: object) -> Field:
        """How the field of this name is written and read."""
        bare, notes = _unwrapped(hint)
        called = self.names.get(name, name)
        if isinstance(called, tuple):
            self._unlimited(name, notes)
            return fields.in_two([self.field(end, each) for end, each in zip(called, get_args(bare), strict=True)])
        alternatives = get_args(bare) if _is_union(bare) and not self.codec.by_hand(bare) else ()
        if alternatives:
            self._unlimited(name, notes)
        if alternatives and all(map(dataclasses.is_dataclass, alternatives)):
            return self._one_of(alternatives, notes)
        if (wire := self.message.fields_by_name.get(called)) is None:
            raise TypeError(f"the message {self.message.name} has no field {called}")
        if NoneType in alternatives:
            return self._or_none(wire, reduce(operator.or_, [each for each in alternatives if each is not NoneType]))
        if get_origin(bare) is tuple and get_args(bare)[-1] is Ellipsis:
            return self._many(wire, get_args(bare)[0], notes)
        if INFINITE_IF_ABSENT in notes:
            return fields.infinite_if_absent(called, self._item(wire, hint, presence=True))
        item = self._item(wire, hint, presence=wire.message_type is not None)
        return fields.plain(called, item) if item.body is None else self._needed(wire, bare, item.body, notes)

    def _or_none(self, wire: FieldDescriptor, inner: object) -> Field:
        if wire.enum_type is not None and not wire.has_presence:
            return fields.none_if_zero(wire.name, self._item(wire, inner))
        if self.stands_in and not wire.has_presence:
            return fields.plain(wire.name, self._item(wire, inner))
        return fields.optional(wire.name, self._item(wire, inner, presence=True))

    def _needed(self, wire: FieldDescriptor, bare: object, body: Body, notes: tuple[object, ...]) -> Field:
        # What is read by hand has a sentence of its own for an empty message.
        missing = "" if self.codec.by_hand(bare) else f"{_spoken(self.message.name)} has no {wire.name}."
        said = next((note.sentence for note in notes if isinstance(note, Needed)), missing)
        return fields.needed(wire.name, body, said)

    def _many(self, wire: FieldDescriptor, hint: object, notes: tuple[object, ...]) -> Field:
        limits = _limits(notes)
        if not limits or not isinstance(limits[0], Many | Names):
            raise TypeError(f"{self.message.name}.{wire.name} does not say first how many there may be")
        if isinstance(limits[0], Names):
            self._agree(wire, str, repeated=True)
            return fields.many(wire.name, Item(), limits)
        return fields.many(wire.name, self._item(wire, hint, repeated=True), limits)

    def _one_of(self, kinds: tuple[object, ...], notes: tuple[object, ...]) -> Field:
        wires = {wire.message_type.name: wire for wire in self.message.fields if wire.message_type is not None}
        chosen = {kind: wires[cast("type", kind).__name__] for kind in kinds}
        (oneof,) = {wire.containing_oneof.name for wire in chosen.values() if wire.containing_oneof is not None}
        said = next((note.sentence for note in notes if isinstance(note, Needed)), f"{_spoken(oneof)} is missing.")
        return fields.one_of(oneof, {kind: self.field(wire.name, kind) for kind, wire in chosen.items()}, said)

    def _item(self, wire: FieldDescriptor, hint: object, *, repeated: bool = False, presence: bool = False) -> Item:
        bare, notes = _unwrapped(hint)
        if wire.message_type is not None:
            self._agree(wire, Message, repeated=repeated, presence=presence)
            self._unlimited(wire.name, notes)
            return Item(body=self.codec.body(bare, wire.message_type))
        if wire.enum_type is not None:
            self._agree(wire, Enum, repeated=repeated, presence=presence)
            self._unlimited(wire.name, notes)
            return _member(bare, notes, wire.enum_type, f"{self.message.name}.{wire.name}")
        if dataclasses.is_dataclass(bare) and len(hints := get_type_hints(bare, include_extras=True)) == 1:
            # A word around one plain value is that value.
            self._unlimited(wire.name, notes)
            ((name, inner),) = hints.items()
            held = self._item(wire, inner, repeated=repeated, presence=presence)
            make, take = cast("type", bare), cast("Convert", held.take)
            return Item(operator.attrgetter(name), lambda value: make(take(value)))
        limits = _limits(notes)
        counted = next((limit for limit in limits if isinstance(limit, Counted)), None)
        self._agree(wire, bare if counted is None else int, repeated=repeated, presence=presence)
        if bare is bool and not limits:
            return Item()
        if not any(isinstance(limit, _ENOUGH.get(bare, ())) for limit in limits):
            raise TypeError(f"{self.message.name}.{wire.name} does not say what it may hold")
        if counted is None:
            return Item(take=limited(limits))
        return Item(cast("Convert", counted.number), limited(limits, cast("Convert", counted.value)))

    def _unlimited(self, name: str, notes: tuple[object, ...]) -> None:
        """A limit around a word, a kind or a choice would be read past: it belongs to what is inside."""
        if _limits(notes):
            raise TypeError(f"{self.message.name}.{name} names a limit that nobody would ask")

    def _agree(self, wire: FieldDescriptor, kind: object, *, repeated: bool, presence: bool = False) -> None:
        """A field whose type is not that of the message would be written wrong, or not at all, at some later time."""
        same = wire.cpp_type in _KINDS.get(kind, ()) and (wire.type == wire.TYPE_BYTES) == (kind is bytes)
        if not same or wire.is_repeated != repeated or wire.has_presence != presence:
            raise TypeError(f"{self.message.name}.{wire.name} is not what its word says")


def _member(bare: object, notes: tuple[object, ...], wire: EnumDescriptor, field: str) -> Item:
    """A member by its name on the wire, or its text; zero and numbers nobody knows are refused."""
    said = next((note for note in notes if isinstance(note, Member)), None)
    if said is None:
        raise TypeError(f"{field} does not say what its kinds are called")
    kinds = said.of or get_args(bare) or (bare,)
    prefix = wire.values_by_number[0].name.removesuffix("UNSPECIFIED")
    members = {member.name: member for kind in kinds for member in cast("type[Enum]", kind) if member not in said.but}
    numbers = {value.name.removeprefix(prefix): value.number for value in wire.values if value.number}
    if members.keys() != numbers.keys():
        raise TypeError(f"{field} has other kinds than its word")
    known: dict[object, object] = {
        numbers[name]: member.value if said.of else member for name, member in members.items()
    }
    written = {value: number for number, value in known.items()}

    def take(number: object) -> object:
        if (found := known.get(number)) is None:
            raise MalformedMessage(f"{said.called} is not one of the known kinds.")
        return found

    return Item(written.__getitem__, take)


def _limits(notes: tuple[object, ...]) -> Limits:
    return tuple(note for note in notes if isinstance(note, Limit))


def _is_union(hint: object) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _unwrapped(hint: object) -> tuple[object, tuple[object, ...]]:
    return (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())


def _spoken(name: str) -> str:
    """`BudgetReport` as a person says it: a budget report."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return f"{'an' if words[0] in 'aeio' else 'a'} {words}"
