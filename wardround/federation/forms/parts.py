"""The form of an answer in words: its parts, and the frame that they are made in.

A part says what is added up as two attributes and data: what a unit's rows become (`Records`), which sums of these are
handed in (`Sums`), and what makes the cells. A source looks at nothing else; which statistic asked is not its business.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.grids import Coding, Quantiser, Tree
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study import Column, Table, Unit, Value
from wardround.privacy.budget.facts import AnyMechanism
from wardround.privacy.noise.distribution import Mechanism

Tally = NDArray[np.int64] | NDArray[np.object_]
"""What a source hands in for a part: one line for each group; Python's whole numbers where 64 bits are too few."""

GAUSSIAN_COUNT_GRID = Fraction(1, 64)


class Records(StrEnum):
    """What the rows of a unit become before they are added up.

    ROWS stay what they are, of each unit at most so many. All others are one record for each unit and cell: that the
    unit is there (UNITS), its own mean of each column (MEANS), or the latest of its rows (LAST).
    """

    ROWS = "rows"
    UNITS = "units"
    MEANS = "means"
    LAST = "last"


class Sums(StrEnum):
    """Which sums over the records of a cell are handed in, in this order.

    COUNT: n. LEVELS: Σq. COUNTED_LEVELS: n, Σq. PRODUCTS: n, then Σqᵢ, then Σqᵢqⱼ for i ≤ j, in the order of the part's
    columns. CODES: how many have each code; of the latest rows, how many have each 2·code + event.
    """

    COUNT = "count"
    LEVELS = "levels"
    COUNTED_LEVELS = "counted_levels"
    PRODUCTS = "products"
    CODES = "codes"


@dataclass(frozen=True, slots=True)
class Part:
    """Aggregates that are answered from the same integers: groups, coordinates per group, grid and norms.

    `owner` is the statistic whose file reads these integers; `groupings` make the cells, those of the question or the
    part's own. `columns` and `quantisers` go together; `coding` is there where codes are counted, `tree` where they are
    counted on every level. `largest` is the largest single coordinate of one record.
    """

    aggregates: tuple[Aggregate, ...]
    owner: Statistic
    records: Records
    sums: Sums
    groupings: tuple[Grouping, ...]
    groups: int
    coordinates: int
    grid: Fraction
    increment: int
    max_groups: int
    l1_sensitivity: int
    l2_sensitivity_squared: int
    largest: int
    columns: tuple[str, ...] = ()
    quantisers: tuple[Quantiser, ...] = ()
    coding: Coding | None = None
    tree: Tree | None = None

    @property
    def dimension(self) -> int:
        """How many integers this part releases: group by group, coordinate by coordinate."""
        return self.groups * self.coordinates

    @property
    def codes(self) -> Coding:
        if self.coding is None:
            raise InvariantBroken(private="a part of codes has none")
        return self.coding


@dataclass(frozen=True, slots=True)
class AnswerLayout:
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


@dataclass(frozen=True, slots=True)
class Frame:
    """What the parts of one answer have in common, and whose part is made."""

    query: Query
    table: Table
    unit: Unit
    groups: int
    mechanism: AnyMechanism
    owner: Statistic

    @property
    def rows(self) -> int:
        # Under event adjacency no per-patient cap applies: one event is one row in one group.
        return self.table.max_rows_per_unit if self.unit is Unit.PATIENT else 1

    @property
    def max_groups(self) -> int:
        """In how many groups of the question a unit counts."""
        if self.unit is not Unit.PATIENT:
            return 1
        most = self.table.max_groups_per_unit
        if any(grouping.by is GroupBy.MONTH for grouping in self.query.group_by):
            most = self.table.max_windows_per_unit or most
        return min(most, self.groups)

    @property
    def count_grid(self) -> Fraction:
        return GAUSSIAN_COUNT_GRID if self.mechanism is Mechanism.DISCRETE_GAUSSIAN else Fraction(1)

    @property
    def one(self) -> int:
        """One record on the grid of a count."""
        return int(1 / self.count_grid)

    def column(self, aggregate: Aggregate, name: str | None = None) -> Column:
        """A column of an aggregate within its narrower bounds; without a name, its first."""
        return narrowed(self.table.column(name or aggregate.column or ""), aggregate)

    def part(  # noqa: PLR0913 - the fields of a part
        self,
        aggregates: tuple[Aggregate, ...],
        records: Records,
        sums: Sums,
        *,
        l1_sensitivity: int,
        l2_sensitivity_squared: int,
        coordinates: int = 1,
        grid: Fraction | None = None,
        increment: int | None = None,
        largest: int | None = None,
        max_groups: int | None = None,
        groupings: tuple[Grouping, ...] | None = None,
        groups: int | None = None,
        columns: tuple[str, ...] | None = None,
        quantisers: tuple[Quantiser, ...] = (),
        coding: Coding | None = None,
        tree: Tree | None = None,
    ) -> Part:
        """A part in this frame: on the grid of a count, over the question's groups, unless it says otherwise."""
        increment = self.one if increment is None else increment
        return Part(
            aggregates,
            self.owner,
            records,
            sums,
            self.query.group_by if groupings is None else groupings,
            self.groups if groups is None else groups,
            coordinates,
            self.count_grid if grid is None else grid,
            increment,
            self.max_groups if max_groups is None else max_groups,
            l1_sensitivity,
            l2_sensitivity_squared,
            increment if largest is None else largest,
            aggregates[0].columns if columns is None else columns,
            quantisers,
            coding,
            tree,
        )

    def coded(
        self,
        aggregates: tuple[Aggregate, ...],
        quantisers: tuple[Quantiser, ...],
        coding: Coding,
        *,
        records: Records = Records.MEANS,
        coordinates: int | None = None,
        tree: Tree | None = None,
    ) -> Part:
        """One of the codes for each record; in a tree, one on each level."""
        shown = self.max_groups * (1 if tree is None else tree.levels)
        return self.part(
            aggregates,
            records,
            Sums.CODES,
            l1_sensitivity=shown * self.one,
            l2_sensitivity_squared=shown * self.one**2,
            coordinates=coding.codes if coordinates is None else coordinates,
            quantisers=quantisers,
            coding=coding,
            tree=tree,
        )


def narrowed(column: Column, aggregate: Aggregate) -> Column:
    """The column within the narrower bounds that the aggregate names for it, if it does."""
    for clip in aggregate.clips:
        if clip.column == column.name:
            return dataclasses.replace(column, lower=exact_number(clip.lower), upper=exact_number(clip.upper))
    return column


def exact_number(number: float) -> Fraction:
    """The decimal that a number was written as."""
    return Fraction(repr(number))
