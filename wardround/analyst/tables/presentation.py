"""How an answer is shown: names, labels, HAVING, ORDER BY and LIMIT, over numbers that were already released.

Nothing here is part of a question. A view is applied on the analyst's side after the noise, so it costs
nothing, and the same question shown otherwise is the same plan.

Answers from before estimates said which aggregate they belong to name the statistic and the column. That is enough
unless a question asks for the same statistic of the same column twice; then the order decides: estimates come
aggregate by aggregate, as the question lists them.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wardround.federation.forms.definition import Number
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.answer import Estimate
from wardround.federation.question.cohort import Operator
from wardround.federation.question.query import Aggregate, GroupBy, Query, Statistic, interval_names
from wardround.federation.statistics import find
from wardround.federation.study.study import Value

Group = tuple[tuple[str, Value], ...]

_HOLDS: dict[Operator, Callable[[float, float], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


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


@dataclass(frozen=True, slots=True)
class Compared:
    """The released number of an aggregate (by its place in the question) against a number."""

    aggregate: int
    operator: Operator
    number: float


@dataclass(frozen=True, slots=True)
class Every:
    """Every condition holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Some condition holds."""

    conditions: tuple[Condition, ...]


Condition = Compared | Every | Some


@dataclass(frozen=True, slots=True)
class Ordering:
    """By an aggregate (its place in the question) or by a group column (its name)."""

    by: int | str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a question wants its answer shown; an empty view shows everything as it came.

    `names` are the aliases of the aggregates in their order, empty where there is none; `renamed` those of
    group columns; `labels` what CASE calls the intervals of a column, from below.
    """

    names: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    having: Condition | None = None
    order: tuple[Ordering, ...] = ()
    limit: int | None = None

    @property
    def chooses(self) -> bool:
        """Whether it leaves groups out or puts them into another order."""
        return self.having is not None or bool(self.order) or self.limit is not None


@dataclass(frozen=True, slots=True)
class BoundQuestion:
    """A question, and how its answer is to be shown."""

    query: Query
    view: Presentation = field(default_factory=Presentation)


@dataclass(frozen=True, slots=True)
class ShownLine:
    """One estimate as it is shown: under which label, and the alias it was given, if any.

    `place` is that of its aggregate in the question. `group` is its group as it was released: a question may call two
    intervals the same.
    """

    label: str
    name: str
    estimate: Estimate
    place: int | None = None
    group: Group = ()

    @property
    def further(self) -> str:
        """Which number beside that of its row it is, such as `at risk`, if any."""
        return find(Statistic(self.estimate.statistic)).terms.parted(self.estimate.term)[1]


@dataclass(frozen=True, slots=True)
class Gap:
    """By how much the last group shown is ahead of the first one that is not."""

    value: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines of an answer, how many groups the view left out, and the gap at the cut of a top-k."""

    lines: tuple[ShownLine, ...]
    left_out: int = 0
    gap: Gap | None = None


def shown(estimates: Sequence[Estimate], asked: BoundQuestion | None) -> Shown:
    """The estimates as the view wants them; without a question, as they came."""
    if asked is None:
        return Shown(tuple(_as_it_came(each) for each in estimates))
    places = places_of(estimates, asked.query)
    whole = _Whole(asked, tuple(estimates), places)
    if not asked.view.chooses:
        return Shown(tuple(whole.line(number) for number in range(len(estimates))))
    order = whole.ordered()
    limit = len(order) if asked.view.limit is None else asked.view.limit
    ranks = {group: rank for rank, group in enumerate(order[:limit])}
    # Group by group: a line of a table in the order that was asked for.
    chosen = sorted(
        (number for number, each in enumerate(estimates) if each.group in ranks),
        key=lambda number: ranks[estimates[number].group],
    )
    groups = len({each.group for each in estimates})
    return Shown(tuple(whole.line(number) for number in chosen), groups - len(ranks), whole.gap(order, limit))


def _as_it_came(estimate: Estimate) -> ShownLine:
    return ShownLine(statistic_label(estimate.statistic, estimate.column), "", estimate, None, estimate.group)


@dataclass(frozen=True, slots=True)
class _Whole:
    """All estimates, each with the place of its aggregate in the question, or None."""

    asked: BoundQuestion
    estimates: tuple[Estimate, ...]
    places: tuple[int | None, ...]

    def line(self, number: int) -> ShownLine:
        query, view = self.asked.query, self.asked.view
        estimate, place = self.estimates[number], self.places[number]
        name = view.names[place] if place is not None and place < len(view.names) else ""
        label = (
            statistic_label(estimate.statistic, estimate.column)
            if place is None
            else label_text(query.aggregates[place])
        )
        return ShownLine(name or label, name, _relabelled(estimate, self.asked), place, estimate.group)

    def numbers(self) -> dict[Group, dict[int, Estimate]]:
        """For each group, in the order of the answer, the estimate of each aggregate."""
        found: dict[Group, dict[int, Estimate]] = {}
        for estimate, place in zip(self.estimates, self.places, strict=True):
            cells = found.setdefault(estimate.group, {})
            if place is not None:
                cells.setdefault(place, estimate)
        return found

    def ordered(self) -> list[Group]:
        """The groups that pass HAVING, in the order asked for."""
        numbers, view = self.numbers(), self.asked.view
        groups = [group for group, cells in numbers.items() if view.having is None or _holds(view.having, cells)]
        for ordering in reversed(view.order):
            groups.sort(key=self._key(ordering, numbers), reverse=ordering.descending)
        return groups

    def gap(self, order: Sequence[Group], limit: int) -> Gap | None:
        """Between the last group shown and the next, when they are ordered by a number."""
        first = next(iter(self.asked.view.order), None)
        if first is None or not isinstance(first.by, int) or not 0 < limit < len(order):
            return None
        numbers = self.numbers()
        last, following = (numbers[group].get(first.by) for group in (order[limit - 1], order[limit]))
        if last is None or following is None or last.value is None or following.value is None:
            return None
        # Groups have noise of their own, so the errors add up in squares.
        error = math.hypot(last.standard_error or 0.0, following.standard_error or 0.0)
        return Gap(abs(last.value - following.value), error)

    def _key(
        self, ordering: Ordering, numbers: dict[Group, dict[int, Estimate]]
    ) -> Callable[[Group], tuple[float, str]]:
        if isinstance(ordering.by, int):
            place = ordering.by
            # Groups without an estimate stand last, whichever way the others are ordered.
            last = -math.inf if ordering.descending else math.inf
            return lambda group: (_known(numbers[group].get(place), otherwise=last), "")
        column = ordering.by
        intervals = next((each.edges for each in self.asked.query.group_by if each.column == column), ())
        ranks = {name: float(rank) for rank, name in enumerate(interval_names(intervals))}
        return lambda group: _rank(dict(group).get(column, ""), ranks)


def _known(estimate: Estimate | None, *, otherwise: float) -> float:
    return otherwise if estimate is None or estimate.value is None else estimate.value


def _rank(value: Value, ranks: dict[str, float]) -> tuple[float, str]:
    match value:
        case str():
            return ranks.get(value, 0.0), "" if value in ranks else value
        case bool() | int() | float():
            return float(value), ""
        case _:
            return 0.0, value.isoformat()


def _holds(condition: Condition, cells: dict[int, Estimate]) -> bool:
    match condition:
        case Compared(place, compare, number):
            # Nothing is true of a number that is not known, not even that it is unequal.
            value = cells[place].value if place in cells else None
            return value is not None and _HOLDS[compare](value, number)
        case Every(conditions):
            return all(_holds(each, cells) for each in conditions)
        case Some(conditions):
            return any(_holds(each, cells) for each in conditions)


def _relabelled(estimate: Estimate, asked: BoundQuestion) -> Estimate:
    """The estimate with the question's own names for group columns and intervals."""
    if not (asked.view.renamed or asked.view.labels):
        return estimate
    renamed, labels = dict(asked.view.renamed), dict(asked.view.labels)
    intervals = {each.column: each.edges for each in asked.query.group_by if each.by is GroupBy.BINS}

    def label(column: str, value: Value) -> Value:
        if column not in labels or column not in intervals:
            return value
        return dict(zip(interval_names(intervals[column]), labels[column], strict=False)).get(str(value), value)

    group = tuple((renamed.get(column, column), label(column, value)) for column, value in estimate.group)
    return dataclasses.replace(estimate, group=group)


def statistic_label(statistic: str, column: str | None) -> str:
    """What a reader sees over a number of which nothing is known but its statistic and its column."""
    definition = find(Statistic(statistic))
    return definition.label_of_column(column, definition.functions[0].name)
