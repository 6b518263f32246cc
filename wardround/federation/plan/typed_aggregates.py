"""Aggregates and groups checked against the study: every mistake is one sentence before anything is charged."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.grids import LEVELS
from wardround.federation.question.cohort import MAX_TEXT
from wardround.federation.question.grouping import MAX_MONTHS, domain, month_range
from wardround.federation.question.query import (
    MAX_BINS,
    MAX_COLUMNS,
    MAX_EDGES,
    MAX_GROUP_COLUMNS,
    MAX_KEYS,
    Aggregate,
    Clip,
    GroupBy,
    Grouping,
    Statistic,
)
from wardround.federation.study.study import Column, ColumnType, Table

ALONE = (Statistic.CHOICE, Statistic.KEYS, Statistic.CHI_SQUARE)
"""Statistics that are tables of their own and take neither company nor groups."""

LOWEST_LEVEL, HIGHEST_LEVEL = 0.001, 0.999
_NUMERIC = (ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.BOOLEAN)
_ORDERED = (ColumnType.INTEGER, ColumnType.NUMBER)
_WITH_BINS = (Statistic.HISTOGRAM, Statistic.SURVIVAL)
_WITH_LEVEL = (Statistic.QUANTILE, Statistic.BELOW)
_MANY = {Statistic.CHI_SQUARE: (2, 2), Statistic.SURVIVAL: (2, 2)} | dict.fromkeys(
    (Statistic.CORRELATION, Statistic.REGRESSION), (2, MAX_COLUMNS)
)


def typed_aggregate(aggregate: Aggregate, table: Table) -> Aggregate:
    """The same aggregate with numbers in one form, or `QueryMistaken`."""
    word = aggregate.statistic.value
    least, most = _MANY.get(aggregate.statistic, (1, 1))
    if aggregate.statistic is Statistic.COUNT:
        least = 0
    if not least <= len(aggregate.columns) <= most or len(set(aggregate.columns)) != len(aggregate.columns):
        wanted = {(0, 1): "no column or one", (1, 1): "a column", (2, 2): "two different columns"}
        raise QueryMistaken(f"a {word} needs {wanted.get((least, most), f'{least} to {most} different columns')}.")
    if (aggregate.level is not None) != (aggregate.statistic in _WITH_LEVEL):
        raise QueryMistaken(f"a {word} {'needs a' if aggregate.level is None else 'takes no'} level.")
    if aggregate.bins is not None and aggregate.statistic not in _WITH_BINS:
        raise QueryMistaken(f"a {word} takes no number of intervals.")
    _check_columns(aggregate, table)
    return dataclasses.replace(
        aggregate,
        level=_typed_level(aggregate, table),
        bins=_typed_bins(aggregate),
        clips=_typed_clips(aggregate, table),
    )


def narrowed(column: Column, aggregate: Aggregate) -> Column:
    """The column within the narrower bounds that the aggregate names for it, if it does."""
    for clip in aggregate.clips:
        if clip.column == column.name:
            return dataclasses.replace(column, lower=_exact(clip.lower), upper=_exact(clip.upper))
    return column


def typed_groups(group_by: tuple[Grouping, ...], table: Table) -> tuple[Grouping, ...]:
    """The same groups with their edges as numbers and their keys in order, or `QueryMistaken`."""
    if len(group_by) > MAX_GROUP_COLUMNS or len({grouping.column for grouping in group_by}) != len(group_by):
        raise QueryMistaken(f"GROUP BY takes at most {MAX_GROUP_COLUMNS} different columns.")
    found = tuple(_typed_group(grouping, table) for grouping in group_by)
    for grouping in found:
        if not domain(grouping, table):
            raise _no_keys(grouping, table)
    return found


def _check_columns(aggregate: Aggregate, table: Table) -> None:
    match aggregate.statistic:
        case Statistic.COUNT:
            if aggregate.column not in (None, table.unit_key):
                msg = (
                    f"only {table.unit_key!r} can be counted as COUNT(DISTINCT …), not {aggregate.column!r}; "
                    f"to see which values it has, ask COUNT(*) with GROUP BY {aggregate.column}."
                )
                raise QueryMistaken(msg)
        case Statistic.KEYS:
            if not table.column(aggregate.column or "").open:
                raise QueryMistaken(f"the values of {aggregate.column!r} are public; group by it instead.")
        case Statistic.CHOICE | Statistic.CHI_SQUARE:
            _check_public(aggregate, table)
        case Statistic.SURVIVAL:
            _check_number(aggregate, table.column(aggregate.column or ""), _ORDERED)
            event = table.column(aggregate.others[0])
            if event.type is not ColumnType.BOOLEAN:
                raise QueryMistaken(f"{event.name!r} says whether the event happened; it must be a boolean column.")
        case Statistic.HISTOGRAM | Statistic.QUANTILE | Statistic.BELOW:
            _check_number(aggregate, table.column(aggregate.column or ""), _ORDERED)
        case _:
            for name in aggregate.columns:
                _check_number(aggregate, table.column(name), _NUMERIC)


def _check_public(aggregate: Aggregate, table: Table) -> None:
    for name in aggregate.columns:
        if table.column(name).open:
            raise QueryMistaken(
                f"the values of {name!r} are not public; ask COUNT(DISTINCT {table.unit_key}) with GROUP BY {name}."
            )
        if not table.column(name).domain:
            raise _no_keys(Grouping(name), table)


def _check_number(aggregate: Aggregate, column: Column, types: tuple[ColumnType, ...]) -> None:
    word = aggregate.statistic.value
    if column.type not in types:
        what = "the time of a survival curve" if aggregate.statistic is Statistic.SURVIVAL else f"a {word}"
        raise QueryMistaken(f"{column.name!r} is of type {column.type.value}; {what} needs numbers.")
    if column.numeric_bounds is None:
        msg = (
            f"the study declares no bounds for {column.name!r}, so a {word} of it cannot be "
            "private; the consortium must add lower and upper to the study."
        )
        raise QueryMistaken(msg)


def _typed_level(aggregate: Aggregate, table: Table) -> float | None:
    level = aggregate.level
    if level is None:
        return None
    if isinstance(level, bool) or not math.isfinite(level):
        raise QueryMistaken(f"the level of a {aggregate.statistic.value} must be a finite number.")
    if aggregate.statistic is Statistic.QUANTILE:
        if not LOWEST_LEVEL <= level <= HIGHEST_LEVEL:
            msg = (
                f"a quantile's level must be from {LOWEST_LEVEL} to {HIGHEST_LEVEL}, not {level:g}: "
                "the smallest and the largest value are one patient's own."
            )
            raise QueryMistaken(msg)
    else:
        lower, upper = narrowed(table.column(aggregate.column or ""), aggregate).numeric_bounds or (0, 0)
        if not lower <= _exact(level) <= upper:
            msg = f"{level:g} is outside the bounds {float(lower):g} to {float(upper):g} of {aggregate.column!r}."
            raise QueryMistaken(msg)
    return float(level)


def _typed_bins(aggregate: Aggregate) -> int | None:
    if aggregate.bins is None and aggregate.statistic is not Statistic.HISTOGRAM:
        return None
    bins = aggregate.bins
    if bins is None or isinstance(bins, bool) or not 1 <= bins <= MAX_BINS:
        raise QueryMistaken(f"a {aggregate.statistic.value} takes 1 to {MAX_BINS} intervals.")
    return bins


def _typed_clips(aggregate: Aggregate, table: Table) -> tuple[Clip, ...]:
    """Sorted, and without those that say what the study says."""
    names = [clip.column for clip in aggregate.clips]
    if len(set(names)) != len(names) or not set(names) <= set(aggregate.columns):
        raise QueryMistaken("narrower bounds are given once for a column, and only for columns of the aggregate.")
    found: list[Clip] = []
    for clip in sorted(aggregate.clips, key=lambda each: each.column):
        column = table.column(clip.column)
        bounds = column.numeric_bounds
        if column.type not in _ORDERED or bounds is None:
            raise QueryMistaken(f"{clip.column!r} has no bounds in the study that could be narrowed.")
        if not (math.isfinite(clip.lower) and math.isfinite(clip.upper) and clip.lower < clip.upper):
            raise QueryMistaken(f"the narrower bounds of {clip.column!r} must be two finite numbers in rising order.")
        lower, upper = _exact(clip.lower), _exact(clip.upper)
        if lower < bounds[0] or upper > bounds[1]:
            msg = (
                f"{clip.lower:g} to {clip.upper:g} is wider than the study's bounds {float(bounds[0]):g} to "
                f"{float(bounds[1]):g} for {clip.column!r}; bounds can be narrowed, never widened."
            )
            raise QueryMistaken(msg)
        if (upper - lower) * LEVELS < bounds[1] - bounds[0]:
            raise QueryMistaken(f"the narrower bounds of {clip.column!r} are too close together.")
        if (lower, upper) != bounds:
            found.append(Clip(clip.column, float(clip.lower), float(clip.upper)))
    return tuple(found)


def _typed_group(grouping: Grouping, table: Table) -> Grouping:
    column = table.column(grouping.column)
    if grouping.keys and not (column.open and grouping.by is GroupBy.VALUE):
        raise QueryMistaken(f"the values of {column.name!r} are public and cannot be listed again.")
    if grouping.edges and grouping.by is not GroupBy.BINS:
        raise QueryMistaken(f"edges make intervals of numbers; {column.name!r} is not grouped by intervals.")
    match grouping.by:
        case GroupBy.VALUE:
            keys = grouping.keys
            if len(keys) > MAX_KEYS or any(not 0 < len(key) <= MAX_TEXT for key in keys):
                raise QueryMistaken(f"at most {MAX_KEYS} keys of at most {MAX_TEXT} characters can be listed.")
            return Grouping(grouping.column, keys=tuple(sorted(set(keys))))
        case GroupBy.MONTH:
            if column.type is not ColumnType.DATE:
                raise QueryMistaken(f"{column.name!r} is a {column.type.value} column; months need a date column.")
            if not 1 <= month_range(column)[1] <= MAX_MONTHS:
                msg = (
                    f"a series by month needs the first and last day of {column.name!r}, at most {MAX_MONTHS} months "
                    "apart; the consortium must add lower and upper to the study."
                )
                raise QueryMistaken(msg)
            return grouping
        case GroupBy.BINS:
            return Grouping(grouping.column, GroupBy.BINS, edges=_typed_edges(grouping, column))


def _typed_edges(grouping: Grouping, column: Column) -> tuple[float, ...]:
    if column.type not in _ORDERED:
        raise QueryMistaken(f"{column.name!r} is a {column.type.value} column; intervals need numbers.")
    edges = tuple(float(edge) for edge in grouping.edges)
    rising = all(math.isfinite(edge) for edge in edges) and list(edges) == sorted(set(edges))
    if not rising or not 1 <= len(edges) <= MAX_EDGES:
        raise QueryMistaken(f"the edges of intervals are 1 to {MAX_EDGES} finite numbers in rising order.")
    return tuple(edge + 0.0 for edge in edges)


def _no_keys(grouping: Grouping, table: Table) -> QueryMistaken:
    if table.column(grouping.column).open:
        return QueryMistaken(
            f"the values of {grouping.column!r} are not public; list keys for it, or let them be selected first."
        )
    known = [column.name for column in table.columns if column.domain]
    return QueryMistaken(
        f"{grouping.column!r} has no public list of values to group by; "
        f"columns that have one: {', '.join(known) or 'none'}."
    )


def _exact(number: float) -> Fraction:
    return Fraction(repr(number))
