"""Thrift's compact protocol as a plain tree: the form of a Parquet file's footer.

A struct is a dictionary of field number → (wire type, value); what is not understood is kept as it is. The bytes come
from a file, so whatever they hold becomes a tree or a `ValueError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = "bool | int | bytes | Sequence | dict[int, Field]"
Field: TypeAlias = "tuple[int, Value]"
Struct: TypeAlias = "dict[int, Field]"

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_WHOLE = (I16, I32, I64)
_DOUBLE_BYTES = 8
_LONG_LIST = 15
_DEEPEST = 32
_VARINT_BITS = 70


@dataclass(slots=True)
class Sequence:
    """A list or a set, whose elements have one type."""

    kind: int
    values: list[Value] = field(default_factory=list)


def decoded(content: bytes) -> Struct:
    """The struct that `content` begins with.

    Raises:
        ValueError: it begins with none.
    """
    try:
        return _Reader(content).struct(0)
    except IndexError:
        pass
    raise ValueError("the structure is cut short")


def encoded(struct: Struct) -> bytes:
    """The bytes that `decoded` makes `struct` of."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


@dataclass(slots=True)
class _Reader:
    content: bytes
    place: int = 0

    def byte(self) -> int:
        found = self.content[self.place]
        self.place += 1
        return found

    def varint(self) -> int:
        found = shift = 0
        while shift < _VARINT_BITS:
            byte = self.byte()
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004
                return found
        raise ValueError("a number is too long")

    def whole(self) -> int:
        found = self.varint()
        return (found >> 1) ^ -(found & 1)

    def some(self, size: int) -> bytes:
        found = self.content[self.place : self.place + size]
        if len(found) < size:
            raise IndexError
        self.place += size
        return found

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("the structure is too deep")
        found: Struct = {}
        number = 0
        while (head := self.byte()) & 0x0F:
            number = number + (head >> 4) if head >> 4 else self.whole()
            kind = head & 0x0F
            found[number] = kind, kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int) -> Value:
        match kind:
            case 1 | 2:
                return self.byte() == TRUE
            case 3:
                return self.byte()
            case 4 | 5 | 6:
                return self.whole()
            case 7:
                return self.some(_DOUBLE_BYTES)
            case 8:
                return self.some(self.varint())
            case 9 | 10:
                head = self.byte()
                size = head >> 4 if head >> 4 < _LONG_LIST else self.varint()
                return Sequence(head & 0x0F, [self.value(head & 0x0F, depth + 1) for _ in range(size)])
            case 12:
                return self.struct(depth + 1)
            case _:
                # Parquet has no maps.
                raise ValueError("the structure holds an unknown type")


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - before
        if 0 < step < 16:  # noqa: PLR2004
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_whole(out, number)
        before = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Value) -> None:
    if isinstance(value, dict):
        _write_struct(out, value)
    elif isinstance(value, Sequence):
        size = len(value.values)
        out.append(min(size, _LONG_LIST) << 4 | value.kind)
        if size >= _LONG_LIST:
            _write_varint(out, size)
        for each in value.values:
            _write_value(out, value.kind, each)
    elif isinstance(value, bytes):
        if kind == BINARY:
            _write_varint(out, len(value))
        out += value
    elif kind in _WHOLE:
        _write_whole(out, int(value))
    elif kind == BYTE:
        out.append(int(value))
    else:
        out.append(TRUE if value else FALSE)


def _write_whole(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:  # noqa: PLR2004
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
