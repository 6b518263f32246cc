"""A plan read back from its own canonical bytes, so that a restart hands out exactly what was reserved."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from wardround.federation import canonical
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.expressions import (
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Value,
    Within,
)
from wardround.federation.plan import Plan
from wardround.federation.query import Aggregate, Query, Statistic
from wardround.privacy.law import Mechanism


def encode_plan(plan: Plan) -> bytes:
    """The bytes whose hash is the plan's id."""
    return canonical.encode(plan)


@lru_cache(maxsize=1024)
def decode_plan(text: bytes) -> Plan:
    """The plan in these bytes; `LedgerCorrupt` unless they are exactly its encoding."""
    corrupt = LedgerCorrupt(private="a stored plan does not have its canonical form")
    try:
        plan = _plan(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise corrupt from None
    if canonical.encode(plan) != text:
        raise corrupt
    return plan


def _plan(word: object) -> Plan:
    fields = _fields(word, "Plan")
    return Plan(
        study_hash=_text(fields["study_hash"]),
        query=_query(fields["query"]),
        mechanism=Mechanism(_tagged(fields["mechanism"], "enum")),
        scales=tuple(Fraction(_tagged(scale, "fraction")) for scale in _items(fields["scales"])),
        participants=tuple(_text(name) for name in _items(fields["participants"])),
        nonce=_text(fields["nonce"]),
    )


def _query(word: object) -> Query:
    fields = _fields(word, "Query")
    cohort = fields["cohort"]
    return Query(
        table=_text(fields["table"]),
        aggregates=tuple(_aggregate(item) for item in _items(fields["aggregates"])),
        cohort=None if cohort is None else _expression(cohort),
        group_by=tuple(_text(name) for name in _items(fields["group_by"])),
    )


def _aggregate(word: object) -> Aggregate:
    fields = _fields(word, "Aggregate")
    column = fields["column"]
    return Aggregate(Statistic(_tagged(fields["statistic"], "enum")), None if column is None else _text(column))


def _expression(word: object) -> Expression:
    name, fields = _word(word)
    match name:
        case "Comparison":
            operator = Operator(_tagged(fields["operator"], "enum"))
            return Comparison(_text(fields["column"]), operator, _value(fields["value"]))
        case "Within":
            return Within(_text(fields["column"]), tuple(_value(item) for item in _items(fields["values"])))
        case "Between":
            return Between(_text(fields["column"]), _value(fields["lower"]), _value(fields["upper"]))
        case "IsNull":
            return IsNull(_text(fields["column"]))
        case "Not":
            return Not(_expression(fields["term"]))
        case "And":
            return And(tuple(_expression(item) for item in _items(fields["terms"])))
        case "Or":
            return Or(tuple(_expression(item) for item in _items(fields["terms"])))
    raise ValueError(name)


def _value(word: object) -> Value:
    match word:
        case bool() | int() | str():
            return word
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"date": str(text)}:
            return datetime.date.fromisoformat(text)
    raise TypeError(type(word).__name__)


def _word(word: object) -> tuple[str, Mapping[str, object]]:
    match word:
        case {"word": str(name), "fields": dict(fields)}:
            return name, fields
    raise TypeError(type(word).__name__)


def _fields(word: object, name: str) -> Mapping[str, object]:
    found, fields = _word(word)
    if found != name:
        raise ValueError(found)
    return fields


def _tagged(word: object, tag: str) -> str:
    match word:
        case {**only} if list(only) == [tag]:
            return _text(only[tag])
    raise TypeError(type(word).__name__)


def _text(word: object) -> str:
    if not isinstance(word, str):
        raise TypeError(type(word).__name__)
    return word


def _items(word: object) -> list[object]:
    if not isinstance(word, list):
        raise TypeError(type(word).__name__)
    return word
