"""Which aggregate of a question an estimate belongs to, in answers from before estimates said so themselves.

Such an answer says the statistic and the column, and that is enough unless a question asks for the same statistic of
the same column twice, within other bounds or beside other columns. Then the order decides: estimates come aggregate by
aggregate, as the question lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from wardround.federation.forms.definition import Number
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Query
from wardround.federation.statistics import find


def places_of(estimates: Sequence[Estimate], query: Query) -> tuple[int | None, ...]:
    """For each estimate the place of its aggregate: as it says itself, or where none does, as it must be."""
    if all(estimate.place is None for estimate in estimates):
        return owners(estimates, query)
    asked = range(len(query.aggregates))
    return tuple(estimate.place if estimate.place in asked else None for estimate in estimates)


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
        if find(aggregate.statistic).number is Number.BINS:
            return self.numbers[estimate.group] >= (aggregate.bins or 0)
        return (estimate.column, estimate.group, estimate.term) in self.keys


def _fits(aggregate: Aggregate, estimate: Estimate) -> bool:
    if aggregate.statistic.value != estimate.statistic:
        return False
    definition = find(aggregate.statistic)
    if definition.pairs:
        # A pair begins with any of the columns.
        return {estimate.column, estimate.term} <= set(aggregate.columns)
    of_level = definition.number is not Number.LEVEL or estimate.term in ("", f"{aggregate.level:.12g}")
    return aggregate.column == estimate.column and of_level
