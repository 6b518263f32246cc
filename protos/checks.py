"""What a decoded field must satisfy before it becomes part of a word.

The peer may send anything. Every check ends in `MalformedMessage` with a sentence that names the field and
never its content, so a refusal can be sent back as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from wardround.federation.errors import MalformedMessage
from wardround.federation.plain_text import fault_in, text_fault
from wardround.federation.study_file import NAME

MAX_SITES = 10_000
MAX_COUNT = 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NONCE = re.compile(r"[A-Za-z0-9_-]{0,64}")

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


def parse(kind: type[_M], content: bytes) -> _M:
    """The message in these bytes."""
    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError:
        raise MalformedMessage(private=f"not a {kind.__name__}") from None
    return message


def malformed(sentence: str) -> MalformedMessage:
    """The error for a message that is not what it should be."""
    return MalformedMessage(sentence)


def require(condition: bool, sentence: str) -> None:  # noqa: FBT001
    """Refuse the message unless the condition holds."""
    if not condition:
        raise malformed(sentence)


def member(known: Mapping[int, _T], value: int, field: str) -> _T:
    """The member of an enumeration; zero and numbers nobody knows are refused."""
    found = known.get(value)
    if found is None:
        raise malformed(f"{field} is not one of the known kinds.")
    return found


def digest(value: str, field: str) -> str:
    """A SHA-256, or an Ed25519 key: 32 bytes in lower-case hexadecimal."""
    require(_DIGEST.fullmatch(value) is not None, f"{field} is not 64 hexadecimal digits.")
    return value


def name(value: str, field: str) -> str:
    """The name of a site or a study."""
    require(NAME.fullmatch(value) is not None, f"{field} is not a name.")
    return value


def names(values: Sequence[str], field: str) -> tuple[str, ...]:
    """Different names of sites, in the order sent."""
    require(len(values) <= MAX_SITES, f"{field} has more than {MAX_SITES} names.")
    require(len(set(values)) == len(values), f"{field} names a site twice.")
    return tuple(name(value, field) for value in values)


def word(value: str, field: str) -> str:
    """A short word of ours, such as an error's code or an entry's kind."""
    require(_WORD.fullmatch(value) is not None, f"{field} is not a word.")
    return value


def nonce(value: str) -> str:
    """Empty, or what makes one plan differ from an equal one."""
    require(_NONCE.fullmatch(value) is not None, "a nonce has at most 64 letters, digits, '-' and '_'.")
    return value


def text(value: str, field: str, *, longest: int, shortest: int = 1) -> str:
    """A plain text within these lengths."""
    if (fault := text_fault(foreign_text(value, field, longest=longest, shortest=shortest))) is not None:
        raise malformed(f"{field} {fault}.")
    return value


def foreign_text(value: str, field: str, *, longest: int, shortest: int = 1) -> str:
    """A text within these lengths that whoever shows it escapes: it comes from rows, or from an older version's store.

    Without the NUL that ends a string in other languages.
    """
    require(shortest <= len(value) <= longest, f"{field} is too short or too long.")
    require("\x00" not in value, f"{field} has a NUL character.")
    return value


def plain(word: _T, field: str) -> _T:
    """A word all of whose texts are plain."""
    if (fault := fault_in(word)) is not None:
        raise malformed(f"{field} {fault}.")
    return word


def size(value: bytes, field: str, *, exactly: int) -> bytes:
    """Bytes of exactly this length."""
    require(len(value) == exactly, f"{field} does not have {exactly} bytes.")
    return value


def whole(value: int, field: str, *, lower: int = 0, upper: int = MAX_COUNT) -> int:
    """A whole number within these bounds."""
    require(lower <= value <= upper, f"{field} is out of bounds.")
    return value


def finite(value: float, field: str, *, lower: float = -math.inf, upper: float = math.inf) -> float:
    """A finite number within these bounds."""
    require(math.isfinite(value) and lower <= value <= upper, f"{field} is not finite or out of bounds.")
    return value
