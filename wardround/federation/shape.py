"""The form of an answer: how many integers, on which grid, within which norms.

Sensitivity is never sent. Coordinator and site derive it here from the query and the study, so neither
can be talked into another number (PROOFS.md, "Counts, sums and means on the grid").
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from wardround.federation.errors import QueryMistaken
from wardround.federation.expressions import Value
from wardround.federation.query import Aggregate, Query, Statistic
from wardround.federation.study import Column, Study, Table, Unit
from wardround.federation.typing_rules import typed
from wardround.privacy.law import Mechanism

MAX_CELLS = 1_000_000
LEVELS = 2**32
GAUSSIAN_COUNT_GRID = Fraction(1, 64)


class PartKind(StrEnum):
    """What one part of an answer adds up."""

    EVENTS = "events"
    PATIENTS = "patients"
    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Quantiser:
    """x ↦ clamp(⌊(x − origin)·per_unit + ½⌋, low, high): the clamp is in integers, so no norm can break."""

    origin: Fraction
    per_unit: Fraction
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Part:
    """One aggregate as integers: its groups, coordinates per group, grid and norms."""

    aggregate: Aggregate
    kind: PartKind
    groups: int
    coordinates: int
    grid: Fraction
    increment: int
    quantiser: Quantiser | None
    max_groups: int
    l1_sensitivity: int
    l2_sensitivity_squared: int

    @property
    def dimension(self) -> int:
        """How many integers this part releases: group by group, coordinate by coordinate."""
        return self.groups * self.coordinates


@dataclass(frozen=True, slots=True)
class Shape:
    """The whole answer: the parts one after another."""

    query: Query
    table: Table
    unit: Unit
    group_keys: tuple[tuple[Value, ...], ...]
    parts: tuple[Part, ...]

    @property
    def dimension(self) -> int:
        """How many integers a release of this query holds."""
        return sum(part.dimension for part in self.parts)


def shape(query: Query, study: Study, mechanism: Mechanism) -> Shape:
    """The form of the answer to `query`; `QueryMistaken` when the study does not allow it."""
    exact = typed(query, study)
    table = study.table(exact.table)
    domains = [table.column(name).domain for name in exact.group_by]
    cells = math.prod(len(domain) for domain in domains)
    if cells > MAX_CELLS:
        msg = f"GROUP BY would make {cells} groups; at most {MAX_CELLS} are possible."
        raise QueryMistaken(msg)
    keys = tuple(itertools.product(*domains))
    parts = tuple(_part(aggregate, table, study.unit, len(keys), mechanism) for aggregate in exact.aggregates)
    return Shape(exact, table, study.unit, keys, parts)


def _part(aggregate: Aggregate, table: Table, unit: Unit, groups: int, mechanism: Mechanism) -> Part:
    # Under event adjacency no per-patient cap applies: one event is one row in one group.
    rows = table.max_rows_per_unit if unit is Unit.PATIENT else 1
    cells = min(table.max_groups_per_unit, groups) if unit is Unit.PATIENT else 1
    match aggregate.statistic:
        case Statistic.COUNT:
            grid = GAUSSIAN_COUNT_GRID if mechanism is Mechanism.DISCRETE_GAUSSIAN else Fraction(1)
            one = int(1 / grid)
            if aggregate.column is None:
                norm = rows * one
                return Part(aggregate, PartKind.EVENTS, groups, 1, grid, one, None, cells, norm, norm**2)
            return Part(aggregate, PartKind.PATIENTS, groups, 1, grid, one, None, cells, cells * one, cells * one**2)
        case Statistic.SUM:
            quantiser, grid = _sum_quantiser(table.column(aggregate.column or ""))
            norm = rows * max(abs(quantiser.low), abs(quantiser.high))
            return Part(aggregate, PartKind.SUM, groups, 1, grid, 1, quantiser, cells, norm, norm**2)
        case Statistic.MEAN:
            quantiser, grid = _mean_quantiser(table.column(aggregate.column or ""), rows)
            levels = quantiser.high
            return Part(
                aggregate,
                PartKind.MEAN,
                groups,
                2,
                grid,
                1,
                quantiser,
                cells,
                cells * levels,
                cells * levels**2,
            )


def _bounds(column: Column) -> tuple[Fraction, Fraction, Fraction | None]:
    bounds = column.numeric_bounds
    if bounds is None:
        msg = f"the study declares no bounds for {column.name!r}."
        raise QueryMistaken(msg)
    step = column.step if column.numeric_bounds and column.step else None
    return bounds[0], bounds[1], step if column.type.value != "boolean" else Fraction(1)


@lru_cache(maxsize=1024)
def _sum_quantiser(column: Column) -> tuple[Quantiser, Fraction]:
    """Rows on step/2^j, fine enough that rounding is far below any noise; on-step values are exact."""
    lower, upper, step = _bounds(column)
    size = max(abs(lower), abs(upper))
    per_unit = 1 / step if step else Fraction(1)
    while size * per_unit * 2 <= LEVELS:
        per_unit *= 2
    while size * per_unit > LEVELS:
        per_unit /= 2
    return Quantiser(Fraction(0), per_unit, math.ceil(lower * per_unit), math.floor(upper * per_unit)), 1 / per_unit


@lru_cache(maxsize=1024)
def _mean_quantiser(column: Column, rows: int) -> tuple[Quantiser, Fraction]:
    """K levels over [L, U] such that a mean of at most `rows` on-step values is itself a level."""
    lower, upper, step = _bounds(column)
    width = upper - lower
    levels = LEVELS
    if step and (width / step).denominator == 1:
        base = int(width / step) * math.lcm(*range(1, min(rows, 32) + 1))
        if base <= LEVELS:
            levels = base
            while levels * 2 <= LEVELS:
                levels *= 2
    return Quantiser(lower, Fraction(levels) / width, 0, levels), width / levels
