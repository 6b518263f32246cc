"""A group column as SQL writes it: a column, the months of a date, or the intervals that CASE or WIDTH_BUCKET makes.

A CASE is read for what it does: the real line is cut where its conditions change, and every piece gets the label of
the first condition that holds there. What the pieces are called is shown and never asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from wardround.analyst.sql.terms import QuestionTable, column_name, describe, shown, unwrapped
from wardround.analyst.sql.where import cohort, number
from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import MAX_TEXT
from wardround.federation.question.cohort import And, Between, Comparison, Expression, Operator
from wardround.federation.question.query import MAX_EDGES, GroupBy, Grouping, interval_names
from wardround.federation.study.study import Value

_CASE = (
    "CASE makes intervals of one column with <, <=, >, >=, BETWEEN and AND, "
    "as in CASE WHEN {aged} < {years} THEN 'young' ELSE 'old' END."
)
_BUCKETS = "WIDTH_BUCKET is written as WIDTH_BUCKET({number}, {least}, {most}, 10)."
_MONTHS = "use DATE_TRUNC('month', {date}), a series by month."
_BUCKET_OPERANDS = 4
_DATE_PARTS = (
    "DATE_PART",
    "DAY",
    "EXTRACT",
    "FORMAT_DATE",
    "MONTH",
    "QUARTER",
    "STRFTIME",
    "TIME_BUCKET",
    "TO_CHAR",
    "TRUNC",
    "WEEK",
    "YEAR",
)


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """A group column, and what the question calls its intervals, from below; nothing where they keep their names."""

    grouping: Grouping
    labels: tuple[str, ...] = ()


def group(item: exp.Expr, source: QuestionTable) -> ReadGroup | None:
    """The group column that an item names; None when it is something else."""
    match item:
        case exp.Column(this=exp.Identifier()):
            return ReadGroup(Grouping(column_name(item, source)))
        case exp.DateTrunc():
            return ReadGroup(_months(item, source))
        case exp.Case():
            return _case(item, source)
        case exp.Anonymous() if item.name.upper() == "WIDTH_BUCKET":
            return ReadGroup(_buckets(item.expressions, source))
        case exp.If():
            raise QueryMistaken(f"IF is not supported; {source.say(_CASE, item)}")
        case exp.Round():
            raise QueryMistaken(
                "ROUND is not supported; leave it out: answers are shown with the digits that their error supports."
            )
        case exp.Floor() | exp.Ceil():
            buckets = source.say("use WIDTH_BUCKET({number}, {least}, {most}, 10) or CASE.", item)
            raise QueryMistaken(f"{item.sql_name()} is not supported; {buckets}")
        case exp.Func() if _function(item) in _DATE_PARTS:
            raise QueryMistaken(f"{_function(item)} is not supported; {source.say(_MONTHS, item)}")
        case _:
            return None


def _function(item: exp.Func) -> str:
    return item.name.upper() if isinstance(item, exp.Anonymous) else item.sql_name()


def _months(item: exp.DateTrunc, source: QuestionTable) -> Grouping:
    unit = item.args.get("unit")
    if not isinstance(unit, exp.Expr) or unit.name.upper() != "MONTH" or item.args.get("zone"):
        raise QueryMistaken(f"this form of DATE_TRUNC is not supported; {source.say(_MONTHS, item)}")
    match unwrapped(item.this):
        case exp.Column(this=exp.Identifier()) as column:
            return Grouping(column_name(column, source), GroupBy.MONTH)
        case other:
            raise QueryMistaken(
                f"DATE_TRUNC takes a date column of the study, not {describe(other)}; {source.say(_MONTHS, item)}"
            )


def _buckets(operands: Sequence[exp.Expr], source: QuestionTable) -> Grouping:
    if len(operands) != _BUCKET_OPERANDS:
        raise QueryMistaken(source.say(_BUCKETS, *operands))
    column, *numbers = (unwrapped(operand) for operand in operands)
    if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
        raise QueryMistaken(source.say(_BUCKETS, *operands))
    if any(not isinstance(each, exp.Literal | exp.Neg) or each.is_string for each in numbers):
        raise QueryMistaken(source.say(_BUCKETS, *operands))
    low, high, count = (number(each) for each in numbers)
    if not low < high or isinstance(count, float) or not 1 <= count < MAX_EDGES:
        raise QueryMistaken(
            f"WIDTH_BUCKET needs a smaller number, a larger one and 1 to {MAX_EDGES - 1} intervals between them, as in "
            + source.say("WIDTH_BUCKET({number}, {least}, {most}, 10).", *operands)
        )
    # In fractions, so that equal intervals have equal edges however they were written.
    first, width = Fraction(repr(low)), (Fraction(repr(high)) - Fraction(repr(low))) / count
    edges = tuple(float(first + place * width) for place in range(count + 1))
    return Grouping(column_name(column, source), GroupBy.BINS, edges)


def _case(item: exp.Case, source: QuestionTable) -> ReadGroup:
    form = source.say(_CASE, item)
    if item.this is not None:
        raise QueryMistaken(f"CASE column WHEN value is not supported; {form}")
    default = item.args.get("default")
    otherwise = None if default is None else _label(default)
    column = ""
    pieces: list[_Piece] = []
    for branch in item.args["ifs"]:
        condition = cohort(branch.this, source)
        name, low, high = _interval(condition, form)
        if column not in ("", name):
            raise QueryMistaken(f"this CASE compares both {column!r} and {name!r}; {form}")
        column = name
        pieces.append(_Piece(low, high, _label(branch.args["true"])))
    edges, labels = _cut(pieces, otherwise)
    plain = labels == interval_names(edges)
    return ReadGroup(Grouping(column, GroupBy.BINS, edges), () if plain else labels)


@dataclass(frozen=True, slots=True)
class _Piece:
    """[low, high) and its label."""

    low: float
    high: float
    label: str


def _cut(pieces: Sequence[_Piece], otherwise: str | None) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The edges at which the label changes, and the labels between them."""
    cuts = sorted({end for piece in pieces for end in (piece.low, piece.high) if math.isfinite(end)})
    if len(cuts) > MAX_EDGES:
        raise QueryMistaken(f"CASE makes at most {MAX_EDGES + 1} intervals.")
    ends = [-math.inf, *cuts, math.inf]
    edges: list[float] = []
    labels: list[str] = []
    for low, high in itertools.pairwise(ends):
        label = next((piece.label for piece in pieces if piece.low <= low and high <= piece.high), otherwise)
        if label is None:
            raise QueryMistaken("some values have no label in this CASE; add ELSE with a label for them.")
        if labels and labels[-1] == label:
            continue
        labels.append(label)
        edges.append(low)
    unused = next((piece.label for piece in pieces if piece.label not in labels), None)
    if unused is not None:
        raise QueryMistaken(f"the CASE never comes to {shown(unused)!r}; an earlier WHEN holds wherever that one does.")
    if len(labels) == 1:
        raise QueryMistaken("this CASE gives every value the same label; leave it out, or give each interval its own.")
    return tuple(edges[1:]), tuple(labels)


def _interval(condition: Expression, form: str) -> tuple[str, float, float]:
    """The column of a condition, and the half-open interval in which it holds."""
    match condition:
        case Comparison(name, Operator.LESS, value):
            return name, -math.inf, _edge(value)
        case Comparison(name, Operator.LESS_OR_EQUAL, value):
            return name, -math.inf, _above(value)
        case Comparison(name, Operator.GREATER, value):
            return name, _above(value), math.inf
        case Comparison(name, Operator.GREATER_OR_EQUAL, value):
            return name, _edge(value), math.inf
        case Between(name, lower, upper):
            return name, _edge(lower), _above(upper)
        case And(terms):
            found = [_interval(term, form) for term in terms]
            if len({name for name, _, _ in found}) == 1:
                return found[0][0], max(low for _, low, _ in found), min(high for _, _, high in found)
        case _:
            pass
    raise QueryMistaken(form)


def _edge(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryMistaken(f"CASE compares with numbers, not with {shown(str(value))!r}.")
    return float(value)


def _above(value: Value) -> float:
    """The next number there is: x <= v is x < the number after v."""
    return math.nextafter(_edge(value), math.inf)


def _label(tree: exp.Expr) -> str:
    match unwrapped(tree):
        case exp.Literal() as literal if 0 < len(literal.name) <= MAX_TEXT:
            return literal.name
        case other:
            raise QueryMistaken(f"a label of CASE is a text of 1 to {MAX_TEXT} characters, not {describe(other)}.")
