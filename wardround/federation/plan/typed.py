"""A query checked against the study, with every literal brought to its column's type.

Every side does this once and carries the `Typed` on: the coordinator so that a mistake costs nothing, the site so that
nothing the study does not describe ever reaches its tables. Equal questions become equal words here, and therefore
one plan id. Every mistake is one sentence before anything is charged.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.definition import ORDERED, Number, no_keys
from wardround.federation.forms.grids import LEVELS
from wardround.federation.forms.parts import exact_number
from wardround.federation.limits import MAX_AGGREGATES, MAX_TEXT
from wardround.federation.question.query import (
    MAX_BINS,
    MAX_EDGES,
    MAX_GROUP_COLUMNS,
    MAX_KEYS,
    MAX_MONTHS,
    Aggregate,
    Clip,
    GroupBy,
    Grouping,
    Query,
    domain,
    month_range,
)
from wardround.federation.question.typed_cohort import typed_cohort
from wardround.federation.statistics import find
from wardround.federation.study.study import Column, ColumnType, Study, Table


def typed_aggregate(aggregate: Aggregate, table: Table) -> Aggregate:
    """The same aggregate with numbers in one form, or `QueryMistaken`."""
    word, definition = aggregate.statistic.value, find(aggregate.statistic)
    least, most = definition.columns
    if not least <= len(aggregate.columns) <= most or len(set(aggregate.columns)) != len(aggregate.columns):
        wanted = {(0, 1): "no column or one", (1, 1): "a column", (2, 2): "two different columns"}
        raise QueryMistaken(f"a {word} needs {wanted.get((least, most), f'{least} to {most} different columns')}.")
    if (aggregate.level is not None) != (definition.number is Number.LEVEL):
        raise QueryMistaken(f"a {word} {'needs a' if aggregate.level is None else 'takes no'} level.")
    if aggregate.bins is not None and definition.number not in (Number.BINS, Number.BINS_IF_ANY):
        raise QueryMistaken(f"a {word} takes no number of intervals.")
    definition.check(aggregate, table)
    return dataclasses.replace(
        aggregate,
        level=None if aggregate.level is None else float(aggregate.level),
        bins=_typed_bins(aggregate, definition.number),
        clips=_typed_clips(aggregate, table),
    )


def typed_groups(group_by: tuple[Grouping, ...], table: Table) -> tuple[Grouping, ...]:
    """The same groups with their edges as numbers and their keys in order, or `QueryMistaken`."""
    if len(group_by) > MAX_GROUP_COLUMNS or len({grouping.column for grouping in group_by}) != len(group_by):
        raise QueryMistaken(f"GROUP BY takes at most {MAX_GROUP_COLUMNS} different columns.")
    found = tuple(_typed_group(grouping, table) for grouping in group_by)
    for grouping in found:
        if not domain(grouping, table):
            raise no_keys(grouping, table)
    return found


def _typed_bins(aggregate: Aggregate, number: Number) -> int | None:
    if aggregate.bins is None and number is not Number.BINS:
        return None
    bins = aggregate.bins
    if bins is None or isinstance(bins, bool) or not 1 <= bins <= MAX_BINS:
        raise QueryMistaken(f"a {aggregate.statistic.value} takes 1 to {MAX_BINS} intervals, such as 20.")
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
        if column.type not in ORDERED or bounds is None:
            raise QueryMistaken(f"{clip.column!r} has no bounds in the study that could be narrowed.")
        if not (math.isfinite(clip.lower) and math.isfinite(clip.upper) and clip.lower < clip.upper):
            raise QueryMistaken(
                f"the narrower bounds of {clip.column!r} must be two finite numbers, the smaller one first."
            )
        lower, upper = exact_number(clip.lower), exact_number(clip.upper)
        if lower < bounds[0] or upper > bounds[1]:
            raise QueryMistaken(
                f"{clip.lower:g} to {clip.upper:g} is wider than the study's bounds {float(bounds[0]):g} to "
                f"{float(bounds[1]):g} for {clip.column!r}; bounds can be narrowed, never widened."
            )
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
                dates = [each.name for each in table.columns if each.type is ColumnType.DATE]
                known = f", such as {dates[0]}" if dates else ""
                raise QueryMistaken(
                    f"{column.name!r} is of type {column.type.value}; months need a date column{known}."
                )
            if not 1 <= month_range(column)[1] <= MAX_MONTHS:
                raise QueryMistaken(
                    f"a series by month needs the first and last day of {column.name!r}, at most {MAX_MONTHS} months "
                    "apart; the consortium must add lower and upper to the study."
                )
            return grouping
        case GroupBy.BINS:
            return Grouping(grouping.column, GroupBy.BINS, edges=_typed_edges(grouping, column))


def _typed_edges(grouping: Grouping, column: Column) -> tuple[float, ...]:
    if column.type not in ORDERED:
        raise QueryMistaken(f"{column.name!r} is of type {column.type.value}; intervals need numbers.")
    edges = tuple(float(edge) for edge in grouping.edges)
    rising = all(math.isfinite(edge) for edge in edges) and list(edges) == sorted(set(edges))
    if not rising or not 1 <= len(edges) <= MAX_EDGES:
        raise QueryMistaken(f"the edges of intervals are 1 to {MAX_EDGES} finite numbers in rising order.")
    return tuple(edge + 0.0 for edge in edges)


@dataclass(frozen=True, slots=True)
class Typed:
    """A query with typed literals, and the table that it asks; made by `type_query`."""

    query: Query
    table: Table


def type_query(query: Query, study: Study) -> Typed:
    """The query checked against the study, or `QueryMistaken` in one sentence."""
    return Typed(typed(query, study), study.table(query.table))


def typed(query: Query, study: Study) -> Query:
    """The same query with typed literals, or `QueryMistaken` in one sentence."""
    table = study.table(query.table)
    if not 1 <= len(query.aggregates) <= MAX_AGGREGATES:
        raise QueryMistaken(
            f"a question asks for 1 to {MAX_AGGREGATES} aggregates; this one asks for {len(query.aggregates)}."
        )
    aggregates = tuple(typed_aggregate(aggregate, table) for aggregate in query.aggregates)
    if len(set(aggregates)) != len(aggregates):
        raise QueryMistaken("a question names each aggregate once; remove the repeated one.")
    asked = [find(each.statistic) for each in aggregates]
    alone = next((definition for definition in asked if definition.alone), None)
    if alone is not None and (len(aggregates) > 1 or query.group_by):
        word = alone.functions[0].name
        raise QueryMistaken(f"{word} is a question of its own; ask it without other aggregates and without GROUP BY.")
    groups = typed_groups(query.group_by, table)
    cohort = None if query.cohort is None else typed_cohort(query.cohort, table)
    return Query(query.table, aggregates, cohort, groups)
