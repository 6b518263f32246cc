"""Which aggregate of a question an estimate belongs to.

An answer says the statistic and the column, and that is enough unless a question asks for the same statistic of
the same column twice, within other bounds or beside other columns. Then the order decides: estimates come
aggregate by aggregate, as the question lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Query, Statistic


def owners(estimates: Sequence[Estimate], query: Query) -> tuple[int | None, ...]:
    """For each estimate the place of its aggregate in the question; None where there is none."""
    found: list[int | None] = []
    current, seen = 0, _Seen()
    for estimate in estimates:
        place = current
        while place < len(query.aggregates) and (
            not _fits(query.aggregates[place], estimate)
            or (place == current and seen.ended(query.aggregates[place], estimate))
        ):
            place += 1
        if place == len(query.aggregates):
            found.append(None)
            continue
        if place != current:
            current, seen = place, _Seen()
        seen.add(estimate)
        found.append(place)
    return tuple(found)


@dataclass(slots=True)
class _Seen:
    """The estimates of the aggregate at hand."""

    keys: set[tuple[object, ...]] = field(default_factory=set)
    numbers: Counter[object] = field(default_factory=Counter)

    def add(self, estimate: Estimate) -> None:
        self.keys.add((estimate.column, estimate.group, estimate.term))
        self.numbers[estimate.group] += 1

    def ended(self, aggregate: Aggregate, estimate: Estimate) -> bool:
        """Whether this estimate is there already, or in its group as many as a histogram has intervals."""
        if aggregate.statistic is Statistic.HISTOGRAM:
            return self.numbers[estimate.group] >= (aggregate.bins or 0)
        return (estimate.column, estimate.group, estimate.term) in self.keys


def _fits(aggregate: Aggregate, estimate: Estimate) -> bool:
    if aggregate.statistic.value != estimate.statistic:
        return False
    match aggregate.statistic:
        case Statistic.CORRELATION:
            # A pair begins with any of the columns.
            return {estimate.column, estimate.term} <= set(aggregate.columns)
        case Statistic.QUANTILE | Statistic.BELOW:
            return aggregate.column == estimate.column and estimate.term in ("", f"{aggregate.level:.12g}")
        case _:
            return aggregate.column == estimate.column
