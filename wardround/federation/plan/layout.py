"""The form of an answer: how many integers, on which grid, within which norms.

Sensitivity is never sent. Coordinator and site derive it here from the query and the study, so neither
can be talked into another number (PROOFS.md, "Counts, sums and means on the grid" and "Records and codes").
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.grids import (
    MOMENT_LEVELS,
    PRODUCT_NORM,
    Coding,
    Quantiser,
    Tree,
    below_coding,
    histogram_coding,
    level_quantiser,
    sum_quantiser,
    time_coding,
    tree_coding,
)
from wardround.federation.plan.typed import Typed, type_query
from wardround.federation.plan.typed_aggregates import narrowed
from wardround.federation.question.cohort import Value
from wardround.federation.question.grouping import domain
from wardround.federation.question.query import MAX_CELLS, Aggregate, GroupBy, Query, Statistic
from wardround.federation.study.study import Column, Study, Table, Unit
from wardround.privacy.budget.facts import AnyMechanism
from wardround.privacy.noise.distribution import Mechanism

MAX_DIMENSION = 4_000_000
GAUSSIAN_COUNT_GRID = Fraction(1, 64)
SQUARE_WEIGHT, PRODUCT_WEIGHT = 29, 41
"""A square counts 29 times and a product 41: 41² ≤ 2·29², so the whole is no longer than 29 squared norms."""


class PartKind(StrEnum):
    """What one part of an answer adds up.

    EVENTS and SUM add up rows, of each unit at most so many. All others add up records, one for each unit
    and group: that it is there (PATIENTS), the unit's mean (MEAN, MOMENTS, PRODUCTS), the code of its mean
    (CODES, TREE) or the greatest code of its rows (LAST).
    """

    EVENTS = "events"
    PATIENTS = "patients"
    SUM = "sum"
    MEAN = "mean"
    MOMENTS = "moments"
    PRODUCTS = "products"
    CODES = "codes"
    TREE = "tree"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Part:
    """Aggregates that are answered from the same integers: groups, coordinates per group, grid and norms.

    `columns` and `quantisers` go together. `coding` is there for CODES, TREE and LAST, `tree` for TREE.
    """

    aggregates: tuple[Aggregate, ...]
    kind: PartKind
    groups: int
    coordinates: int
    grid: Fraction
    increment: int
    max_groups: int
    l1_sensitivity: int
    l2_sensitivity_squared: int
    columns: tuple[str, ...] = ()
    quantisers: tuple[Quantiser, ...] = ()
    coding: Coding | None = None
    tree: Tree | None = None

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


def shape(query: Query, study: Study, mechanism: AnyMechanism) -> Shape:
    """The form of the answer to `query`; `QueryMistaken` when the study does not allow it."""
    return layout(type_query(query, study), study, mechanism)


def layout(typed: Typed, study: Study, mechanism: AnyMechanism) -> Shape:
    """The same for a query that was typed already."""
    exact, table = typed.query, typed.table
    domains = [domain(grouping, table) for grouping in exact.group_by]
    cells = math.prod(len(keys) for keys in domains)
    if cells > MAX_CELLS:
        msg = f"GROUP BY would make {cells} groups; at most {MAX_CELLS} are possible."
        raise QueryMistaken(msg)
    keys = tuple(itertools.product(*domains))
    frame = _Frame(exact, table, study.unit, len(keys), mechanism)
    parts = tuple(_part(aggregates, frame) for aggregates in _together(exact.aggregates))
    form = Shape(exact, table, study.unit, keys, parts)
    if form.dimension > MAX_DIMENSION:
        msg = f"the answer would hold {form.dimension} numbers; at most {MAX_DIMENSION} are possible; ask for less."
        raise QueryMistaken(msg)
    return form


def _together(aggregates: tuple[Aggregate, ...]) -> list[tuple[Aggregate, ...]]:
    """Aggregates that one part answers: quantiles of a column, and its mean, variance and standard deviation."""
    spread = {(a.column, a.clips) for a in aggregates if a.statistic in (Statistic.VARIANCE, Statistic.STD)}
    parts: dict[object, list[Aggregate]] = {}
    for aggregate in aggregates:
        same = (aggregate.column, aggregate.clips)
        match aggregate.statistic:
            case Statistic.QUANTILE:
                key: object = ("tree", *same)
            case Statistic.VARIANCE | Statistic.STD:
                key = ("moments", *same)
            case Statistic.MEAN if same in spread:
                key = ("moments", *same)
            case _:
                key = aggregate
        parts.setdefault(key, []).append(aggregate)
    return [tuple(found) for found in parts.values()]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What the parts of one answer have in common."""

    query: Query
    table: Table
    unit: Unit
    groups: int
    mechanism: AnyMechanism

    @property
    def rows(self) -> int:
        # Under event adjacency no per-patient cap applies: one event is one row in one group.
        return self.table.max_rows_per_unit if self.unit is Unit.PATIENT else 1

    @property
    def max_groups(self) -> int:
        if self.unit is not Unit.PATIENT:
            return 1
        most = self.table.max_groups_per_unit
        if any(grouping.by is GroupBy.MONTH for grouping in self.query.group_by):
            most = self.table.max_windows_per_unit or most
        return min(most, self.groups)

    @property
    def count_grid(self) -> Fraction:
        return GAUSSIAN_COUNT_GRID if self.mechanism is Mechanism.DISCRETE_GAUSSIAN else Fraction(1)

    def column(self, aggregate: Aggregate, name: str | None) -> Column:
        return narrowed(self.table.column(name or ""), aggregate)


def _part(aggregates: tuple[Aggregate, ...], frame: _Frame) -> Part:
    aggregate = aggregates[0]
    match aggregate.statistic:
        case Statistic.COUNT | Statistic.KEYS | Statistic.CHOICE | Statistic.CHI_SQUARE:
            return _counted(aggregate, frame)
        case Statistic.SUM:
            quantiser = sum_quantiser(frame.column(aggregate, aggregate.column))
            norm = frame.rows * max(abs(quantiser.low), abs(quantiser.high))
            return Part(
                aggregates,
                PartKind.SUM,
                groups=frame.groups,
                coordinates=1,
                grid=1 / quantiser.per_unit,
                increment=1,
                max_groups=frame.max_groups,
                l1_sensitivity=norm,
                l2_sensitivity_squared=norm**2,
                columns=aggregate.columns,
                quantisers=(quantiser,),
            )
        case Statistic.MEAN | Statistic.VARIANCE | Statistic.STD:
            if any(each.statistic is not Statistic.MEAN for each in aggregates):
                return _moments(aggregates, frame)
            return _mean(aggregates, frame)
        case Statistic.HISTOGRAM | Statistic.BELOW | Statistic.QUANTILE | Statistic.SURVIVAL:
            return _coded(aggregates, frame)
        case Statistic.CORRELATION | Statistic.REGRESSION:
            return _products(aggregate, frame)


def _counted(aggregate: Aggregate, frame: _Frame) -> Part:
    """Rows or patients by group; the table of two categories, and the values of one, are groups too."""
    one = int(1 / frame.count_grid)
    groups, cells, kind = frame.groups, frame.max_groups, PartKind.PATIENTS
    if aggregate.statistic is Statistic.CHI_SQUARE:
        groups, cells = math.prod(len(frame.table.column(name).domain) for name in aggregate.columns), 1
    elif aggregate.statistic is Statistic.CHOICE:
        groups = len(frame.table.column(aggregate.column or "").domain)
        # A choice only asks how far one count moves: a patient may count for every value it has.
        most = frame.table.max_groups_per_unit if isinstance(frame.mechanism, Mechanism) else groups
        cells = min(most, groups) if frame.unit is Unit.PATIENT else 1
    elif aggregate.statistic is Statistic.KEYS:
        cells = frame.table.max_groups_per_unit if frame.unit is Unit.PATIENT else 1
    norm, squared = cells * one, cells * one**2
    if aggregate.statistic is Statistic.COUNT and aggregate.column is None:
        kind, norm = PartKind.EVENTS, frame.rows * one
        squared = norm**2
    return Part(
        (aggregate,),
        kind,
        groups=groups,
        coordinates=1,
        grid=frame.count_grid,
        increment=one,
        max_groups=cells,
        l1_sensitivity=norm,
        l2_sensitivity_squared=squared,
        columns=() if aggregate.statistic is Statistic.COUNT else aggregate.columns,
    )


def _mean(aggregates: tuple[Aggregate, ...], frame: _Frame) -> Part:
    """(q, K − q): each record's distance from both bounds."""
    aggregate = aggregates[0]
    quantiser = level_quantiser(frame.column(aggregate, aggregate.column), rows=frame.rows)
    levels = quantiser.high
    return Part(
        aggregates,
        PartKind.MEAN,
        groups=frame.groups,
        coordinates=2,
        grid=1 / quantiser.per_unit,
        increment=1,
        max_groups=frame.max_groups,
        l1_sensitivity=frame.max_groups * levels,
        l2_sensitivity_squared=frame.max_groups * levels**2,
        columns=aggregate.columns,
        quantisers=(quantiser,),
    )


def _moments(aggregates: tuple[Aggregate, ...], frame: _Frame) -> Part:
    """(h², h·t, t² − h²/2) with t = q − h and K = 2h: a unit moves it by at most 5h²/2, and 3h²/2 in length."""
    aggregate = aggregates[0]
    quantiser = level_quantiser(
        frame.column(aggregate, aggregate.column), rows=frame.rows, most=MOMENT_LEVELS, multiple=4
    )
    half = quantiser.high // 2
    return Part(
        aggregates,
        PartKind.MOMENTS,
        groups=frame.groups,
        coordinates=3,
        grid=Fraction(1, half**2),
        increment=1,
        max_groups=frame.max_groups,
        l1_sensitivity=frame.max_groups * (5 * half**2 // 2),
        l2_sensitivity_squared=frame.max_groups * (9 * half**4 // 4),
        columns=aggregate.columns,
        quantisers=(quantiser,),
    )


def _coded(aggregates: tuple[Aggregate, ...], frame: _Frame) -> Part:
    """One of the codes for each record; in a tree, one on each level."""
    aggregate = aggregates[0]
    column, one = frame.column(aggregate, aggregate.column), int(1 / frame.count_grid)
    tree, kind = None, PartKind.CODES
    quantisers: tuple[Quantiser, ...]
    match aggregate.statistic:
        case Statistic.HISTOGRAM:
            quantiser, coding = histogram_coding(column, rows=frame.rows, bins=aggregate.bins or 1)
            quantisers = (quantiser,)
        case Statistic.BELOW:
            quantiser, coding = below_coding(column, rows=frame.rows, value=aggregate.level or 0.0)
            quantisers = (quantiser,)
        case Statistic.SURVIVAL:
            quantiser, coding = time_coding(column, bins=aggregate.bins)
            quantisers, kind = (quantiser, Quantiser(Fraction(0), Fraction(1), 0, 1)), PartKind.LAST
        case _:
            quantiser, coding, tree = tree_coding(column, rows=frame.rows)
            quantisers, kind = (quantiser,), PartKind.TREE
    shown = 1 if tree is None else tree.levels
    coordinates = sum(tree.sizes) if tree is not None else coding.codes * (2 if kind is PartKind.LAST else 1)
    return Part(
        aggregates,
        kind,
        groups=frame.groups,
        coordinates=coordinates,
        grid=frame.count_grid,
        increment=one,
        max_groups=frame.max_groups,
        l1_sensitivity=frame.max_groups * shown * one,
        l2_sensitivity_squared=frame.max_groups * shown * one**2,
        columns=aggregate.columns,
        quantisers=quantisers,
        coding=coding,
        tree=tree,
    )


def _products(aggregate: Aggregate, frame: _Frame) -> Part:
    """29·zᵢ² and 41·zᵢzⱼ for i < j, with z₀ = h and |zᵢ| ≤ h: at most 29·(d + 1)·h² in length."""
    columns = [frame.column(aggregate, name) for name in aggregate.columns]
    width = len(columns) + 1
    half = math.isqrt(PRODUCT_NORM // width)
    quantisers = tuple(level_quantiser(column, rows=frame.rows, most=2 * half, multiple=2) for column in columns)
    # Columns may have fewer levels than fit; z is then in steps of its own, and no longer for it.
    norm = half**2 + sum((quantiser.high // 2) ** 2 for quantiser in quantisers)
    halves = [half, *(quantiser.high // 2 for quantiser in quantisers)]
    products = sum(left * right for left, right in itertools.combinations(halves, 2))
    return Part(
        (aggregate,),
        PartKind.PRODUCTS,
        groups=frame.groups,
        coordinates=width * (width + 1) // 2,
        grid=Fraction(1, SQUARE_WEIGHT),
        increment=half,
        max_groups=frame.max_groups,
        l1_sensitivity=frame.max_groups * (SQUARE_WEIGHT * norm + PRODUCT_WEIGHT * products),
        l2_sensitivity_squared=frame.max_groups * (SQUARE_WEIGHT * norm) ** 2,
        columns=aggregate.columns,
        quantisers=quantisers,
    )
