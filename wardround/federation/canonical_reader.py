"""Canonical bytes as the word that they are: the way back from `wardround.federation.canonical`.

A word's own annotations say what stands in each of its fields; `{"enum": …}` names no class, so the annotation decides
that too. What was read is written again and compared. So of all that could be taken for a word only its own bytes are:
a space, another order of keys, `2/4` or a later field that says nothing are refused. The limits that a field names are
asked as they are of a peer: a disk may hold anything.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from wardround.federation import canonical
from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import Limit, Member

_W = TypeVar("_W")
_Read = Callable[[object], object]
_Readers = Mapping[object, _Read]
"""How a value is read, by its form: the name of a word, the tag of a value, or JSON's own type."""


def decode(kind: type[_W], content: bytes) -> _W:
    """The word of this kind with exactly these canonical bytes; `MalformedMessage` unless every limit holds."""
    try:
        word = _read(_readers(kind), json.loads(content.decode("ascii")))
        if canonical.encode(word) == content:
            return cast("_W", word)
    except (ValueError, LookupError, ArithmeticError, RecursionError):
        # Not even nearly.
        pass
    raise MalformedMessage(private=f"not the canonical bytes of a {kind.__name__}")


def _read(readers: _Readers, value: object) -> object:
    form: object = type(value)
    if isinstance(value, dict):
        form = str(value.get("word", next(iter(value), "")))
    return readers[form](value)


def _readers(hint: object) -> _Readers:
    bare, notes = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
    limits = tuple(note for note in notes if isinstance(note, Limit))
    found = _bare(bare, [but for note in notes if isinstance(note, Member) for but in note.but])
    return {form: _limited(read, limits) for form, read in found.items()} if limits else found


def _bare(bare: object, but: Iterable[Enum]) -> _Readers:
    alternatives = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    if all(isinstance(each, type) and issubclass(each, Enum) for each in alternatives):
        return {"enum": _member([each for kind in alternatives for each in kind if each not in but])}
    if len(alternatives) > 1:
        return _apart([_readers(each) for each in alternatives])
    if get_origin(bare) is tuple and get_args(bare)[-1] is Ellipsis:
        items = _readers(get_args(bare)[0])
        return {list: lambda value: tuple([_read(items, each) for each in cast("list[object]", value)])}
    if dataclasses.is_dataclass(bare) and isinstance(bare, type):
        return {canonical.name_of(bare): partial(_word, bare)}
    if (found := _PLAIN.get(bare)) is None:
        raise TypeError(f"{bare} is not read from canonical bytes")
    return found


def _apart(found: list[_Readers]) -> _Readers:
    """One of several: no two of them may look alike."""
    merged = {form: read for readers in found for form, read in readers.items()}
    if len(merged) < sum(map(len, found)):
        raise TypeError("two alternatives of a union cannot be told apart")
    return merged


def _limited(read: _Read, limits: tuple[Limit[object], ...]) -> _Read:
    def limited(value: object) -> object:
        meant = read(value)
        for limit in limits:
            _refuse(limit.fault(meant))
        return meant

    return limited


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise MalformedMessage(fault)


def _word(kind: type, value: object) -> object:
    silent, readers = _fields(kind)
    match value:
        case {"fields": dict(held)} if held.keys() | silent >= readers.keys():
            word = kind(**{name: _read(each, held[name]) for name, each in readers.items() if name in held})
        case _:
            raise ValueError("a word lacks a field")
    if (fault := getattr(word, "fault", None)) is not None:
        _refuse(fault())
    return cast("object", word)


@cache
def _fields(kind: type) -> tuple[frozenset[str], Mapping[str, _Readers]]:
    """The fields that may be left out, and how each is read."""
    hints, fields = get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
    silent = frozenset(field.name for field in fields if canonical.is_later(field))
    return silent, {field.name: _readers(hints[field.name]) for field in fields}


def _member(members: list[Enum]) -> _Read:
    known = {str(member.value): member for member in members}
    if len(known) < len(members):
        raise TypeError("two members have one value")
    return _tagged("enum", known.__getitem__)["enum"]


def _tagged(tag: str, convert: Callable[[str], object]) -> _Readers:
    # What is no text is taken for one, and differs from what is written again.
    return {tag: lambda value: convert(str(cast("Mapping[str, object]", value)[tag]))}


def _fraction(text: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator))


def _itself(value: object) -> object:
    return value


_PLAIN: Mapping[object, _Readers] = {
    **{kind: {kind: _itself} for kind in (NoneType, bool, int, str)},
    float: _tagged("float", float.fromhex),
    bytes: _tagged("bytes", bytes.fromhex),
    datetime.date: _tagged("date", datetime.date.fromisoformat),
    Fraction: _tagged("fraction", _fraction),
}
