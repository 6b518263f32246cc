"""One byte string for one meaning, and the way back.

Hashes and signatures are taken over this encoding, so two words that differ in anything that matters
must differ here, and two equal words must not. It is JSON with sorted keys, no spaces, and no floats:
a float is written as its exact hexadecimal form, a fraction as numerator and denominator.

A hash that somebody signed must outlive new versions. A field that a word gained afterwards is marked `LATER`
and left out while it has its default, so that everything that says nothing about it keeps its bytes.

A ledger stores it, too. To read it back, a word's own annotations say what stands in each of its fields; `{"enum": …}`
names no class, so the annotation decides that as well. What was read is written again and compared, so a space, another
order of keys, `2/4` or a later field that says nothing are refused. The limits that a field names are asked as they are
of a peer: a disk may hold anything.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import Convert, Limit, Member, limited, refuse

LATER: Mapping[str, bool] = {"later": True}
"""The metadata of a field that a word gained after it was first signed."""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_Json = dict[str, "_Json"] | list["_Json"] | str | int | bool | None

_W = TypeVar("_W")
_Readers = Mapping[object, Convert]
"""How a value is read, by its form: the name of a word, the tag of a value, or JSON's own type."""


def encode(word: object) -> bytes:
    """The canonical bytes of a frozen dataclass, or of plain values inside one."""
    return _ENCODER.encode(_plain(word)).encode("ascii")


def digest(word: object) -> str:
    """SHA-256 of the canonical bytes, in lower-case hexadecimal."""
    return hashlib.sha256(encode(word)).hexdigest()


def name_of(kind: type) -> str:
    """What a word of this kind is called in its own bytes."""
    return kind.__name__


def is_later(field: dataclasses.Field[object]) -> bool:
    """Whether a word gained this field after it was first signed."""
    return bool(field.metadata.get("later"))


def _plain(word: object) -> _Json:
    match word:
        case None | bool():
            return word
        case Enum():
            return {"enum": str(word.value)}
        case int() | str():
            return word
        case float():
            if not math.isfinite(word):
                raise ValueError("a canonical word holds finite numbers only")
            return {"float": (word + 0.0).hex()}
        case tuple() | list():
            # Most of what is written down is texts and numbers, in lists of a thousand names too.
            return [item if type(item) in _AS_THEY_ARE else _plain(item) for item in word]
        case bytes():
            return {"bytes": word.hex()}
        case datetime.date():
            return {"date": word.isoformat()}
        case Fraction():
            return {"fraction": f"{word.numerator}/{word.denominator}"}
        case Mapping():
            return {"map": [[_plain(key), _plain(value)] for key, value in sorted(word.items())]}
    if dataclasses.is_dataclass(word) and not isinstance(word, type):
        shown = [f for f in dataclasses.fields(word) if not _silent(f, getattr(word, f.name))]
        fields: dict[str, _Json] = {f.name: _plain(getattr(word, f.name)) for f in shown}
        return {"word": name_of(type(word)), "fields": fields}
    raise TypeError(f"a {type(word).__name__} has no canonical form")


def _silent(field: dataclasses.Field[object], value: object) -> bool:
    """Whether a later field says nothing; the type is compared too, as False equals 0."""
    return is_later(field) and type(value) is type(field.default) and value == field.default


def decode(kind: type[_W], content: bytes) -> _W:
    """The word of this kind with exactly these canonical bytes; `MalformedMessage` unless every limit holds."""
    try:
        word = _read(_readers(kind), json.loads(content.decode("ascii")))
        if encode(word) == content:
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
    return {form: limited(limits, read) for form, read in found.items()} if limits else found


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
        return {name_of(bare): partial(_word, bare)}
    if (found := _PLAIN.get(bare)) is None:
        raise TypeError(f"{bare} is not read from canonical bytes")
    return found


def _apart(found: list[_Readers]) -> _Readers:
    """One of several: no two of them may look alike."""
    merged = {form: read for readers in found for form, read in readers.items()}
    if len(merged) < sum(map(len, found)):
        raise TypeError("two alternatives of a union cannot be told apart")
    return merged


def _word(kind: type, value: object) -> object:
    silent, readers = _fields(kind)
    match value:
        case {"fields": dict(held)} if held.keys() | silent >= readers.keys():
            word = kind(**{name: _read(each, held[name]) for name, each in readers.items() if name in held})
        case _:
            raise ValueError("a word lacks a field")
    if (fault := getattr(word, "fault", None)) is not None:
        refuse(fault())
    return cast("object", word)


@cache
def _fields(kind: type) -> tuple[frozenset[str], Mapping[str, _Readers]]:
    """The fields that may be left out, and how each is read."""
    hints, fields = get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
    silent = frozenset(field.name for field in fields if is_later(field))
    return silent, {field.name: _readers(hints[field.name]) for field in fields}


def _member(members: list[Enum]) -> Convert:
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
