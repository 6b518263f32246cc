"""The public keys of a group column: its values, its months, or the intervals between the question's edges."""

from __future__ import annotations

import datetime
import itertools

from wardround.federation.question.query import GroupBy, Grouping
from wardround.federation.study.study import Column, Table, Value

MAX_MONTHS = 1200
MONTHS_A_YEAR = 12


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
