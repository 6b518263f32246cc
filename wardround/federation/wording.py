"""Queries and studies as text that a person can read: what a steward approves and what a hospital signs."""

from __future__ import annotations

import datetime

from wardround.federation.expressions import And, Between, Comparison, Expression, IsNull, Not, Or, Value, Within
from wardround.federation.query import Aggregate, Query, Statistic
from wardround.federation.study import Column, Study

_SHOWN_VALUES = 8


def query_text(query: Query) -> str:
    """The query in the SQL the analyst could have written."""
    columns = [*query.group_by, *(aggregate_text(aggregate) for aggregate in query.aggregates)]
    text = f"SELECT {', '.join(columns)} FROM {query.table}"  # noqa: S608 -- read by people, never by a database
    if query.cohort is not None:
        text += f" WHERE {_term(query.cohort)}"
    if query.group_by:
        text += f" GROUP BY {', '.join(query.group_by)}"
    return text


def study_text(study: Study) -> str:
    """The study as a hospital should read it before signing: the bounds are what protects a patient."""
    overlap = "at every site" if study.overlap is None else f"at no more than {study.overlap} {_sites(study.overlap)}"
    lines = [
        f"Study {study.name!r} (hash {study.study_hash})",
        f"  protects one {study.unit.value}, known {overlap}",
        f"  budget: ε = {study.cap.epsilon:g} at δ = {study.cap.delta:g}"
        + (f", of it ε = {study.cap.pure_epsilon:g} for Laplace noise" if study.cap.pure_epsilon else "")
        + f"; answers need {study.min_sites} {_sites(study.min_sites)}",
    ]
    lines.extend(
        f"  except at {', '.join(group.sites)}: there at no more than {group.overlap} {_sites(group.overlap)}"
        for group in study.groups
    )
    for table in study.tables:
        lines.append(
            f"  table {table.name}: unit key {table.unit_key}, at most {table.max_rows_per_unit} rows "
            f"and {table.max_groups_per_unit} groups for each"
        )
        lines.extend(f"    {column.name}: {_column_text(column)}" for column in table.columns)
    return "\n".join(lines)


def _column_text(column: Column) -> str:
    text = column.type.value
    if column.lower is not None and column.upper is not None:
        text += f" from {float(column.lower):.12g} to {float(column.upper):.12g}"
    if column.step is not None and column.step != 1:
        text += f" in steps of {float(column.step):.12g}"
    if column.values:
        more = len(column.values) - _SHOWN_VALUES
        text += f", one of {', '.join(column.values[:_SHOWN_VALUES])}" + (f" and {more} more" if more > 0 else "")
    if column.default is not None:
        text += f"; absent counts as {_literal(column.default)}"
    return text


def _sites(number: int) -> str:
    return "site" if number == 1 else "sites"


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
