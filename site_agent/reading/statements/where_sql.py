"""The cohort in SQL: its own three-valued logic over typed columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from sqlglot import exp

from site_agent.reading.statements.dialect import RowDialect
from site_agent.reading.statements.sql_trees import is_null, joined, paren, ref
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.study.study import Value

_COMPARISONS: Mapping[Operator, Callable[..., exp.Expression]] = {
    Operator.EQUAL: exp.EQ,
    Operator.UNEQUAL: exp.NEQ,
    Operator.LESS: exp.LT,
    Operator.LESS_OR_EQUAL: exp.LTE,
    Operator.GREATER: exp.GT,
    Operator.GREATER_OR_EQUAL: exp.GTE,
}


def column_name(name: str) -> str:
    """How typed rows call a column of the study; never the name of anything else in the statement."""
    return f"c_{name}"


def condition(term: Expression, dialect: RowDialect) -> exp.Expression:
    """The rows that `term` selects; every level in brackets of its own."""
    within = functools.partial(condition, dialect=dialect)
    match term:
        case Comparison(name, operator, value):
            return _compared(name, _COMPARISONS[operator], value, dialect)
        case Between(name, lower, upper):
            at_least = _compared(name, exp.GTE, lower, dialect)
            return paren(exp.And(this=at_least, expression=_compared(name, exp.LTE, upper, dialect)))
        case Within(name, values):
            return joined(exp.Or, (_among(name, same, dialect) for same in _by_type(values)))
        case IsNull(name):
            return paren(is_null(ref(column_name(name))))
        case Not(inner):
            return paren(exp.Not(this=within(inner)))
        case And(terms):
            return joined(exp.And, map(within, terms))
        case Or(terms):
            return joined(exp.Or, map(within, terms))


def _compared(
    name: str, comparison: Callable[..., exp.Expression], value: Value, dialect: RowDialect
) -> exp.Expression:
    column = dialect.compared(ref(column_name(name)), value)
    return paren(comparison(this=column, expression=dialect.literal(value)))


def _among(name: str, values: tuple[Value, ...], dialect: RowDialect) -> exp.Expression:
    column = dialect.compared(ref(column_name(name)), values[0])
    return paren(exp.In(this=column, expressions=[dialect.literal(value) for value in values]))


def _by_type(values: tuple[Value, ...]) -> list[tuple[Value, ...]]:
    types = dict.fromkeys(type(value) for value in values)
    return [tuple(value for value in values if type(value) is kind) for kind in types]
