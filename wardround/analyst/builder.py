"""A question built in Python, step by step, with the same abilities as the SQL.

Every step returns a new draft, so a draft can be kept and asked in several ways.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from wardround.federation.expressions import And, Expression
from wardround.federation.query import Aggregate, Grouping, Query, Statistic


@dataclass(frozen=True, slots=True)
class Draft:
    """A query in the making; `Client.ask` takes it as it is."""

    query: Query

    def where(self, *conditions: str | Expression) -> Draft:
        """Only rows that satisfy every condition: SQL text such as `age >= 40`, or an expression."""
        terms = [_expression(condition) for condition in conditions]
        if self.query.cohort is not None:
            terms.insert(0, self.query.cohort)
        # As in SQL, a chain of AND is one term, however it was written.
        flat = tuple(inner for term in terms for inner in (term.terms if isinstance(term, And) else (term,)))
        if not flat:
            return self
        return Draft(dataclasses.replace(self.query, cohort=And(flat) if len(flat) > 1 else flat[0]))

    def group_by(self, *columns: str | Grouping) -> Draft:
        """One answer for each public value of these columns, or for each group of a `Grouping`."""
        found = tuple(Grouping(column) if isinstance(column, str) else column for column in columns)
        return Draft(dataclasses.replace(self.query, group_by=self.query.group_by + found))

    def count(self, *, distinct: str | None = None) -> Draft:
        """Count events; with `distinct` the study's unit key, count patients."""
        return self._add(Aggregate(Statistic.COUNT, distinct))

    def sum(self, column: str) -> Draft:
        """Add up a column."""
        return self._add(Aggregate(Statistic.SUM, column))

    def mean(self, column: str) -> Draft:
        """The mean of a column: of the patients' own means."""
        return self._add(Aggregate(Statistic.MEAN, column))

    def _add(self, aggregate: Aggregate) -> Draft:
        return Draft(dataclasses.replace(self.query, aggregates=(*self.query.aggregates, aggregate)))


def query(table: str) -> Draft:
    """Begin a question about a table of the study."""
    return Draft(Query(table, ()))


def _expression(condition: str | Expression) -> Expression:
    if not isinstance(condition, str):
        return condition
    # Loaded only for text: a question built from words needs no SQL reader.
    from wardround.analyst.sql import condition as read  # noqa: PLC0415

    return read(condition)
