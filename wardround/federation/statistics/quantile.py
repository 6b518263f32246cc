"""PERCENTILE_CONT(p), QUANTILE and MEDIAN: the value that a share p of the units' own means are below.

A record adds one on each level of a tree over the column's steps, so a unit moves a group by the number of levels in
L1 and by its root in L2; all quantiles of a column are read from one tree. Counts of every level say something about
every leaf; the least-squares leaves use all of them (Hay, Rastogi, Miklau and Suciu, 2010). Their variance has a closed
form, because the tree's observations split the leaves into orthogonal parts, one for each level (PROOFS.md#trees).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wardround.federation.errors import InvariantBroken, QueryMistaken
from wardround.federation.forms.definition import EVEN, Definition, Function, Number, need_ordered
from wardround.federation.forms.grids import Coding, Quantiser, Tree, tree_coding
from wardround.federation.forms.parts import AnswerLayout, Frame, Part, Tally
from wardround.federation.forms.totals import Estimated, Floats, Total, Unknown, estimate, number_text
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.study.study import ColumnType, Table, Unit

LOWEST_LEVEL, HIGHEST_LEVEL = 0.001, 0.999
_MEDIAN = 0.5
_PER_CENT = 100.0
_ROUNDING = 1e-12


def check(aggregate: Aggregate, table: Table) -> None:
    """One column of numbers, and a level that is nobody's own."""
    need_ordered(aggregate, table)
    level = finite_level(aggregate)
    if not LOWEST_LEVEL <= level <= HIGHEST_LEVEL:
        allowed = f"a quantile's level must be from {LOWEST_LEVEL} to {HIGHEST_LEVEL}, not {level:g}"
        if 1.0 < level < _PER_CENT:
            raise QueryMistaken(f"{allowed}; write {level / _PER_CENT:g}.")
        nearest_level = LOWEST_LEVEL if level <= 0.0 else HIGHEST_LEVEL
        raise QueryMistaken(
            f"{allowed}: the smallest and the largest value are one patient's own; write {nearest_level}."
        )


def finite_level(aggregate: Aggregate) -> float:
    """The number behind the column, where it is one."""
    level = aggregate.level
    if level is None or isinstance(level, bool) or not math.isfinite(level):
        raise QueryMistaken(f"the level of a {aggregate.statistic.value} must be a finite number.")
    return level


def together(aggregate: Aggregate) -> Hashable:
    """All quantiles of a column within the same bounds are one tree."""
    return Statistic.QUANTILE, aggregate.column, aggregate.clips


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """A count for each node of the tree; a record is in one of each level."""
    quantiser, coding, tree = tree_coding(frame.column(aggregates[0]), rows=frame.rows)
    return frame.coded(aggregates, (quantiser,), coding, coordinates=sum(tree.sizes), tree=tree)


def coordinates(part: Part, tally: Tally) -> Tally:
    """From how many have each code to the counts of every level, the coarsest first; what is beyond is empty."""
    _, tree = coded(part)
    leaves = np.zeros((tally.shape[0], tree.leaves), dtype=tally.dtype)
    leaves[:, : tally.shape[1]] = tally
    levels = [leaves.reshape(len(leaves), size, -1).sum(axis=2) for size in tree.sizes]
    return part.increment * np.concatenate(levels, axis=1)


def estimates(total: Total) -> Iterator[Estimate]:
    """Each asked quantile of each group."""
    part, noise = total.part, total.noise
    coding, tree = coded(part)
    scale = Scale.of(part, total.form)
    # Without noise the leaves are exact as they are.
    raw = total.matrix[:, -tree.leaves :] if noise.deviation == 0.0 else consistent(tree, total.matrix)
    leaves = raw * float(part.grid)
    below = np.cumsum(leaves, axis=1)
    number = below[:, -1]
    # All counts but those of the noise: a group that may be empty has no quantiles.
    fewest = noise.wide * noise.deviation * float(part.grid) * math.sqrt(float(level_variance(tree, 0.0)[-1]))
    for place, aggregate in zip(total.places, part.aggregates, strict=True):
        level = aggregate.level or _MEDIAN
        error = noise.deviation * float(part.grid) * np.sqrt(level_variance(tree, level))
        # Half of ten is reached by five, however a computer writes a half.
        slack = _ROUNDING * np.abs(number)[:, None]
        excess = (below - level * number[:, None] + slack)[:, : coding.codes]
        reach = noise.wide * error[: coding.codes]
        for group, line, count in zip(total.labels, excess, number, strict=True):
            if count <= 0.0 or count <= fewest:
                found: Estimated | Unknown = Unknown(NoEstimate.TOO_FEW, scale.bounds)
            else:
                found = scale.found(line, reach, float(count), float(level), noise.wide)
            yield estimate(aggregate, group, found, place=place, term=number_text(level))


def coded(part: Part) -> tuple[Coding, Tree]:
    """The codes of a part that has a tree over them."""
    if part.coding is None or part.tree is None:
        raise InvariantBroken(private="a part of quantiles has no tree")
    return part.coding, part.tree


def consistent(tree: Tree, counts: Floats) -> Floats:
    """The least-squares leaves of noised counts, a line for each group; the counts come coarsest level first.

    Upwards every count is averaged with the sum of its children, by their variances; downwards each set of
    children is moved alike to add up to its parent.
    """
    branching, bounds = tree.branching, np.cumsum([0, *tree.sizes])
    levels = [counts[:, start:end] for start, end in itertools.pairwise(bounds)]
    best = [levels[-1]]
    for height, seen in enumerate(reversed(levels[:-1]), start=2):
        own = (branching**height - branching ** (height - 1)) / (branching**height - 1)
        children = best[0].reshape(len(counts), -1, branching).sum(axis=2)
        best.insert(0, own * seen + (1.0 - own) * children)
    found = best[0]
    for children in best[1:]:
        lacking = found - children.reshape(len(counts), -1, branching).sum(axis=2)
        found = children + np.repeat(lacking / branching, branching, axis=1)
    return found


def level_variance(tree: Tree, level: float) -> Floats:
    """Var(F(k) − level·N) for every leaf k, in units of one count's noise: F adds the consistent leaves up to k.

    With w = 1 for leaves up to k and −level for all, the variance is Σ ‖P_l w‖²/λ_l over the levels l: P_l keeps what
    is constant on the cells of level l and adds up to nothing in each cell above, and λ_l = 1 + b + … + b^(L−l).
    """
    cells_up_to = np.arange(1, tree.leaves + 1)
    energy = [tree.leaves * (cells_up_to / tree.leaves - level) ** 2]
    for cells in tree.sizes:
        size = tree.leaves // cells
        whole, part = np.divmod(cells_up_to, size)
        inside = whole * (1.0 - level) ** 2 + (cells - whole - 1) * level**2
        # Past the last cell there is none that is cut.
        cut = np.where(whole < cells, (part / size - level) ** 2, level**2)
        energy.append(size * (inside + cut))
    eigenvalues = [
        sum(tree.branching**power for power in range(tree.levels - depth + 1)) for depth in range(1, tree.levels + 1)
    ]
    variance: Floats = energy[0] / eigenvalues[0]
    for before, after, eigenvalue in zip(energy[:-1], energy[1:], eigenvalues, strict=True):
        variance = variance + np.maximum(after - before, 0.0) / eigenvalue
    return variance


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the leaves lie: `edges` in the column's unit, and whether records are on their leaves' lower edges.

    `sure` says that none can be anywhere else: a whole number cannot, a number may have been written between its steps.
    """

    edges: Floats
    on_edge: bool
    sure: bool

    @classmethod
    def of(cls, part: Part, form: AnswerLayout) -> Scale:
        """The leaves of a part; a single row on a step is on an edge, a mean of several may lie between."""
        coding, _ = coded(part)
        quantiser = part.quantisers[0]
        column = form.table.column(part.columns[0])
        one_row = form.unit is Unit.EVENT or form.table.max_rows_per_unit == 1
        on_step = column.step is not None and coding.width == column.step * quantiser.per_unit
        # Narrower bounds may begin between two steps.
        begins = 0 if column.step is None or column.lower is None else (quantiser.origin - column.lower) / column.step
        on_edge = one_row and on_step and begins == int(begins)
        return cls(_edges(quantiser, coding), on_edge, on_edge and column.type is ColumnType.INTEGER)

    @property
    def bounds(self) -> tuple[float, float]:
        """The public bounds: where every quantile is."""
        return float(self.edges[0]), float(self.edges[-1])

    def found(self, excess: Floats, reach: Floats, number: float, level: float, critical: float) -> Estimated:
        """Value, error and interval of the place where `excess`, F(k) − level·N, leaves 0 behind.

        Counts rise, so the line is brought to rise first, which moves it no farther from the truth than the farthest
        of its points was. The interval then holds every leaf whose edges may lie on the two sides of the level.
        """
        low, high = self.bounds
        rising = (np.maximum.accumulate(excess) + np.minimum.accumulate(excess[::-1])[::-1]) / 2
        start = -level * number
        place = _first(rising >= 0.0)
        value = float(self.edges[place]) if self.on_edge else self._crossing(rising, start)
        if not reach.any():
            leaf = (value, value) if self.sure else (float(self.edges[place]), float(self.edges[place + 1]))
            return Estimated(value, 0.0, leaf)
        highest, lowest = rising + reach, rising - reach
        first = _first(highest >= 0.0)
        last = _last(np.concatenate(([True], lowest[:-1] < 0.0)))
        lower = self._crossing(highest, start + float(reach[0]))
        upper = self._crossing(np.minimum.accumulate(lowest[::-1])[::-1], start - float(reach[0]))
        # A value on the edges is one of two where the level falls between them; elsewhere it may be all over its leaf.
        grain = (high - low) / (len(self.edges) - 1) / (2.0 if self.on_edge else math.sqrt(12.0))
        error = math.hypot(max(upper - lower, 0.0) / (2.0 * critical), grain)
        top = self.edges[last] if self.sure else self.edges[last + 1]
        return Estimated(value, min(error, (high - low) / 2), (float(self.edges[first]), float(top)))

    def _crossing(self, rising: Floats, start: float) -> float:
        """Where a line, `start` at the first edge and then one number for each further edge, first reaches 0."""
        place = _first(rising >= 0.0)
        before, after = (float(rising[place - 1]) if place else start), float(rising[place])
        inside = -before / (after - before) if before < 0.0 < after else 1.0 if before < 0.0 else 0.0
        return float(self.edges[place] + inside * (self.edges[place + 1] - self.edges[place]))


@lru_cache(maxsize=64)
def _edges(quantiser: Quantiser, coding: Coding) -> Floats:
    """Where the leaves begin, and where the last one ends; kept, because a search for ε asks again and again."""
    ends = [min(place * coding.width, quantiser.high) for place in range(coding.codes + 1)]
    edges = np.array([float(quantiser.value(end)) for end in ends])
    edges.setflags(write=False)
    return edges


def _first(holds: NDArray[np.bool_]) -> int:
    """The first place where it holds; the last place when it nowhere does."""
    return int(np.argmax(holds)) if holds.any() else len(holds) - 1


def _last(holds: NDArray[np.bool_]) -> int:
    """The last place where it holds; the first when it nowhere does."""
    return len(holds) - 1 - int(np.argmax(holds[::-1])) if holds.any() else 0


def typical(part: Part, number: float) -> list[int]:
    """Values spread evenly over their bounds."""
    coding, tree = coded(part)
    each, codes = number * part.increment / coding.codes, coding.codes
    return [
        round(each * min(max(codes - cell * size, 0), size))
        for size in (tree.leaves // cells for cells in tree.sizes)
        for cell in range(tree.leaves // size)
    ]


def label(aggregate: Aggregate, name: str, operands: str) -> str:
    """The short form: `MEDIAN(x)` or `QUANTILE(x, 0.9)`."""
    return f"MEDIAN({operands})" if aggregate.level == _MEDIAN else f"{name}({operands}, {aggregate.level:g})"


QUANTILE = Definition(
    statistic=Statistic.QUANTILE,
    functions=(
        Function("QUANTILE", "QUANTILE({number}, 0.9)"),
        Function("MEDIAN", level=_MEDIAN),
        Function("PERCENTILE_CONT", "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {number})"),
    ),
    check=check,
    part=part,
    coordinates=coordinates,
    estimates=estimates,
    number=Number.LEVEL,
    together=together,
    typical=typical,
    assumed=EVEN,
    text=lambda aggregate, _, operands: f"PERCENTILE_CONT({aggregate.level!r}) WITHIN GROUP (ORDER BY {operands})",
    label=label,
    term_axis="level",
    beside="quantiles",
)
