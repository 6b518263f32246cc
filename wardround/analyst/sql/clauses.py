"""HAVING, ORDER BY and LIMIT, read into how an answer is shown.

They work on numbers that were released, so they may name only what the SELECT list asks for: anything else would be
another question with a charge of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from wardround.analyst.sql.aggregates import aggregate
from wardround.analyst.sql.groups import ReadGroup, group
from wardround.analyst.sql.terms import QuestionTable, describe, shown, unwrapped
from wardround.analyst.sql.where import MIRRORED, OPERATORS, chain, number
from wardround.analyst.tables.presentation import Compared, Condition, Every, Ordering, Some
from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.cohort import MAX_DEPTH, MAX_TERMS, Operator
from wardround.federation.question.query import Aggregate, Grouping
from wardround.federation.statistics import find

_HAVING = "HAVING compares an aggregate of the SELECT list with numbers, as in HAVING COUNT(*) > 100"
_LIMIT = "LIMIT takes a whole number of groups from 1 up, as in LIMIT 10."
_ORDER = "ORDER BY takes aggregates, group columns, aliases or positions of the SELECT list"


@dataclass(frozen=True, slots=True)
class Listed:
    """The SELECT list: aggregates by place, group columns, and the aliases of both, in the order written."""

    source: QuestionTable
    aggregates: tuple[Aggregate, ...]
    groups: tuple[ReadGroup, ...]
    positions: tuple[Aggregate | ReadGroup, ...]
    aliases: dict[str, Aggregate | ReadGroup]

    def find(self, tree: exp.Expr, *, clause: str) -> Aggregate | ReadGroup:
        """The item of the list that a later clause names."""
        inner = unwrapped(tree)
        if isinstance(inner, exp.Column) and not inner.table and inner.name in self.aliases:
            return self.aliases[inner.name]
        if isinstance(inner, exp.Column) and self.source.known and inner.name not in self.source.column_names:
            raise self._not_listed(repr(shown(inner.name)), clause)
        read = group(inner, self.source)
        if read is not None and read not in self.groups and read.grouping == Grouping(read.grouping.column):
            # The months or intervals of a column are ordered as the column is.
            read = next((each for each in self.groups if each.grouping.column == read.grouping.column), read)
        if read is None and not isinstance(inner, exp.AggFunc | exp.Anonymous | exp.WithinGroup):
            raise QueryMistaken(f"{describe(inner)} is not supported in {clause}; name what the SELECT list has.")
        found: Aggregate | ReadGroup = read if read is not None else aggregate(inner, self.source)
        if found not in self.positions:
            what = label_text(found) if isinstance(found, Aggregate) else repr(found.grouping.column)
            raise self._not_listed(what, clause)
        return found

    def _not_listed(self, what: str, clause: str) -> QueryMistaken:
        """What to say of a name that the SELECT list has not: the nearest that it has, or all of them."""
        sentence = f"{clause} names {what}, which the SELECT list does not"
        if self.source.known is None:
            return QueryMistaken(f"{sentence}; add it there.")
        named = [alias for alias, item in self.aliases.items() if clause != "HAVING" or isinstance(item, Aggregate)]
        named += [label_text(each) for each in self.aggregates if find(each.statistic).one_number]
        folded = {name.casefold(): name for name in named}
        near = difflib.get_close_matches(what.strip("'").casefold(), folded, n=1)
        if near:
            return QueryMistaken(f"{sentence}; did you mean {folded[near[0]]}?")
        return QueryMistaken(f"{sentence}; add it there, or use {' or '.join(named) or 'another clause'}.")

    def place(self, found: Aggregate, *, clause: str) -> int:
        """The place of an aggregate that has one number for each group."""
        if not find(found.statistic).one_number:
            raise QueryMistaken(f"{label_text(found)} gives several numbers, so {clause} cannot compare groups by it.")
        return self.aggregates.index(found)


def having(tree: exp.Expr, listed: Listed) -> Condition:
    """The condition on released numbers."""
    count = sum(1 for _ in tree.find_all(exp.Predicate))
    if count > MAX_TERMS:
        raise QueryMistaken(f"a condition has at most {MAX_TERMS} terms.")
    return _condition(tree, listed, level=1)


def order(clause: exp.Order, listed: Listed) -> tuple[Ordering, ...]:
    """The order of the groups, the most important first."""
    return tuple(_ordering(each, listed) for each in clause.expressions)


def ordered_by(tree: exp.Expr, listed: Listed) -> int | str:
    """The place of the aggregate, or the name of the group column, by which groups are ordered."""
    inner = unwrapped(tree)
    match inner:
        case exp.Literal(is_string=False):
            found = position(inner, listed.positions, clause="ORDER BY")
        case exp.Literal() | exp.Neg() | exp.Null() | exp.Boolean():
            raise QueryMistaken(f"{_ORDER}, not {describe(inner)}.")
        case _:
            found = listed.find(inner, clause="ORDER BY")
    return found.grouping.column if isinstance(found, ReadGroup) else listed.place(found, clause="ORDER BY")


def limit(clause: exp.Expr) -> int:
    """How many groups are shown."""
    match clause:
        case exp.Limit(expression=exp.Literal(is_string=False) as literal) if not (
            clause.expressions or clause.args.get("limit_options") or clause.args.get("offset")
        ):
            count = number(literal)
            if isinstance(count, int) and count >= 1:
                return count
        case exp.Fetch():
            raise QueryMistaken("FETCH is not supported; write LIMIT 10.")
        case _:
            pass
    raise QueryMistaken(_LIMIT)


def _condition(tree: exp.Expr, listed: Listed, *, level: int) -> Condition:
    if level > MAX_DEPTH:
        raise QueryMistaken(f"a condition is nested at most {MAX_DEPTH} deep; write it flatter.")
    inner = unwrapped(tree)
    match inner:
        case exp.And():
            return Every(tuple(_condition(each, listed, level=level + 1) for each in chain(inner, exp.And)))
        case exp.Or():
            return Some(tuple(_condition(each, listed, level=level + 1) for each in chain(inner, exp.Or)))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _compared(inner, listed)
        case exp.Between() if inner.args.get("symmetric") is None:
            place = _aggregate(inner.this, listed)
            ends = ((Operator.GREATER_OR_EQUAL, inner.args["low"]), (Operator.LESS_OR_EQUAL, inner.args["high"]))
            return Every(tuple(Compared(place, sign, _number(end)) for sign, end in ends))
        case exp.Not():
            raise QueryMistaken("NOT is not supported in HAVING; write the opposite comparison.")
        case _:
            raise QueryMistaken(f"{_HAVING}.")


def _compared(tree: exp.Expr, listed: Listed) -> Compared:
    sign = OPERATORS[type(tree)]
    left, right = unwrapped(tree.this), unwrapped(tree.args["expression"])
    if isinstance(left, exp.Literal | exp.Neg):
        left, right, sign = right, left, MIRRORED[sign]
    return Compared(_aggregate(left, listed), sign, _number(right))


def _aggregate(tree: exp.Expr, listed: Listed) -> int:
    inner = unwrapped(tree)
    if isinstance(inner, exp.Literal | exp.Neg | exp.Null | exp.Boolean):
        raise QueryMistaken(f"{_HAVING}.")
    found = listed.find(inner, clause="HAVING")
    if isinstance(found, ReadGroup):
        raise QueryMistaken(f"{found.grouping.column!r} is a group column; put its condition into WHERE.")
    return listed.place(found, clause="HAVING")


def _number(tree: exp.Expr) -> float:
    inner = unwrapped(tree)
    bare = inner
    while isinstance(bare, exp.Neg):
        bare = unwrapped(bare.this)
    if not isinstance(bare, exp.Literal) or bare.is_string:
        raise QueryMistaken(f"{_HAVING}.")
    return float(number(inner))


def _ordering(item: exp.Expr, listed: Listed) -> Ordering:
    if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
        raise QueryMistaken(f"{_ORDER}, and nothing else.")
    return Ordering(ordered_by(item.this, listed), bool(item.args.get("desc")))


def position(literal: exp.Literal, positions: Sequence[Aggregate | ReadGroup], *, clause: str) -> Aggregate | ReadGroup:
    """The item of the SELECT list at a place, counted from 1."""
    place = number(literal)
    if not isinstance(place, int) or not 1 <= place <= len(positions):
        raise QueryMistaken(f"{clause} {shown(literal.name)} names no item; the SELECT list has {len(positions)}.")
    return positions[place - 1]
