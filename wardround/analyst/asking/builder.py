"""A question built in Python, step by step, with the same abilities as the SQL.

Every step returns a new draft, so a draft can be kept and asked in several ways.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from wardround.analyst.tables.presentation import Condition, Every, Ordering, Presentation
from wardround.federation.errors import QueryMistaken
from wardround.federation.question.cohort import And, Expression
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.strict_toml import nearest

Bounds = Mapping[str, tuple[float, float]]
"""Narrower bounds than the study's, by column."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A query in the making, and how its answer is to be shown; `Client.ask` takes it as it is."""

    query: Query
    view: Presentation = field(default_factory=Presentation)

    def where(self, *conditions: str | Expression) -> Draft:
        """Only rows that satisfy every condition: SQL text such as `age >= 40`, or an expression."""
        terms = [_expression(condition) for condition in conditions]
        if self.query.cohort is not None:
            terms.insert(0, self.query.cohort)
        # As in SQL, a chain of AND is one term, however it was written.
        flat = tuple(inner for term in terms for inner in (term.terms if isinstance(term, And) else (term,)))
        if not flat:
            return self
        return self._with(dataclasses.replace(self.query, cohort=And(flat) if len(flat) > 1 else flat[0]))

    def group_by(self, *columns: str | Grouping) -> Draft:
        """One answer for each public value of these columns, for each `month()` or for each of some `bins()`."""
        found = tuple(Grouping(column) if isinstance(column, str) else column for column in columns)
        return self._with(dataclasses.replace(self.query, group_by=self.query.group_by + found))

    def count(self, *, distinct: str | None = None) -> Draft:
        """Count events; with `distinct` the study's unit key, count patients."""
        return self.of("count", *([] if distinct is None else [distinct]))

    def sum(self, column: str, *, within: Bounds | None = None) -> Draft:
        """Add up a column."""
        return self.of("sum", column, within=within)

    def mean(self, column: str, *, within: Bounds | None = None) -> Draft:
        """The mean of a column: of the patients' own means."""
        return self.of("mean", column, within=within)

    def variance(self, column: str, *, within: Bounds | None = None) -> Draft:
        """How the patients' own means vary, in squares."""
        return self.of("variance", column, within=within)

    def std(self, column: str, *, within: Bounds | None = None) -> Draft:
        """The root of the variance."""
        return self.of("std", column, within=within)

    def median(self, column: str, *, within: Bounds | None = None) -> Draft:
        """The value that half of the patients are below."""
        return self.quantile(column, 0.5, within=within)

    def quantile(self, column: str, level: float, *, within: Bounds | None = None) -> Draft:
        """The value that a share `level` of the patients are below."""
        return self.of("quantile", column, level=float(level), within=within)

    def histogram(self, column: str, bins: int, *, within: Bounds | None = None) -> Draft:
        """How many patients are in each of `bins` intervals of equal width."""
        return self.of("histogram", column, bins=bins, within=within)

    def share_below(self, column: str, value: float, *, within: Bounds | None = None) -> Draft:
        """The share of patients at or below a value."""
        return self.of("below", column, level=float(value), within=within)

    def chi_square(self, column: str, other: str) -> Draft:
        """Whether two categories depend on each other, and the table of both."""
        return self.of("chi_square", column, other)

    def correlation(self, column: str, *others: str, within: Bounds | None = None) -> Draft:
        """The correlation of every two of the columns."""
        return self.of("correlation", column, *others, within=within)

    def regression(self, outcome: str, *predictors: str, within: Bounds | None = None) -> Draft:
        """Linear regression of the outcome on the predictors."""
        return self.of("regression", outcome, *predictors, within=within)

    def survival(self, time: str, event: str, *, bins: int | None = None, within: Bounds | None = None) -> Draft:
        """The Kaplan–Meier curve: who is left after a time, `event` telling whether it ended or was cut off."""
        return self.of("survival", time, event, bins=bins, within=within)

    def mode(self, column: str) -> Draft:
        """The most frequent value of a category."""
        return self.of("choice", column)

    def keys(self, column: str) -> Draft:
        """The values of an open category that enough patients have."""
        return self.of("keys", column)

    def of(
        self,
        statistic: str,
        *columns: str,
        level: float | None = None,
        bins: int | None = None,
        within: Bounds | None = None,
    ) -> Draft:
        """Any statistic by its word, as a site's policy lists it: also one that has no method here."""
        known = [each.value for each in Statistic]
        if statistic not in known:
            raise QueryMistaken(f"there is no statistic {statistic!r}; {nearest(statistic, known)}")
        clips = tuple(Clip(name, float(low), float(high)) for name, (low, high) in sorted((within or {}).items()))
        column, others = (columns[0], columns[1:]) if columns else (None, ())
        return self._add(Aggregate(Statistic(statistic), column, others, level, bins, clips))

    def having(self, condition: str) -> Draft:
        """Show only groups whose released numbers satisfy a condition such as `COUNT(*) > 100`."""
        from wardround.analyst.sql.read import shown_condition  # noqa: PLC0415 - an extra, loaded only for text

        found: Condition = shown_condition(condition, self.query)
        both = found if self.view.having is None else Every((self.view.having, found))
        return dataclasses.replace(self, view=dataclasses.replace(self.view, having=both))

    def order_by(self, *items: str, descending: bool = False) -> Draft:
        """Show groups in the order of aggregates or group columns, such as `COUNT(*)`."""
        from wardround.analyst.sql.read import shown_order  # noqa: PLC0415 - an extra, loaded only for text

        found = tuple(Ordering(shown_order(item, self.query), descending) for item in items)
        return dataclasses.replace(self, view=dataclasses.replace(self.view, order=self.view.order + found))

    def limit(self, groups: int) -> Draft:
        """Show only so many groups."""
        if isinstance(groups, bool) or groups < 1:
            raise QueryMistaken(f"limit takes a whole number of groups from 1 up, not {groups!r}.")
        return dataclasses.replace(self, view=dataclasses.replace(self.view, limit=groups))

    def _add(self, aggregate: Aggregate) -> Draft:
        return self._with(dataclasses.replace(self.query, aggregates=(*self.query.aggregates, aggregate)))

    def _with(self, query: Query) -> Draft:
        return dataclasses.replace(self, query=query)


def query(table: str) -> Draft:
    """Begin a question about a table of the study."""
    return Draft(Query(table, ()))


def month(column: str) -> Grouping:
    """A group for each month of a date column."""
    return Grouping(column, GroupBy.MONTH)


def bins(column: str, *edges: float) -> Grouping:
    """A group for each interval of numbers between the edges, and for what is below and above them."""
    return Grouping(column, GroupBy.BINS, tuple(float(edge) for edge in edges))


def _expression(condition: str | Expression) -> Expression:
    if not isinstance(condition, str):
        return condition
    # Loaded only for text: a question built from words needs no SQL reader.
    from wardround.analyst.sql.read import condition as read  # noqa: PLC0415

    return read(condition)
