"""Messages that are nearly right: bytes that are changed anywhere, and fields that are changed where they stand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_VARINTS = (0, 1, 2, 127, 128, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"",
    b"\x00",
    b"..",
    b"../a",
    b"a\nb",
    b"\xff\xfe",
    "\u202e".encode(),
    b"'; --",
    b"0" * 64,
    b"f" * 65,
    b"x" * 5000,
)
_VARINT, _LENGTH = 0, 2
_DEEP = 200
Mutation = Callable[[random.Random, bytes], bytes]


def mutated(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One message of the corpus with one to four changes; now and then joined with another one."""
    content = chance.choice(corpus)
    if chance.random() < 0.05:
        other = chance.choice(corpus)
        content = content[: _place(chance, content)] + other[_place(chance, other) :]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        content = chance.choice(_MUTATIONS)(chance, content)
    return content


def _place(chance: random.Random, content: bytes) -> int:
    return chance.randint(0, len(content))


def _flip(chance: random.Random, content: bytes) -> bytes:
    if not content:
        return chance.randbytes(3)
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _byte(chance: random.Random, content: bytes) -> bytes:
    at = _place(chance, content)
    return content[:at] + bytes((chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))),)) + content[at + 1 :]


def _cut(chance: random.Random, content: bytes) -> bytes:
    at = _place(chance, content)
    return content[:at] if chance.random() < 0.5 else content[:at] + content[at + chance.randint(1, 8) :]


def _grow(chance: random.Random, content: bytes) -> bytes:
    at, source = _place(chance, content), _place(chance, content)
    more = chance.choice((chance.randbytes(chance.randint(1, 16)), content[source : source + 40]))
    return content[:at] + more + content[at:]


def _field(chance: random.Random, content: bytes) -> bytes:
    """One field of the message, or of one inside it: dropped, said twice, or with something else in it."""
    fields = fields_of(content)
    if not fields:
        return _flip(chance, content)
    start, tag, value, end = chance.choice(fields)
    kind = content[start] & 7
    if kind == _LENGTH and value < end and chance.random() < 0.6:
        inside = _field if chance.random() < 0.7 else _flip
        return content[:start] + _long(content[start:tag], inside(chance, content[value:end])) + content[end:]
    match chance.randrange(4):
        case 0:
            return content[:start] + content[end:]
        case 1:
            return content[:end] + content[start:end] * chance.choice((1, 2, 100)) + content[end:]
        case 2 if kind == _VARINT:
            return content[:tag] + varint(chance.choice(_VARINTS)) + content[end:]
        case 3 if kind == _LENGTH:
            return content[:start] + _nested(chance, content[start:tag], content[value:end]) + content[end:]
        case _:
            text = chance.choice(_TEXTS)
            return content[:start] + (_long(content[start:tag], text) if kind == _LENGTH else b"") + content[end:]


def _nested(chance: random.Random, tag: bytes, inside: bytes) -> bytes:
    """A field inside itself, again and again."""
    for _ in range(chance.choice((1, 2, 50, _DEEP))):
        inside = _long(tag, inside)
    return inside


_MUTATIONS: tuple[Mutation, ...] = (_flip, _byte, _cut, _grow, _field, _field, _field)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _long(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


def fields_of(content: bytes) -> list[tuple[int, int, int, int]]:
    """Of each field: where it begins, where its tag and its length end, where it ends; none where it is no message."""
    found: list[tuple[int, int, int, int]] = []
    at = 0
    while at < len(content):
        start = at
        tag = _read(content, at)
        if tag is None:
            return []
        number, at = tag
        after = at
        match number & 7:
            case 0:
                size = _read(content, at)
                at = len(content) + 1 if size is None else size[1]
                value = at
            case 1:
                value, at = at, at + 8
            case 2:
                size = _read(content, at)
                if size is None:
                    return []
                value = size[1]
                at = value + size[0]
            case 5:
                value, at = at, at + 4
            case _:
                return []
        if at > len(content) or number >> 3 == 0:
            return []
        found.append((start, after, value, at))
    return found


def _read(content: bytes, at: int) -> tuple[int, int] | None:
    number = 0
    for place, byte in enumerate(content[at : at + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    return None
