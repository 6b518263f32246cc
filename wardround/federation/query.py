"""A question in wardround's own words, before anything about noise is decided.

How an answer is shown (names, order, how many lines) is no part of it: equal questions stay one plan and
are paid for once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.expressions import Expression

MAX_AGGREGATES = 32
MAX_GROUP_COLUMNS = 4
MAX_COLUMNS = 12
"""How many columns one aggregate may look at."""

MAX_BINS = 4096
MAX_EDGES = 1024
MAX_KEYS = 10_000
"""How many keys of an open category a question may list, and a site may release."""


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

    column: str
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One statistic of one column, or of several.

    A count without a column counts events; a count of the unit key counts patients. `others` are the
    further columns: predictors beside the outcome, an event beside its time. `level` is a quantile's level,
    or the value a share lies below; `bins` is the number of a histogram's or a survival curve's intervals.
    """

    statistic: Statistic
    column: str | None = None
    others: tuple[str, ...] = ()
    level: float | None = None
    bins: int | None = None
    clips: tuple[Clip, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column it looks at, the first one first; none for a count of events."""
        return self.others if self.column is None else (self.column, *self.others)


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

    column: str
    by: GroupBy = GroupBy.VALUE
    edges: tuple[float, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Aggregates of a table over a cohort, whole or per group with a public key."""

    table: str
    aggregates: tuple[Aggregate, ...]
    cohort: Expression | None = None
    group_by: tuple[Grouping, ...] = ()
