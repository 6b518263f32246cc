"""One field of a message: how a value is written into it, and how it is read and asked for its fault.

`protos.codec` chooses among these when the program starts, once for each field of each word. They are functions of
what is known then, because a report of two hundred sites has some thousand fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol, cast

from google.protobuf.message import Message

from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import Convert, Limits, refuse


class Body(Protocol):
    """How something becomes a message of its own."""

    def fill(self, message: Message, word: object, /) -> None:
        """Write it into a message."""

    def read(self, message: Message, /) -> object:
        """What is in a message; `MalformedMessage` when it is not that."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a word, and those of the message that hold it."""

    wires: tuple[str, ...]
    write: Callable[[Message, object], None]
    read: Callable[[Message], object]


@dataclass(frozen=True, slots=True)
class Item:
    """One value, alone or in a list: with a body, or written by `put` and read by `take`, where they change it."""

    put: Convert | None = None
    take: Convert | None = None
    body: Body | None = None


def plain(wire: str, item: Item) -> Field:
    """A value that is always there."""
    held = attrgetter(wire)
    return Field((wire,), _setter(wire, item.put), held if item.take is None else _getter(held, item.take))


def _setter(wire: str, put: Convert | None) -> Callable[[Message, object], None]:
    def write(message: Message, value: object) -> None:
        setattr(message, wire, value)

    if put is None:
        return write
    return lambda message, value: setattr(message, wire, put(value))


def _getter(held: Convert, take: Convert) -> Callable[[Message], object]:
    return lambda message: take(held(message))


def optional(wire: str, item: Item, *, absent: object = None) -> Field:
    """A value that may be left out; `absent` is what that means."""
    inner = plain(wire, item) if item.body is None else needed(wire, item.body, "")

    def write(message: Message, value: object) -> None:
        if value != absent:
            inner.write(message, value)

    def read(message: Message) -> object:
        return inner.read(message) if message.HasField(wire) else absent

    return Field((wire,), write, read)


def none_if_zero(wire: str, item: Item) -> Field:
    """A kind that may be none: the zero of every enumeration is no member."""
    inner, held = plain(wire, item), attrgetter(wire)

    def write(message: Message, value: object) -> None:
        if value is not None:
            inner.write(message, value)

    def read(message: Message) -> object:
        return inner.read(message) if held(message) else None

    return Field((wire,), write, read)


def infinite_if_absent(wire: str, item: Item) -> Field:
    """A number that is infinite where it is left out."""
    return optional(wire, item, absent=math.inf)


def needed(wire: str, body: Body, missing: str) -> Field:
    """A word; without a sentence for one that is missing, an empty message is read in its place."""
    held = attrgetter(wire)

    def write(message: Message, value: object) -> None:
        inner = held(message)
        # An empty message is there too.
        inner.SetInParent()
        body.fill(inner, value)

    def read(message: Message) -> object:
        if missing and not message.HasField(wire):
            raise MalformedMessage(missing)
        return body.read(held(message))

    return Field((wire,), write, read)


def many(wire: str, item: Item, limits: Limits) -> Field:
    """A list: how many there are is asked first, then each, then all of them together."""
    held = attrgetter(wire)
    first, together = limits[0], limits[1:]
    take = item.take if item.body is None else cast("Convert", item.body.read)

    def write(message: Message, values: object) -> None:
        items = cast("Sequence[object]", values)
        if item.body is None:
            held(message).extend(items if item.put is None else map(item.put, items))
            return
        add, fill = held(message).add, item.body.fill
        for value in items:
            fill(add(), value)

    def read(message: Message) -> object:
        sent = held(message)
        if (fault := first.fault(sent)) is not None:
            raise MalformedMessage(fault)
        values = tuple(sent) if take is None else tuple([take(value) for value in sent])
        for limit in together:
            refuse(limit.fault(values))
        return values

    return Field((wire,), write, read)


def in_two(ends: Sequence[Field]) -> Field:
    """A pair that is two fields of the message."""

    def write(message: Message, value: object) -> None:
        for field, end in zip(ends, cast("Sequence[object]", value), strict=True):
            field.write(message, end)

    def read(message: Message) -> object:
        return tuple(field.read(message) for field in ends)

    return Field(tuple(wire for field in ends for wire in field.wires), write, read)


def one_of(name: str, by_kind: Mapping[object, Field], missing: str) -> Field:
    """One of several words."""
    by_wire = {field.wires[0]: field for field in by_kind.values()}

    def write(message: Message, value: object) -> None:
        by_kind[type(value)].write(message, value)

    def read(message: Message) -> object:
        chosen = message.WhichOneof(name)
        if chosen is None:
            raise MalformedMessage(missing)
        return by_wire[chosen].read(message)

    return Field(tuple(by_wire), write, read)
