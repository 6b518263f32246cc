"""Public grids: how a value becomes a whole number, and which of a few codes that number has.

A quantiser clamps in integers, so no norm can break; every grid holds a column's own steps exactly where
they fit, so that without noise an answer is exact (PROOFS.md, "Counts, sums and means on the grid").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wardround.federation.errors import QueryMistaken
from wardround.federation.study.study import Column, ColumnType

LEVELS = 2**32
MOMENT_LEVELS = 2**17
"""Levels of a value whose square is added too: the square of half of them is 2^32."""

PRODUCT_NORM = 2**31
"""The largest squared norm of the values whose products are added, before their weights."""

MOST_LEAVES = 4096
PLAIN_LEAVES = 1024
MOST_TIMES = 120
_BRANCHINGS = range(2, 17)


@dataclass(frozen=True, slots=True)
class Quantiser:
    """x ↦ clamp(⌊(x − origin)·per_unit + ½⌋, low, high): the clamp is in integers, so no norm can break."""

    origin: Fraction
    per_unit: Fraction
    low: int
    high: int

    def value(self, level: int | Fraction) -> Fraction:
        """The value a level stands for."""
        return self.origin + level / self.per_unit


@dataclass(frozen=True, slots=True)
class Coding:
    """q ↦ min(⌊(q + offset) / width⌋, codes − 1): which of `codes` intervals a level q ≥ 0 lies in."""

    codes: int
    width: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """Counts on every level of a tree over the codes, from `branching` children of the root to the leaves."""

    branching: int
    levels: int

    @property
    def leaves(self) -> int:
        """How many leaves it has; those beyond the last code stay empty."""
        return int(self.branching**self.levels)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many counts each level has, the coarsest first."""
        return tuple(int(self.branching**level) for level in range(1, self.levels + 1))


def exact_bounds(column: Column) -> tuple[Fraction, Fraction, Fraction | None]:
    """(lower, upper, step) of a column with public bounds."""
    bounds = column.numeric_bounds
    if bounds is None:
        raise QueryMistaken(f"the study declares no bounds for {column.name!r}.")
    return bounds[0], bounds[1], column.step if column.type is not ColumnType.BOOLEAN else Fraction(1)


@lru_cache(maxsize=1024)
def sum_quantiser(column: Column) -> Quantiser:
    """Rows on step/2^j, fine enough that rounding is far below any noise; on-step values are exact."""
    lower, upper, step = exact_bounds(column)
    size = max(abs(lower), abs(upper))
    per_unit = 1 / step if step else Fraction(1)
    while size * per_unit * 2 <= LEVELS:
        per_unit *= 2
    while size * per_unit > LEVELS:
        per_unit /= 2
    low, high = math.ceil(lower * per_unit), math.floor(upper * per_unit)
    if low >= high:
        # No level between the bounds: a source could fail on the first row, and so tell whether there is one.
        raise QueryMistaken(f"the bounds of {column.name!r} are too close together, and too far from 0, for a sum.")
    return Quantiser(Fraction(0), per_unit, low, high)


@lru_cache(maxsize=1024)
def level_quantiser(column: Column, *, rows: int, most: int = LEVELS, multiple: int = 1) -> Quantiser:
    """K ≤ `most` levels over [L, U], a multiple of `multiple`; means of up to `rows` on-step values are among them."""
    lower, upper, step = exact_bounds(column)
    width = upper - lower
    levels = multiple * (most // multiple)
    if step and (width / step).denominator == 1:
        base = math.lcm(int(width / step), multiple)
        spread = base * math.lcm(*range(1, min(rows, 32) + 1))
        base = spread if spread <= most else base
        if base <= most:
            levels = base
            while levels * 2 <= most:
                levels *= 2
    return Quantiser(lower, Fraction(levels) / width, 0, levels)


@lru_cache(maxsize=1024)
def histogram_coding(column: Column, *, rows: int, bins: int) -> tuple[Quantiser, Coding]:
    """`bins` intervals of equal width over [L, U]; U itself lies in the last."""
    quantiser = level_quantiser(column, rows=rows, multiple=bins)
    return quantiser, Coding(bins, quantiser.high // bins)


@lru_cache(maxsize=1024)
def below_coding(column: Column, *, rows: int, value: float) -> tuple[Quantiser, Coding]:
    """Code 0 for levels at or below `value`, code 1 above it."""
    quantiser = level_quantiser(column, rows=rows)
    place = math.floor((Fraction(repr(value)) - quantiser.origin) * quantiser.per_unit)
    last = min(max(place, -1), quantiser.high)
    return quantiser, Coding(2, quantiser.high + 1, quantiser.high - last)


@lru_cache(maxsize=1024)
def tree_coding(column: Column, *, rows: int) -> tuple[Quantiser, Coding, Tree]:
    """A leaf for every step of the column, or for every few of them; 1024 leaves where it has no step."""
    lower, upper, step = exact_bounds(column)
    quantiser = level_quantiser(column, rows=rows, multiple=1 if step else PLAIN_LEAVES)
    steps = None if step is None else (upper - lower) / step
    if steps is None or steps.denominator != 1 or quantiser.high % int(steps):
        quantiser = level_quantiser(column, rows=rows, multiple=PLAIN_LEAVES)
        return quantiser, Coding(PLAIN_LEAVES, quantiser.high // PLAIN_LEAVES), _tree(PLAIN_LEAVES)
    joined = -(-(int(steps) + 1) // MOST_LEAVES)
    codes = -(-(int(steps) + 1) // joined)
    return quantiser, Coding(codes, quantiser.high // int(steps) * joined), _tree(codes)


@lru_cache(maxsize=1024)
def time_coding(column: Column, *, bins: int | None) -> tuple[Quantiser, Coding]:
    """Times 0, 1, …: code k holds the times above that of code k − 1 and up to its own, `quantiser.value(k·width)`."""
    lower, upper, step = exact_bounds(column)
    steps = (upper - lower) / step if step else None
    if steps is None or steps.denominator != 1 or steps > LEVELS:
        wanted = bins or PLAIN_LEAVES // 16
        fine = Quantiser(lower, Fraction(wanted * 1024) / (upper - lower), 0, wanted * 1024)
    else:
        wanted = bins or min(int(steps), MOST_TIMES)
        fine = Quantiser(lower, 1 / step if step else Fraction(1), 0, int(steps))
    width = -(-fine.high // wanted)
    return fine, Coding(-(-fine.high // width) + 1, width, width - 1)


def _tree(leaves: int) -> Tree:
    """The tree over so many leaves whose answers have the least error: about (branching − 1)·levels² a range."""
    trees = [Tree(branching, max(1, _levels(leaves, branching))) for branching in _BRANCHINGS]
    return min(trees, key=lambda tree: ((tree.branching - 1) * tree.levels**2, tree.levels))


def _levels(leaves: int, branching: int) -> int:
    levels = 0
    while branching**levels < leaves:
        levels += 1
    return levels
