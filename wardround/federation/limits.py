"""What a field of a word may hold, said where the field is declared.

    table: Annotated[str, Text("the name of a table", longest=256, plain=True)]

A limit knows no wire and no database. Whoever reads a word from outside asks it for a fault: one sentence that names
the field and never its content, so that a refusal can be sent back as it is. A rule between fields is the word's own
method `fault`, in the same manner.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence, Sized
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Generic, TypeVar

from wardround.federation.errors import MalformedMessage
from wardround.federation.plain_text import text_fault

MAX_TEXT = 256

MAX_SITES = 10_000
MAX_AGGREGATES = 32
MAX_COUNT = 2**63 - 1
NUMBER_BYTES = 8
SIGNATURE_BYTES = 64
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_LARGEST = sys.float_info.max

_V = TypeVar("_V", contravariant=True)  # noqa: PLC0105 -- a short name for the one parameter of this module
_W = TypeVar("_W")


class Limit(ABC, Generic[_V]):
    """What one field may hold."""

    __slots__ = ()

    @abstractmethod
    def fault(self, value: _V, /) -> str | None:
        """Why the value may not be there, in one sentence; None when it may."""


# --- texts and bytes ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text(Limit[str]):
    """A text within these lengths, without the NUL that ends a string in other languages.

    A `plain` one has no control or direction character. Any other comes from rows, or from what an older version let
    in, and is escaped by whoever shows it.
    """

    called: str
    longest: int = field(kw_only=True)
    shortest: int = field(default=1, kw_only=True)
    plain: bool = field(kw_only=True)

    def fault(self, value: str, /) -> str | None:
        if not self.shortest <= len(value) <= self.longest:
            return f"{self.called} is too short or too long."
        if "\x00" in value:
            return f"{self.called} has a NUL character."
        if self.plain and (fault := text_fault(value)) is not None:
            return f"{self.called} {fault}."
        return None


@dataclass(frozen=True, slots=True)
class Form(Limit[str]):
    """A text of one form, which leaves no room for a hidden character."""

    sentence: str
    pattern: re.Pattern[str]

    def fault(self, value: str, /) -> str | None:
        return None if self.pattern.fullmatch(value) else self.sentence


def hash_of(called: str) -> Form:
    """A SHA-256, or an Ed25519 key: 32 bytes in lower-case hexadecimal."""
    return Form(f"{called} is not 64 hexadecimal digits.", re.compile(r"[0-9a-f]{64}"))


def name_of(called: str) -> Form:
    """The name of a site or a study."""
    return Form(f"{called} is not a name.", NAME)


def word_of(called: str) -> Form:
    """A short word of ours, such as an error's code or an entry's kind."""
    return Form(f"{called} is not a word.", re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}"))


@dataclass(frozen=True, slots=True)
class Size(Limit[bytes]):
    """Bytes of exactly this length."""

    called: str
    exactly: int

    def fault(self, value: bytes, /) -> str | None:
        return None if len(value) == self.exactly else f"{self.called} does not have {self.exactly} bytes."


@dataclass(frozen=True, slots=True)
class Pem(Limit[bytes]):
    """A certificate or a request: its length and frame only; what is inside is for `certificates` to read."""

    called: str
    longest: int = 16 * 1024

    def fault(self, value: bytes, /) -> str | None:
        if len(value) > self.longest:
            return f"{self.called} is too long."
        return None if value.startswith(b"-----BEGIN ") and value.isascii() else f"{self.called} is not PEM."


@dataclass(frozen=True, slots=True)
class Doubles(Limit[bytes]):
    """So many numbers of eight bytes at most; what they are is not looked at here."""

    called: str
    most: int

    def fault(self, value: bytes, /) -> str | None:
        if len(value) % NUMBER_BYTES:
            return f"{self.called} does not hold whole numbers of {NUMBER_BYTES} bytes."
        return None if len(value) <= NUMBER_BYTES * self.most else f"{self.called} has more than {self.most} numbers."


# --- numbers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whole(Limit[int]):
    """A whole number within these bounds."""

    called: str
    lower: int = 0
    upper: int = MAX_COUNT

    def fault(self, value: int, /) -> str | None:
        return None if self.lower <= value <= self.upper else f"{self.called} is out of bounds."


@dataclass(frozen=True, slots=True)
class Finite(Limit[float]):
    """A finite number within these bounds."""

    called: str
    lower: float = -_LARGEST
    upper: float = _LARGEST

    def fault(self, value: float, /) -> str | None:
        # Infinity is outside any of these bounds, and no comparison holds for what is not a number.
        return None if self.lower <= value <= self.upper else f"{self.called} is not finite or out of bounds."


@dataclass(frozen=True, slots=True)
class Above(Limit[float]):
    """A number that is not the bound itself."""

    called: str
    bound: float

    def fault(self, value: float, /) -> str | None:
        return None if value > self.bound else f"{self.called} is not above {self.bound:g}."


@dataclass(frozen=True, slots=True)
class Below(Limit[float]):
    """The same from the other side."""

    called: str
    bound: float

    def fault(self, value: float, /) -> str | None:
        return None if value < self.bound else f"{self.called} is not below {self.bound:g}."


class Mark:
    """A note that says how a field is written, and limits nothing."""


INFINITE_IF_ABSENT = Mark()
"""Infinity is written by leaving the field out; a peer that writes it down is refused."""


class Unfit(ValueError):
    """A value that cannot be written at all."""


class Counted(Limit[_W]):
    """What is written down as a whole number."""

    __slots__ = ()

    @abstractmethod
    def number(self, value: _W, /) -> int:
        """The number that is written; `Unfit` when there is none."""

    @abstractmethod
    def value(self, number: int, /) -> _W:
        """What the number means."""


@dataclass(frozen=True, slots=True)
class Parts(Counted[Fraction]):
    """A fraction that is a whole number of `unit`ths, so many at least and at most."""

    called: str
    unit: int
    lower: int
    upper: int

    def number(self, value: Fraction, /) -> int:
        parts = value * self.unit
        if parts.denominator != 1:
            raise Unfit(f"{self.called} is no whole number of 1/{self.unit}.")
        return parts.numerator

    def value(self, number: int, /) -> Fraction:
        return Fraction(number, self.unit)

    def fault(self, value: Fraction, /) -> str | None:
        return None if self.lower <= value * self.unit <= self.upper else f"{self.called} is out of bounds."


# --- kinds, words and lists -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """One of the members of the field's type; where that is a text, the value of a member `of` these types.

    `but` are members that never travel.
    """

    called: str
    of: tuple[type[StrEnum], ...] = ()
    but: tuple[StrEnum, ...] = ()


@dataclass(frozen=True, slots=True)
class Needed:
    """The sentence for a word that is not there, where `a step has no training.` would not say enough."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Many(Limit[Sized]):
    """A list, or bytes, of so many; a list is asked before its items are read."""

    sentence: str
    most: int
    least: int = 0

    def fault(self, value: Sized, /) -> str | None:
        return None if self.least <= len(value) <= self.most else self.sentence


@dataclass(frozen=True, slots=True)
class Names(Limit[Sequence[str]]):
    """Different names of sites, in the order sent; nothing is left to ask of each."""

    called: str

    def fault(self, value: Sequence[str], /) -> str | None:
        if len(value) > MAX_SITES:
            return f"{self.called} has more than {MAX_SITES} names."
        if len(set(value)) < len(value):
            return f"{self.called} names a site twice."
        return None if all(map(NAME.fullmatch, value)) else f"{self.called} is not a name."


@dataclass(frozen=True, slots=True)
class Distinct(Limit[Collection[object]]):
    """Sites that are there once each, by the `key` of an item."""

    called: str
    key: Callable[[object], object]

    def fault(self, value: Collection[object], /) -> str | None:
        return f"{self.called} names a site twice." if len(set(map(self.key, value))) < len(value) else None


Nonce = Annotated[str, Form("a nonce has at most 64 letters, digits, '-' and '_'.", re.compile(r"[A-Za-z0-9_-]{0,64}"))]
PlanId = Annotated[str, hash_of("a plan id")]
StudyHash = Annotated[str, hash_of("a study's hash")]
RefusalCode = Annotated[str, word_of("a refusal's code")]
Epsilon = Annotated[float, Finite("ε", lower=0.0), Above("ε", 0.0)]
Delta = Annotated[float, Finite("δ", lower=0.0), Below("δ", 1.0)]
Errors = Annotated[
    tuple[Annotated[float, Finite("an error", lower=0.0), Above("an error", 0.0)], ...],
    Many("a question has too many errors.", MAX_AGGREGATES),
]

Convert = Callable[[object], object]
Limits = tuple[Limit[object], ...]


def refuse(fault: str | None) -> None:
    """Refuse what was read for this fault, if there is one."""
    if fault is not None:
        raise MalformedMessage(fault)


def limited(limits: Limits, back: Convert | None = None) -> Convert:
    """What a value that was read means, once every limit holds."""
    if back is None and len(limits) == 1:
        fault_of = limits[0].fault

        def take(value: object) -> object:
            if (fault := fault_of(value)) is not None:
                raise MalformedMessage(fault)
            return value

        return take

    def convert(value: object) -> object:
        meant = value if back is None else back(value)
        for limit in limits:
            refuse(limit.fault(meant))
        return meant

    return convert
