"""The norms of every kind of part: no unit moves a part further than it says, and some unit moves it that far.

A unit is a set of rows, drawn at random and at the corners. Its records are made here in plain Python from the
contract of `site_agent.reading.bounding.tally`, and finished by the function that every source uses.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.reading.bounding.tally import finish, tally_width
from wardround.federation.forms.grids import MOMENT_LEVELS
from wardround.federation.forms.parts import Part, Records, Sums
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit
from wardround.privacy.budget.filter import Cap
from wardround.privacy.noise.distribution import Mechanism

Row = tuple[int, dict[str, Fraction]]
"""The cell a row falls into, and its values."""

KINDS = {
    "events": Aggregate(Statistic.COUNT),
    "patients": Aggregate(Statistic.COUNT, "p"),
    "sum": Aggregate(Statistic.SUM, "x"),
    "mean": Aggregate(Statistic.MEAN, "x"),
    "variance": Aggregate(Statistic.VARIANCE, "x"),
    "std": Aggregate(Statistic.STD, "y"),
    "histogram": Aggregate(Statistic.HISTOGRAM, "x", bins=7),
    "quantile": Aggregate(Statistic.QUANTILE, "x", level=0.5),
    "correlation": Aggregate(Statistic.CORRELATION, "x", ("y", "b")),
    "regression": Aggregate(Statistic.REGRESSION, "y", ("x",)),
    "survival": Aggregate(Statistic.SURVIVAL, "x", ("b",), bins=9),
    "chi_square": Aggregate(Statistic.CHI_SQUARE, "c", ("b",)),
    "choice": Aggregate(Statistic.CHOICE, "c"),
}
OWN_CELLS = ("chi_square", "choice")

bounds = st.tuples(st.integers(-500, 500), st.integers(1, 900)).map(lambda pair: (pair[0], pair[0] + pair[1]))
steps = st.sampled_from([None, Fraction(1, 10), Fraction(1), Fraction(1, 4), Fraction(3, 10)])


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """A study of two numbers, a boolean and two categories, with any bounds, steps and caps."""
    columns = [
        Column(name, ColumnType.NUMBER, Fraction(low), Fraction(high), draw(steps))
        for name, (low, high) in (("x", draw(bounds)), ("y", draw(bounds)))
    ]
    columns += [
        Column("b", ColumnType.BOOLEAN),
        Column("c", ColumnType.CATEGORY, values=("u", "v", "w")),
        Column("g", ColumnType.CATEGORY, values=("1", "2", "3", "4")),
    ]
    table = Table("t", "p", draw(st.integers(1, 9)), draw(st.integers(1, 6)), tuple(columns))
    return Study("s", draw(st.sampled_from(Unit)), 1, Cap(1.0, 1e-6), (table,), 1, 60.0, 60.0)


def the_part(kind: str, study: Study, *, mechanism: Mechanism = Mechanism.DISCRETE_LAPLACE) -> Part:
    grouped = () if kind in OWN_CELLS else (Grouping("g"),)
    return shape(Query("t", (KINDS[kind],), None, grouped), study, mechanism).parts[0]


def level(part: Part, place: int, value: Fraction) -> int:
    quantiser = part.quantisers[place]
    exact = (value - quantiser.origin) * quantiser.per_unit + Fraction(1, 2)
    return min(max(exact.__floor__(), quantiser.low), quantiser.high)


def code(part: Part, found: int) -> int:
    assert part.coding is not None
    return min((found + part.coding.offset) // part.coding.width, part.coding.codes - 1)


def tally_of(part: Part, rows: list[Row]) -> np.ndarray:
    """The sums of one unit's records; the rows that count were chosen already."""
    tally = np.zeros((part.groups, tally_width(part)), dtype=np.object_)
    if part.records is Records.ROWS:
        for cell, values in rows:
            tally[cell, 0] += 1 if part.sums is Sums.COUNT else level(part, 0, values[part.columns[0]])
        return tally
    for cell, together in itertools.groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0]):
        tally[cell] += record(part, [values for _, values in together])
    return tally


def record(part: Part, rows: list[dict[str, Fraction]]) -> list[int]:
    found = [0] * tally_width(part)
    if part.sums is Sums.COUNT:
        return [1]
    rows_levels = [[level(part, i, row[name]) for i, name in enumerate(part.columns)] for row in rows]
    if part.records is Records.LAST:
        found[max(2 * code(part, time) + event for time, event in rows_levels)] = 1
        return found
    n = len(rows)
    q = [(2 * sum(column) + n) // (2 * n) for column in zip(*rows_levels, strict=True)]
    match part.sums:
        case Sums.COUNTED_LEVELS:
            return [1, q[0]]
        case Sums.PRODUCTS:
            return [1, *q, *(a * b for a, b in itertools.combinations_with_replacement(q, 2))]
        case _:
            found[code(part, q[0])] = 1
            return found


def norms(part: Part, rows: list[Row]) -> tuple[int, int]:
    moved = [int(value) for value in finish(part, tally_of(part, rows)).total]
    return sum(map(abs, moved)), sum(value * value for value in moved)


def corners(part: Part, study: Study, most: int) -> list[list[Row]]:
    """Units whose rows are all alike: at a bound or in the middle, in one cell or spread over as many as count."""
    numbers = [study.tables[0].column(name).numeric_bounds or (0, 0) for name in part.columns if part.quantisers]
    choices = [(low, high, (Fraction(low) + high) / 2) for low, high in numbers]
    cells = min(part.max_groups, part.groups, most if part.records is Records.ROWS else part.groups)
    found = []
    for values in itertools.product(*choices):
        named = dict(zip(part.columns, values, strict=True)) if part.quantisers else {}
        found.append([(0, named)] * most)
        found.append([(cell, named) for cell in range(cells)])
    return found


def row_cap(part: Part, study: Study) -> int:
    """How many rows of a unit count; beyond the cap on cells a kind of records takes any number of rows."""
    if study.unit is Unit.EVENT:
        return 1
    return study.tables[0].max_rows_per_unit


@pytest.mark.parametrize("kind", KINDS)
@given(study=studies(), seed=st.integers(0, 2**32), mechanism=st.sampled_from(Mechanism))
@settings(max_examples=12, deadline=None)
def test_no_unit_moves_a_part_further_than_its_norms(kind: str, study: Study, seed: int, mechanism: Mechanism) -> None:
    part = the_part(kind, study, mechanism=mechanism)
    dice, most = random.Random(seed), row_cap(part, study)
    for _ in range(20):
        cells = dice.sample(range(part.groups), min(part.max_groups, part.groups))
        if part.records is Records.ROWS:
            cells = list(range(part.groups))
        rows: list[Row] = []
        for _ in range(dice.randint(1, most if part.records is Records.ROWS or study.unit is Unit.EVENT else 12)):
            values = {name: Fraction(dice.uniform(-2000, 2000)) for name in part.columns if part.quantisers}
            rows.append((dice.choice(cells), values))
        l1, l2_squared = norms(part, rows)
        assert l1 <= part.l1_sensitivity
        assert l2_squared <= part.l2_sensitivity_squared
    for rows in corners(part, study, most):
        l1, l2_squared = norms(part, rows)
        assert l1 <= part.l1_sensitivity
        assert l2_squared <= part.l2_sensitivity_squared


@pytest.mark.parametrize("kind", KINDS)
@given(study=studies())
@settings(max_examples=12, deadline=None)
def test_some_unit_moves_a_part_as_far_as_its_norms(kind: str, study: Study) -> None:
    part = the_part(kind, study)
    reached = [norms(part, rows) for rows in corners(part, study, row_cap(part, study))]
    assert max(l1 for l1, _ in reached) == part.l1_sensitivity
    length = max(l2_squared for _, l2_squared in reached)
    if len(part.columns) > 1 and part.sums is Sums.PRODUCTS:
        # 41 stands for 29·√2 = 41.01: the square root has no whole weight, and none of it may be missing.
        assert 0.999 * part.l2_sensitivity_squared < length <= part.l2_sensitivity_squared
    else:
        assert length == part.l2_sensitivity_squared


def a_study(*, rows: int = 4, groups: int = 3, unit: Unit = Unit.PATIENT) -> Study:
    columns = (
        Column("x", ColumnType.NUMBER, Fraction(80), Fraction(200), Fraction(1, 10)),
        Column("y", ColumnType.NUMBER, Fraction(-5), Fraction(3)),
        Column("b", ColumnType.BOOLEAN),
        Column("c", ColumnType.CATEGORY, values=("u", "v", "w")),
        Column("g", ColumnType.CATEGORY, values=("1", "2", "3", "4")),
        Column("d", ColumnType.DATE, Fraction(737_425), Fraction(739_000)),
    )
    table = Table("t", "p", rows, groups, columns, max_windows_per_unit=2)
    return Study("s", unit, 1, Cap(1.0, 1e-6), (table,), 1, 60.0, 60.0)


def test_the_norms_in_numbers() -> None:
    study, told = a_study(), {}
    for kind in KINDS:
        part = the_part(kind, study)
        one = {
            Sums.LEVELS: part.quantisers[0].high if part.quantisers else 1,
            Sums.COUNTED_LEVELS: part.quantisers[0].high if part.quantisers else 1,
            Sums.PRODUCTS: (part.quantisers[0].high // 2) ** 2 if len(part.quantisers) == 1 else part.increment,
        }.get(part.sums, part.increment)
        told[kind] = (Fraction(part.l1_sensitivity, one), Fraction(part.l2_sensitivity_squared, one**2))
    # m = 4 rows, ℓ₀ = 3 groups.
    assert told["events"] == told["sum"] == (4, 16)
    assert told["patients"] == told["mean"] == told["histogram"] == told["survival"] == told["choice"] == (3, 3)
    assert told["variance"] == told["std"] == (3 * Fraction(5, 2), 3 * Fraction(9, 4))
    assert told["chi_square"] == (1, 1)
    tree = the_part("quantile", study).tree
    assert tree is not None
    assert told["quantile"] == (3 * tree.levels, 3 * tree.levels)


def test_a_series_by_month_counts_a_unit_in_its_windows_and_intervals_in_its_groups() -> None:
    series = Query("t", (Aggregate(Statistic.COUNT, "p"),), None, (Grouping("d", GroupBy.MONTH),))
    bins = Query("t", (Aggregate(Statistic.COUNT, "p"),), None, (Grouping("x", GroupBy.BINS, edges=(100.0, 120.0)),))
    assert shape(series, a_study(), Mechanism.DISCRETE_LAPLACE).parts[0].l1_sensitivity == 2
    assert shape(bins, a_study(), Mechanism.DISCRETE_LAPLACE).parts[0].l1_sensitivity == 3
    assert shape(series, a_study(unit=Unit.EVENT), Mechanism.DISCRETE_LAPLACE).parts[0].l1_sensitivity == 1


def test_narrower_bounds_lower_the_norm_of_a_sum() -> None:
    wide = Aggregate(Statistic.SUM, "x")
    narrow = Aggregate(Statistic.SUM, "x", clips=(Clip("x", 80.0, 150.0),))
    norms = [
        part.l1_sensitivity * part.grid
        for each in (wide, narrow)
        for part in shape(Query("t", (each,)), a_study(), Mechanism.DISCRETE_LAPLACE).parts
    ]
    assert norms == [4 * 200, 4 * 150]


def test_moments_of_a_middle_and_of_an_end_show_why_the_norms_are_what_they_are() -> None:
    part = the_part("variance", a_study(groups=1))
    half = part.quantisers[0].high // 2
    assert 2 * half <= MOMENT_LEVELS
    at = [[int(v) for v in finish(part, tally_of(part, [(0, {"x": Fraction(x)})])).total[:3]] for x in (80, 140, 200)]
    # (1, y, y² − ½) in units of h²: the ends are (1, ±1, ½), the middle is (1, 0, −½).
    assert [[2 * value // half**2 for value in values] for values in at] == [[2, -2, 1], [2, 0, -1], [2, 2, 1]]
