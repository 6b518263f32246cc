"""A question in wardround's own words, before anything about noise is decided."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.expressions import Expression

MAX_AGGREGATES = 32
MAX_GROUP_COLUMNS = 4


class Statistic(StrEnum):
    """What is computed; the names a site's policy lists."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One statistic of one column.

    A count without a column counts events; a count of the unit key counts patients.
    """

    statistic: Statistic
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Aggregates of a table over a cohort, whole or per group of public categories."""

    table: str
    aggregates: tuple[Aggregate, ...]
    cohort: Expression | None = None
    group_by: tuple[str, ...] = ()
