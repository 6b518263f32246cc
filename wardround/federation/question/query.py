"""A question in wardround's own words, before anything about noise is decided, and the keys of its groups.

How an answer is shown (names, order, how many lines) is no part of it: equal questions stay one plan and
are paid for once.
"""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from wardround.federation.limits import MAX_AGGREGATES, MAX_TEXT, Finite, Many, Member, Text, Whole
from wardround.federation.question.cohort import ColumnName, Expression
from wardround.federation.study.study import Column, Table, Value

MAX_GROUP_COLUMNS = 4
MAX_COLUMNS = 12
"""How many columns one aggregate may look at."""

MAX_BINS = 4096
MAX_EDGES = 1024
MAX_KEYS = 10_000
"""How many keys of an open category a question may list, and a site may release."""

MAX_CELLS = 1_000_000
"""How many groups an answer may have."""

MAX_DIMENSION = 4_000_000
"""How many numbers an answer may hold."""

MAX_MONTHS = 1200
MONTHS_A_YEAR = 12


class Statistic(StrEnum):
    """What is computed; the names a site's policy lists."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    VARIANCE = "variance"
    STD = "std"
    HISTOGRAM = "histogram"
    QUANTILE = "quantile"
    # The share of patients at or below a value; a search for a single quantile asks it again and again.
    BELOW = "below"
    CHI_SQUARE = "chi_square"
    CORRELATION = "correlation"
    REGRESSION = "regression"
    SURVIVAL = "survival"
    # The most frequent value of a category, and nothing else about it.
    CHOICE = "choice"
    # Which values an open category has, as far as they may be shown.
    KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Clip:
    """Narrower bounds than the study's for one column of an aggregate."""

    column: ColumnName
    lower: Annotated[float, Finite("a bound")]
    upper: Annotated[float, Finite("a bound")]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One statistic of one column, or of several.

    A count without a column counts events; a count of the unit key counts patients. `others` are the
    further columns: predictors beside the outcome, an event beside its time. `level` is a quantile's level,
    or the value a share lies below; `bins` is the number of a histogram's or a survival curve's intervals.
    """

    statistic: Annotated[Statistic, Member("a statistic")]
    column: ColumnName | None = None
    others: Annotated[tuple[ColumnName, ...], Many("an aggregate has too many columns.", MAX_COLUMNS - 1)] = ()
    level: Annotated[float, Finite("a level")] | None = None
    bins: Annotated[int, Whole("the number of intervals", 1, MAX_BINS)] | None = None
    clips: Annotated[tuple[Clip, ...], Many("an aggregate has too many bounds.", MAX_COLUMNS)] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column it looks at, the first one first; none for a count of events."""
        return self.others if self.column is None else (self.column, *self.others)


_Edge = Annotated[float, Finite("an edge")]
_Key = Annotated[str, Text("a key", longest=MAX_TEXT, plain=False)]


class GroupBy(StrEnum):
    """What makes the groups of a column."""

    VALUE = "value"
    MONTH = "month"
    BINS = "bins"


@dataclass(frozen=True, slots=True)
class Grouping:
    """One column of a GROUP BY: its values, the months of a date, or the intervals between `edges`.

    `edges` rise; an interval holds its lower edge and not its upper one. `keys` are the values of an
    open category that the question lists.
    """

    column: ColumnName
    by: Annotated[GroupBy, Member("a kind of group")] = GroupBy.VALUE
    edges: Annotated[tuple[_Edge, ...], Many("intervals have too many edges.", MAX_EDGES)] = ()
    keys: Annotated[tuple[_Key, ...], Many("a query lists too many keys.", MAX_KEYS)] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Aggregates of a table over a cohort, whole or per group with a public key."""

    table: ColumnName
    aggregates: Annotated[
        tuple[Aggregate, ...], Many("a query has too few or too many aggregates.", MAX_AGGREGATES, least=1)
    ]
    cohort: Expression | None = None
    group_by: Annotated[tuple[Grouping, ...], Many("a query has too many group columns.", MAX_GROUP_COLUMNS)] = ()


def domain(grouping: Grouping, table: Table) -> tuple[Value, ...]:
    """Every key in order; empty when the column has no public ones."""
    column = table.column(grouping.column)
    match grouping.by:
        case GroupBy.VALUE:
            return grouping.keys if column.open else column.domain
        case GroupBy.MONTH:
            first, months = month_range(column)
            return tuple(month_name(first + place) for place in range(months))
        case GroupBy.BINS:
            return interval_names(grouping.edges)


def month_range(column: Column) -> tuple[int, int]:
    """The number of the first month (year · 12 + month − 1), and how many there are; (0, 0) without public bounds."""
    if column.lower is None or column.upper is None:
        return 0, 0
    first, last = (month_number(datetime.date.fromordinal(int(bound))) for bound in (column.lower, column.upper))
    return first, last - first + 1


def month_number(day: datetime.date) -> int:
    """The month of a day, counted from the beginning of our era."""
    return day.year * MONTHS_A_YEAR + day.month - 1


def month_name(number: int) -> str:
    """A month as `2026-01`."""
    return f"{number // MONTHS_A_YEAR:04d}-{number % MONTHS_A_YEAR + 1:02d}"


def interval_names(edges: tuple[float, ...]) -> tuple[str, ...]:
    """`< 40`, `[40, 65)`, `>= 65`: one more than there are edges."""
    if not edges:
        return ()
    texts = [f"{edge:.15g}" for edge in edges]
    inner = [f"[{lower}, {upper})" for lower, upper in itertools.pairwise(texts)]
    return (f"< {texts[0]}", *inner, f">= {texts[-1]}")
