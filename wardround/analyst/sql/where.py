"""A WHERE condition, read into the cohort's tree of terms.

The tree means exactly what SQL means, absent values included. Chains of AND and of OR become one term, and
a comparison always has its column on the left, so that questions which differ only in writing are equal.
"""

from __future__ import annotations

import math
import re

from sqlglot import exp

from wardround.analyst.sql.terms import NAMES, OF_A_ROW, QuestionTable, column_name, describe, shown, unwrapped
from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import MAX_TEXT
from wardround.federation.question.cohort import (
    MAX_DEPTH,
    MAX_TERMS,
    MAX_VALUES,
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Within,
    leaves,
)
from wardround.federation.question.typed_cohort import MAX_INTEGER
from wardround.federation.study.study import Value, parse_date

OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: Operator.EQUAL,
    exp.NEQ: Operator.UNEQUAL,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
}
MIRRORED = {
    Operator.EQUAL: Operator.EQUAL,
    Operator.UNEQUAL: Operator.UNEQUAL,
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}
_INTEGER = re.compile(r"[0-9]{1,400}")
_DECIMAL = re.compile(r"(?=\.?[0-9])[0-9]{0,400}\.?[0-9]{0,400}([eE][+-]?[0-9]{1,4})?")
_WORKS = "use =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR and NOT."


def cohort(tree: exp.Expr, source: QuestionTable) -> Expression:
    """The cohort that a condition selects, or `QueryMistaken` in one sentence."""
    expression = _term(tree, source, level=1)
    if sum(1 for _ in leaves(expression)) > MAX_TERMS:
        raise QueryMistaken(f"a condition has at most {MAX_TERMS} terms; use IN for lists of values.")
    return expression


def _term(tree: exp.Expr, source: QuestionTable, *, level: int) -> Expression:
    if level > MAX_DEPTH:
        raise QueryMistaken(f"a condition is nested at most {MAX_DEPTH} deep; write it flatter.")
    inner = unwrapped(tree)
    match inner:
        case exp.And():
            return And(tuple(_term(each, source, level=level + 1) for each in chain(inner, exp.And)))
        case exp.Or():
            return Or(tuple(_term(each, source, level=level + 1) for each in chain(inner, exp.Or)))
        case exp.Not():
            return Not(_term(inner.this, source, level=level + 1))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _comparison(inner, source)
        case exp.In():
            return _within(inner, source)
        case exp.Between():
            return _between(inner, source)
        case exp.Is():
            return _is(inner, source)
        case exp.Column(this=exp.Identifier()):
            return Comparison(column_name(inner, source), Operator.EQUAL, value=True)
        case _:
            raise _unsupported(inner)


def chain(tree: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The terms that one operator joins, left to right, however they were grouped."""
    terms: list[exp.Expr] = []
    stack = [tree]
    while stack:
        term = unwrapped(stack.pop())
        if isinstance(term, kind):
            stack.extend((term.args["expression"], term.this))
        else:
            terms.append(term)
    return terms


def _comparison(tree: exp.Expr, source: QuestionTable) -> Comparison:
    operator = OPERATORS[type(tree)]
    left, right = unwrapped(tree.this), unwrapped(tree.args["expression"])
    match left, right:
        case exp.Column(this=exp.Identifier()), exp.Column(this=exp.Identifier(quoted=True)):
            raise QueryMistaken(
                f"double quotes mark a column; write the value in single quotes, as in {shown(left.name)} = "
                f"'{shown(right.name)}'."
            )
        case exp.Column(), exp.Column():
            raise QueryMistaken(
                f"comparing {shown(left.name)!r} with {shown(right.name)!r} is not supported; "
                "compare a column with a value."
            )
        case exp.Column(this=exp.Identifier()), _:
            return Comparison(column_name(left, source), operator, _value(right))
        case _, exp.Column(this=exp.Identifier()):
            return Comparison(column_name(right, source), MIRRORED[operator], _value(left))
        case _:
            for side in (left, right):
                if not _is_value(side):
                    raise _unsupported(side)
            raise QueryMistaken("a comparison needs a column; compare a column with a value, as in age >= 40.")


def _column(tree: exp.Expr, source: QuestionTable, *, before: str) -> str:
    match unwrapped(tree):
        case exp.Column(this=exp.Identifier()) as column:
            return column_name(column, source)
        case other if _is_value(other):
            raise QueryMistaken(f"{before} needs a column before it, not {describe(other)}.")
        case other:
            raise _unsupported(other)


def _within(tree: exp.In, source: QuestionTable) -> Within:
    for key, found in tree.args.items():
        if found and key not in ("this", "expressions"):
            raise QueryMistaken("IN takes a list of values, such as IN ('E11', 'I10'); subqueries are not supported.")
    name = _column(tree.this, source, before="IN")
    if not tree.expressions:
        raise QueryMistaken(f"{name} IN () selects nothing; give at least one value.")
    if len(tree.expressions) > MAX_VALUES:
        raise QueryMistaken(f"IN takes at most {MAX_VALUES} values.")
    return Within(name, tuple(_value(unwrapped(each)) for each in tree.expressions))


def _between(tree: exp.Between, source: QuestionTable) -> Between:
    if tree.args.get("symmetric") is not None:
        raise QueryMistaken("BETWEEN SYMMETRIC is not supported; write the smaller value first.")
    name = _column(tree.this, source, before="BETWEEN")
    return Between(name, _value(unwrapped(tree.args["low"])), _value(unwrapped(tree.args["high"])))


def _is(tree: exp.Is, source: QuestionTable) -> IsNull:
    name = _column(tree.this, source, before="IS")
    match unwrapped(tree.args["expression"]):
        case exp.Null():
            return IsNull(name)
        case exp.Boolean() as truth:
            raise QueryMistaken(f"IS {describe(truth)} is not supported; write {name} = {describe(truth)}.")
        case other:
            raise QueryMistaken(f"IS takes NULL or NOT NULL, not {describe(other)}.")


def _is_value(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal | exp.Boolean | exp.Null | exp.Neg | exp.Cast)


def _value(tree: exp.Expr) -> Value:
    match tree:
        case exp.Boolean():
            return bool(tree.this)
        case exp.Null():
            raise QueryMistaken("a comparison with NULL selects nothing; use IS NULL or IS NOT NULL.")
        case exp.Literal(is_string=True):
            return _text(tree.name)
        case exp.Literal() | exp.Neg():
            return number(tree)
        case exp.Cast(this=exp.Literal(is_string=True) as text) if _is_date(tree):
            if (day := parse_date(text.name)) is None:
                raise QueryMistaken(f"{shown(text.name)!r} is not a date; write one as DATE '2026-01-31'.")
            return day
        case exp.Cast():
            raise QueryMistaken("only dates are written with a type; use a number, a 'text' or DATE '2026-01-31'.")
        case exp.Column():
            raise QueryMistaken(f"{shown(tree.name)!r} is a column where a value is needed; texts take single quotes.")
        case _:
            raise _unsupported(tree)


def _is_date(cast: exp.Cast) -> bool:
    return cast.to.is_type("date") and not any(found for key, found in cast.args.items() if key not in ("this", "to"))


def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise QueryMistaken(f"a text value has at most {MAX_TEXT} characters.")
    return text


def number(tree: exp.Expr) -> int | float:
    """The number that is written, with its sign; whole numbers stay whole."""
    sign = 1
    while isinstance(tree, exp.Neg):
        sign, tree = -sign, unwrapped(tree.this)
    if not isinstance(tree, exp.Literal) or tree.is_string:
        raise _unsupported(tree)
    found: int | float = math.inf
    if _INTEGER.fullmatch(tree.name):
        found = sign * int(tree.name)
    elif _DECIMAL.fullmatch(tree.name):
        found = sign * float(tree.name)
    if not abs(found) <= MAX_INTEGER:
        raise QueryMistaken(f"the number {shown(tree.name)} is too large or not a number.")
    return found


def _unsupported(tree: exp.Expr) -> QueryMistaken:
    match tree:
        case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.SimilarTo() | exp.Glob():
            return QueryMistaken("matching a pattern of text is not supported; list the values with IN.")
        case exp.AggFunc() | exp.WithinGroup():
            return QueryMistaken("an aggregate cannot stand in a condition on rows; compare a column with a value.")
        case exp.Anonymous() if tree.name.upper() in NAMES and tree.name.upper() not in OF_A_ROW:
            return QueryMistaken("an aggregate cannot stand in a condition on rows; compare a column with a value.")
        case exp.Subquery() | exp.Query() | exp.SubqueryPredicate():
            return QueryMistaken("a subquery in WHERE is not supported; list the values with IN.")
        case exp.And() | exp.Or() | exp.Not() | exp.Predicate() if not isinstance(
            tree, exp.NullSafeEQ | exp.NullSafeNEQ
        ):
            return QueryMistaken("a condition cannot be compared in its turn; compare a column with a value.")
        case exp.Date() | exp.TsOrDsToDate():
            return QueryMistaken("a date is written as DATE '2026-01-31', without parentheses.")
        case exp.CurrentDate() | exp.CurrentTimestamp():
            return QueryMistaken("today's date is not known to a question; write it out, as DATE '2026-01-31'.")
        case _:
            return QueryMistaken(f"{describe(tree)} is not supported in WHERE; {_WORKS}")
