"""One byte string for one meaning.

Hashes and signatures are taken over this encoding, so two words that differ in anything that matters
must differ here, and two equal words must not. It is JSON with sorted keys, no spaces, and no floats:
a float is written as its exact hexadecimal form, a fraction as numerator and denominator.
It is what a ledger stores, too; `wardround.federation.canonical_reader` reads it.

A hash that somebody signed must outlive new versions. A field that a word gained afterwards is marked `LATER`
and left out while it has its default, so that everything that says nothing about it keeps its bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction

LATER: Mapping[str, bool] = {"later": True}
"""The metadata of a field that a word gained after it was first signed."""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_Json = dict[str, "_Json"] | list["_Json"] | str | int | bool | None


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
