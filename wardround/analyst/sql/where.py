"""A WHERE condition, read into the cohort's tree of terms.

The tree means exactly what SQL means, absent values included. Chains of AND and of OR become one term, and
a comparison always has its column on the left, so that questions which differ only in writing are equal.
"""

from __future__ import annotations

import datetime
import math
import re

from sqlglot import exp

from wardround.analyst.sql.offered_words import condition_words, name_words, quoted
from wardround.analyst.sql.terms import NAMES, OF_A_ROW, QuestionTable, column_name, describe, shown, unwrapped
from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import MAX_TEXT
from wardround.federation.plan.sql_text import literal_text
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
from wardround.federation.study.study import ColumnType, Value, parse_date

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
_COMPARED = "{aged} >= {years}"
_AGGREGATE = "an aggregate cannot stand in a condition on rows; put it into HAVING, or compare a column with a value."
_TODAY = ("NOW", "TODAY", "GETDATE", "SYSDATE")
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
            return Comparison(_flag(inner, source), Operator.EQUAL, value=True)
        case _:
            raise _unsupported(inner, source)


def _flag(column: exp.Column, source: QuestionTable) -> str:
    """The boolean column that stands alone as a condition."""
    name = column_name(column, source)
    known = next((each for each in (source.known.columns if source.known else ()) if each.name == name), None)
    if known is not None and known.type is not ColumnType.BOOLEAN:
        raise QueryMistaken(f"{name!r} alone is no condition; compare it, as in {condition_words(known)}.")
    return name


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
                "double quotes mark a column; write the value in single quotes, as in "
                f"{_with_value(left, right, source)}."
            )
        case ((exp.LT() | exp.LTE()), _) if (both := _chained(tree)) is not None:
            raise QueryMistaken(f"a comparison has two sides; write {both}.")
        case exp.Column(), exp.Column():
            raise _two_columns(left, right, source)
        case exp.Column(this=exp.Identifier()), _:
            return Comparison(column_name(left, source), operator, _value(right, left, source))
        case _, exp.Column(this=exp.Identifier()):
            return Comparison(column_name(right, source), MIRRORED[operator], _value(left, right, source))
        case _:
            for side in (left, right):
                if not _is_value(side):
                    raise _unsupported(side, source)
            raise QueryMistaken(
                f"a comparison needs a column; compare a column with a value, as in {source.say(_COMPARED)}."
            )


def _chained(tree: exp.Expr) -> str | None:
    """`40 <= age < 65` as SQL writes it; None for anything else."""
    inner = tree.this
    if not isinstance(tree, exp.LT | exp.LTE) or not isinstance(inner, exp.LT | exp.LTE):
        return None
    low, column, high = inner.this, inner.args["expression"], tree.args["expression"]
    if not (isinstance(low, exp.Literal) and isinstance(column, exp.Column) and isinstance(high, exp.Literal)):
        return None
    signs = [OPERATORS[type(each)].value for each in (inner, tree)]
    name = shown(column.name)
    return f"{shown(low.name)} {signs[0]} {name} AND {name} {signs[1]} {shown(high.name)}"


def _column(tree: exp.Expr, source: QuestionTable, *, before: str) -> str:
    match unwrapped(tree):
        case exp.Column(this=exp.Identifier()) as column:
            return column_name(column, source)
        case other if _is_value(other):
            raise QueryMistaken(f"{before} needs a column before it, not {describe(other)}.")
        case other:
            raise _unsupported(other, source)


def _within(tree: exp.In, source: QuestionTable) -> Within:
    for key, found in tree.args.items():
        if found and key not in ("this", "expressions"):
            raise QueryMistaken(
                f"IN takes a list of values, such as {_in_words(tree.this, source)}; subqueries are not supported."
            )
    name = _column(tree.this, source, before="IN")
    if not tree.expressions:
        raise QueryMistaken(f"{name} IN () selects nothing; give at least one value.")
    if len(tree.expressions) > MAX_VALUES:
        raise QueryMistaken(f"IN takes at most {MAX_VALUES} values.")
    return Within(name, tuple(_value(unwrapped(each), unwrapped(tree.this), source) for each in tree.expressions))


def _between(tree: exp.Between, source: QuestionTable) -> Between:
    if tree.args.get("symmetric") is not None:
        raise QueryMistaken("BETWEEN SYMMETRIC is not supported; write the smaller value first.")
    name = _column(tree.this, source, before="BETWEEN")
    low, high = (_value(unwrapped(tree.args[end]), unwrapped(tree.this), source) for end in ("low", "high"))
    return Between(name, low, high)


def _is(tree: exp.Is, source: QuestionTable) -> IsNull:
    name = _column(tree.this, source, before="IS")
    match unwrapped(tree.args["expression"]):
        case exp.Null():
            return IsNull(name)
        case exp.Boolean() as truth:
            raise QueryMistaken(
                f"IS {describe(truth)} is not supported; write {name_words(name)} = TRUE or {name_words(name)} = FALSE."
            )
        case other:
            wanted = f"; write {_with_value(tree.this, other, source)}" if source.study is not None else ""
            if isinstance(tree.parent, exp.Not):
                wanted = wanted.replace(" = ", " <> ")
            raise QueryMistaken(f"IS takes NULL or NOT NULL, not {describe(other)}{wanted}.")


def _is_value(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal | exp.Boolean | exp.Null | exp.Neg | exp.Cast)


def _with_value(column: exp.Expr, value: exp.Expr, source: QuestionTable) -> str:
    """A condition that compares the column with a value, as near as can be to the one that was written."""
    name, table = unwrapped(column).name, source.known
    found = None if table is None else next((each for each in table.columns if each.name == name), None)
    if found is None:
        return f"{shown(name)} = {quoted(shown(value.name))}"
    return condition_words(found, value.name)


def _in_words(column: exp.Expr, source: QuestionTable) -> str:
    """IN with values of the column, or any."""
    name = unwrapped(column).name
    found = next((each for each in (source.known.columns if source.known else ()) if each.name == name), None)
    if found is None:
        return "IN ('E11', 'I10')"
    if found.type in (ColumnType.CATEGORY, ColumnType.BOOLEAN, ColumnType.DATE):
        values = [literal_text(value) for value in found.domain[:2]] or [condition_words(found).rpartition("= ")[2]]
        return f"{name_words(name)} IN ({', '.join(values)})"
    return f"{name_words(name)} {source.say('IN ({low}, {high})', unwrapped(column))}"


def _two_columns(left: exp.Expr, right: exp.Expr, source: QuestionTable) -> QueryMistaken:
    """A word without quotes on one side: a value if the study has no such column."""
    columns = {each.name: each for each in source.known.columns} if source.known else {}
    for column, value in ((left, right), (right, left)):
        if column.name in columns and value.name not in columns:
            text = columns[column.name].type is ColumnType.CATEGORY
            why = ", and texts take single quotes" if text else " and no value"
            return QueryMistaken(
                f"{shown(value.name)!r} is no column of {source.table!r}{why}; "
                f"write {_with_value(column, value, source)}."
            )
    if isinstance(left, exp.Column) and columns and left.name not in columns:
        column_name(left, source)
    such = f", as in {_with_value(left, right, source)}" if source.known else "; texts take single quotes"
    return QueryMistaken(
        f"comparing {shown(left.name)!r} with {shown(right.name)!r} is not supported; "
        f"compare a column with a value{such}."
    )


def _value(tree: exp.Expr, column: exp.Expr, source: QuestionTable) -> Value:
    """The value that a column is compared with."""
    match tree:
        case exp.Boolean():
            return bool(tree.this)
        case exp.Null():
            name = name_words(column.name) if source.known else ""
            ways = " or ".join(f"{name} {way}".strip() for way in ("IS NULL", "IS NOT NULL"))
            raise QueryMistaken(f"a comparison with NULL selects nothing; use {ways}.")
        case exp.Literal(is_string=True):
            return _text(tree.name)
        case exp.Literal() | exp.Neg():
            return number(tree)
        case exp.Cast(this=exp.Literal(is_string=True) as text) if _is_date(tree):
            if (day := parse_date(text.name)) is None:
                raise QueryMistaken(f"{shown(text.name)!r} is not a date; write one as {source.say('{day}', column)}.")
            return day
        case exp.Cast():
            raise QueryMistaken(
                f"only dates are written with a type; use a number, a 'text' or {source.say('{day}', column)}."
            )
        case exp.Column():
            if source.known:
                raise _two_columns(column, tree, source)
            raise QueryMistaken(f"{shown(tree.name)!r} is a column where a value is needed; texts take single quotes.")
        case exp.Sub() if (day := _subtracted_date(tree)) is not None:
            raise QueryMistaken(f"a date stands in quotes; write {literal_text(day)}.")
        case exp.Tuple(expressions=[exp.Literal(), *_]):
            raise QueryMistaken(f"a list of values is compared with IN; write {_in_words(column, source)}.")
        case _:
            raise _unsupported(tree, source)


def _subtracted_date(tree: exp.Expr) -> datetime.date | None:
    """2025-03-01 without quotes is a subtraction to SQL."""
    match tree:
        case exp.Sub(this=exp.Sub(this=exp.Literal() as year, expression=exp.Literal() as month)):
            return parse_date(f"{year.name}-{month.name:0>2}-{tree.args['expression'].name:0>2}")
        case _:
            return None


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
        raise _unsupported(tree, QuestionTable("", ""))
    found: int | float = math.inf
    if _INTEGER.fullmatch(tree.name):
        found = sign * int(tree.name)
    elif _DECIMAL.fullmatch(tree.name):
        found = sign * float(tree.name)
    if not abs(found) <= MAX_INTEGER:
        raise QueryMistaken(f"the number {shown(tree.name)} is too large or not a number.")
    return found


def _unsupported(tree: exp.Expr, source: QuestionTable) -> QueryMistaken:
    match tree:
        case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.SimilarTo() | exp.Glob():
            listed = _in_words(tree.this, source) if source.known else "IN"
            return QueryMistaken(f"matching a pattern of text is not supported; list the values with {listed}.")
        case exp.AggFunc() | exp.WithinGroup():
            return QueryMistaken(_AGGREGATE)
        case exp.Anonymous() if tree.name.upper() in NAMES and tree.name.upper() not in OF_A_ROW:
            return QueryMistaken(_AGGREGATE)
        case exp.Subquery() | exp.Query() | exp.SubqueryPredicate():
            return QueryMistaken("a subquery in WHERE is not supported; list the values with IN.")
        case exp.And() | exp.Or() | exp.Not() | exp.Predicate() if not isinstance(
            tree, exp.NullSafeEQ | exp.NullSafeNEQ
        ):
            return QueryMistaken("a condition cannot be compared in its turn; compare a column with a value.")
        case exp.Date() | exp.TsOrDsToDate():
            return QueryMistaken(f"a date is written as {source.say('{day}')}, without parentheses.")
        case _ if tree.find(exp.CurrentDate, exp.CurrentTimestamp) or tree.name.upper() in _TODAY:
            return QueryMistaken(f"today's date is not known to a question; write it out, as {source.say('{day}')}.")
        case exp.Literal() if source.known and tree.parent and (column := tree.parent.find(exp.Column)) is not None:
            return QueryMistaken(f"{describe(tree)} is no condition by itself; write {_in_words(column, source)}.")
        case _:
            if source.known and (column := tree.find(exp.Column)) is not None:
                way = f"compare the column itself, as in {_with_value(column, exp.Null(), source)}."
                return QueryMistaken(f"{describe(tree)} is not supported in WHERE; {way}")
            return QueryMistaken(f"{describe(tree)} is not supported in WHERE; {_WORKS}")
