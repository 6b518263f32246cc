"""CHI_SQUARE(a, b): two categories against each other, as a table of noised counts.

The cells of the table are groups, and a unit is in one of them. Noise makes a table look dependent. The statistic
therefore divides by the variance a cell really has, and its p-value is found by simulating independent tables with the
same noise; the seed is the plan's id.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from wardround.federation.forms.definition import (
    Definition,
    Drawing,
    Function,
    MeasuredIn,
    TermLayout,
    as_counted,
    need_public_values,
)
from wardround.federation.forms.parts import Frame, Part, Records, Sums
from wardround.federation.forms.totals import NORMAL, Estimated, Floats, Total, TotalNoise, estimate
from wardround.federation.question.answer import NOISE_AWARE, Estimate
from wardround.federation.question.query import Aggregate, Grouping, Statistic
from wardround.federation.statistics.count import units
from wardround.federation.study.study import Unit

SIMULATED = 9_999
_MOST_DRAWS = 2**21
_LARGEST_SIMULATED = 2**16


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """Units by both values; under event adjacency, rows."""
    (aggregate,) = aggregates
    return frame.part(
        aggregates,
        Records.UNITS if frame.unit is Unit.PATIENT else Records.ROWS,
        Sums.COUNT,
        l1_sensitivity=frame.one,
        l2_sensitivity_squared=frame.one**2,
        max_groups=1,
        groupings=tuple(Grouping(name) for name in aggregate.columns),
        groups=math.prod(len(frame.table.column(name).domain) for name in aggregate.columns),
    )


def estimates(total: Total) -> Iterator[Estimate]:
    """The statistic, its degrees of freedom and its p-value; then the table, cell by cell."""
    aggregate, place = total.part.aggregates[0], total.place
    domains = [total.form.table.column(name).domain for name in aggregate.columns]
    grid = float(total.part.grid)
    table = total.matrix.reshape(len(domains[0]), len(domains[1])) * grid
    noise = total.noise.scaled(grid)
    deviation = noise.deviation
    value = independence(table, deviation)
    free = freedom(table, deviation)
    # A number of the released table itself, to compare with others of its kind: no estimate of Pearson's χ².
    term = "statistic" if deviation == 0.0 else NOISE_AWARE
    yield estimate(aggregate, (), Estimated(value, 0.0, (value, value)), place=place, term=term)
    freely = Estimated(float(free), 0.0, (float(free), float(free)))
    yield estimate(aggregate, (), freely, place=place, term="degrees_of_freedom")
    chance, doubt = p_value(table, noise, value, free, seed=int(total.key[:16] or "0", 16))
    ends = (max(chance - NORMAL * doubt, 0.0), min(chance + NORMAL * doubt, 1.0))
    yield estimate(aggregate, (), Estimated(chance, doubt, ends), place=place, term="p_value", sampling=True)
    counted = units(total.form.table, total.form.unit)
    reach = total.noise.critical * deviation
    for cell, count in zip(itertools.product(*domains), table.ravel().tolist(), strict=True):
        group = tuple(zip(aggregate.columns, cell, strict=True))
        # A cell's count is no aggregate of the question.
        yield estimate(counted, group, Estimated(count, deviation, (count - reach, count + reach)), place=None)


def independence(table: Floats, deviation: float) -> float:
    """Σ(T − E)²/(E + σ²); without noise it is Pearson's statistic.

    E is what independence expects from the margins, σ² the noise of a cell: a cell varies by both.
    """
    expected = _expected(table)
    scale = expected + deviation**2
    apart = np.where(scale > 0.0, (table - expected) / np.where(scale > 0.0, scale, 1.0), 0.0)
    return float((apart * (table - expected)).sum())


def freedom(table: Floats, deviation: float) -> int:
    """(rows − 1)·(columns − 1); without noise, of those that hold anybody."""
    rows, columns = int(table.shape[0]), int(table.shape[1])
    if deviation == 0.0:
        rows, columns = int((table.sum(axis=1) > 0).sum()), int((table.sum(axis=0) > 0).sum())
    return max(rows - 1, 0) * max(columns - 1, 0)


def p_value(table: Floats, noise: TotalNoise, value: float, free: int, *, seed: int) -> tuple[float, float]:
    """How often independent columns would look at least so dependent, and the error of the simulation.

    Independent tables have the margins of this one, as far as the noise shows them, and noise of their own. Without
    noise, and for tables too large to simulate, it is the limit law of the statistic.
    """
    if free == 0:
        return 1.0, 0.0
    if noise.deviation == 0.0 or table.size > _LARGEST_SIMULATED:
        return chi_square_tail(value, free), 0.0
    number = max(float(table.sum()), 0.0)
    chances = (_expected(table) / number).ravel() if number > 0.0 else np.full(table.size, 1.0 / table.size)
    chances = chances / chances.sum() if chances.sum() > 0.0 else np.full(table.size, 1.0 / table.size)
    draws = max(min(SIMULATED, _MOST_DRAWS // table.size), 99)
    generator = np.random.default_rng(seed)
    people = min(round(number), 2**62)
    drawn = generator.multinomial(people, chances, size=draws).reshape(draws, *table.shape)
    noised = drawn + _noise_like(noise, generator, drawn.shape)
    beyond = int((_statistics(noised, noise.deviation) >= value).sum())
    chance = (beyond + 1) / (draws + 1)
    return chance, math.sqrt(chance * (1.0 - chance) / draws)


def chi_square_tail(value: float, free: int) -> float:
    """P(χ² > value) with `free` degrees of freedom: a Poisson sum, and for odd ones the normal tail as well."""
    if value <= 0.0:
        return 1.0
    half, steps = value / 2.0, free // 2
    start = 0.0 if free % 2 == 0 else 0.5
    terms = np.arange(steps) + start
    logs = terms * math.log(half) - half - np.array([math.lgamma(term + 1.0) for term in terms])
    tail = float(np.exp(logs).sum()) + (math.erfc(math.sqrt(half)) if free % 2 else 0.0)
    return min(tail, 1.0)


def _noise_like(noise: TotalNoise, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Noise of the same law, to compare with; it protects nobody."""
    if noise.laplaces == 0:
        return generator.normal(0.0, noise.deviation, shape)
    scale = noise.deviation / math.sqrt(2.0 * noise.laplaces)
    return generator.gamma(noise.laplaces, scale, shape) - generator.gamma(noise.laplaces, scale, shape)


def _expected(table: Floats) -> Floats:
    """What independence expects in each cell; margins below 0 count as 0."""
    rows = np.maximum(table.sum(axis=-1), 0.0)
    columns = np.maximum(table.sum(axis=-2), 0.0)
    number = rows.sum(axis=-1)
    outer = rows[..., :, None] * columns[..., None, :]
    whole = np.where(number > 0.0, number, 1.0)[..., None, None]
    return np.asarray(outer / whole, dtype=np.float64)


def _statistics(tables: Floats, deviation: float) -> Floats:
    expected = _expected(tables)
    found: Floats = ((tables - expected) ** 2 / (expected + deviation**2)).sum(axis=(1, 2))
    return found


CHI_SQUARE = Definition(
    statistic=Statistic.CHI_SQUARE,
    functions=(Function("CHI_SQUARE", "CHI_SQUARE({grouped}, {second})"),),
    check=need_public_values,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    columns=(2, 2),
    alone=True,
    of_each="of each cell of the table",
    one_number=False,
    terms=TermLayout(summary=("statistic", NOISE_AWARE, "degrees_of_freedom", "p_value"), crossed=True),
    drawing=Drawing.TABLE,
    aside=((NOISE_AWARE, "noise-aware statistic"), ("degrees_of_freedom", "degrees of freedom"), ("p_value", "p =")),
    measure=MeasuredIn.RECORDS,
)
