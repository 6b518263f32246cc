"""A query as text that a person can read: what a steward approves and what a history shows."""

from __future__ import annotations

import datetime

from wardround.federation.expressions import And, Between, Comparison, Expression, IsNull, Not, Or, Value, Within
from wardround.federation.query import Aggregate, Query, Statistic


def query_text(query: Query) -> str:
    """The query in the SQL the analyst could have written."""
    columns = [*query.group_by, *(aggregate_text(aggregate) for aggregate in query.aggregates)]
    text = f"SELECT {', '.join(columns)} FROM {query.table}"  # noqa: S608 -- read by people, never by a database
    if query.cohort is not None:
        text += f" WHERE {_term(query.cohort)}"
    if query.group_by:
        text += f" GROUP BY {', '.join(query.group_by)}"
    return text


def aggregate_text(aggregate: Aggregate) -> str:
    """One aggregate in SQL's words."""
    match aggregate.statistic:
        case Statistic.COUNT:
            return "COUNT(*)" if aggregate.column is None else f"COUNT(DISTINCT {aggregate.column})"
        case Statistic.SUM:
            return f"SUM({aggregate.column})"
        case Statistic.MEAN:
            return f"AVG({aggregate.column})"


def _term(term: Expression) -> str:
    match term:
        case Comparison(column, operator, value):
            return f"{column} {operator.value} {_literal(value)}"
        case Within(column, values):
            return f"{column} IN ({', '.join(_literal(value) for value in values)})"
        case Between(column, lower, upper):
            return f"{column} BETWEEN {_literal(lower)} AND {_literal(upper)}"
        case IsNull(column):
            return f"{column} IS NULL"
        case Not(inner):
            return f"NOT ({_term(inner)})"
        case And(terms):
            return " AND ".join(f"({_term(inner)})" for inner in terms)
        case Or(terms):
            return " OR ".join(f"({_term(inner)})" for inner in terms)


def _literal(value: Value) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return repr(value)
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
