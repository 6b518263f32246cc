"""The cohort: which rows a question is about, as a typed tree that is total on every row.

A term compares one declared column with public values. It follows SQL's logic: a comparison with an
absent value selects nothing. No term can raise, whatever a row holds, because an error
message could reveal something about a patient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from wardround.federation.limits import MAX_TEXT, Many, Member, Text
from wardround.federation.study.study import Value

MAX_TERMS = 256
MAX_DEPTH = 32
MAX_VALUES = 1024

ColumnName = Annotated[str, Text("the name of a table or column", longest=MAX_TEXT, plain=True)]
"""Whether the study declares it is for `typed` to say."""


class Operator(StrEnum):
    """How a column is compared with one value."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column operator value`."""

    column: ColumnName
    operator: Annotated[Operator, Member("an operator")]
    value: Value


@dataclass(frozen=True, slots=True)
class Within:
    """`column IN (values)`."""

    column: ColumnName
    values: Annotated[tuple[Value, ...], Many("a list of values is empty or too long.", MAX_VALUES, least=1)]


@dataclass(frozen=True, slots=True)
class Between:
    """`column BETWEEN lower AND upper`, both included."""

    column: ColumnName
    lower: Value
    upper: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`: absent, unparsable or not finite."""

    column: ColumnName


@dataclass(frozen=True, slots=True)
class Not:
    """The rows that `term` rejects; rows on which it is undecided stay out."""

    term: Expression


@dataclass(frozen=True, slots=True)
class And:
    """The rows that every term selects."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The rows that some term selects."""

    terms: tuple[Expression, ...]


Leaf = Comparison | Within | Between | IsNull
Expression = Leaf | Not | And | Or


def leaves(expression: Expression) -> Iterator[Leaf]:
    """Every leaf of the tree, left to right."""
    stack: list[Expression] = [expression]
    while stack:
        match stack.pop():
            case Not(term):
                stack.append(term)
            case And(terms) | Or(terms):
                stack.extend(reversed(terms))
            case leaf:
                yield leaf


def depth(expression: Expression) -> int:
    """How deep the tree is; a single leaf has depth one."""
    deepest = 0
    stack: list[tuple[Expression, int]] = [(expression, 1)]
    while stack:
        term, level = stack.pop()
        deepest = max(deepest, level)
        match term:
            case Not(inner):
                stack.append((inner, level + 1))
            case And(terms) | Or(terms):
                stack.extend((inner, level + 1) for inner in terms)
            case _:
                pass
    return deepest


def leaf_values(leaf: Leaf) -> tuple[Value, ...]:
    """The public values a leaf compares with."""
    match leaf:
        case Comparison(_, _, value):
            return (value,)
        case Within(_, values):
            return values
        case Between(_, lower, upper):
            return (lower, upper)
        case IsNull():
            return ()
