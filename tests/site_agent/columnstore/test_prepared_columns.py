"""A column is kept in as few bits as it needs, and what comes back is what went in."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.reading.batches import NO_DAY, Booleans, Days, Integers, Numbers, Places
from site_agent.reading.columnstore.column_encoding import (
    NO_INTEGER,
    CodeRange,
    ColumnFile,
    KeptColumn,
    decoded,
    encoded,
    raw_type,
    rows_where,
)
from wardround.federation.study.study import Column, ColumnType

NUMBER = Column("x", ColumnType.NUMBER)
INTEGER = Column("x", ColumnType.INTEGER)
DATE = Column("x", ColumnType.DATE)
CATEGORY = Column("x", ColumnType.CATEGORY, values=("a", "b"))
BOOLEAN = Column("x", ColumnType.BOOLEAN)

DECIMALS = st.builds(lambda steps, places: steps / 10**places, st.integers(-(2**33), 2**33), st.integers(0, 5))
ANY_DOUBLE = st.floats(allow_nan=True, allow_infinity=False)


def kept(column: Column, *batches: list[float] | list[int]) -> tuple[np.ndarray, str]:
    """What comes back of the last batch when all were seen, and the type it was kept in."""
    raws = [np.array(batch, dtype=raw_type(column)) for batch in batches]
    extent = CodeRange(column)
    for raw in raws:
        extent.see(raw)
    layout = extent.layout()
    match decoded(encoded(raws[-1], column, layout), column, layout, ()):
        case Integers(values, present):
            return np.where(present, values, NO_INTEGER), layout.dtype
        case Numbers(values) | Places(values) | Booleans(values) | Days(values):
            return values, layout.dtype
    raise AssertionError


@settings(max_examples=60, deadline=None)
@given(st.lists(DECIMALS | ANY_DOUBLE, max_size=12), st.lists(DECIMALS, max_size=12))
def test_doubles_come_back_bit_for_bit(first: list[float], second: list[float]) -> None:
    values, _ = kept(NUMBER, first, second)
    assert np.array_equal(values, np.array(second, dtype=np.float64), equal_nan=True)
    values, _ = kept(NUMBER, second, first)
    assert np.array_equal(values, np.array(first, dtype=np.float64), equal_nan=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300), max_size=12))
def test_whole_numbers_come_back(values: list[int]) -> None:
    assert kept(INTEGER, values)[0].tolist() == values


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(NO_DAY, 2**31 - 1) | st.integers(19_000, 20_000), max_size=12))
def test_days_come_back(days: list[int]) -> None:
    assert kept(DATE, days)[0].tolist() == days


@pytest.mark.parametrize(
    ("column", "batches", "dtype"),
    [
        (NUMBER, ([80.0, 131.2, 200.0], [np.nan]), "<u2"),
        (NUMBER, ([1.0, 2.0], [0.5]), "|u1"),
        (NUMBER, ([1 / 3],), "<f8"),
        (NUMBER, ([0.1, 0.1 + 0.2],), "<f8"),
        (NUMBER, ([0.1], [1e308]), "<f8"),
        (NUMBER, ([0.0], [2.0**31 - 1]), "<u4"),
        (INTEGER, ([0, 253, NO_INTEGER],), "|u1"),
        (INTEGER, ([0, 255],), "<u2"),
        (INTEGER, ([-(2**62), 2**62],), "<i8"),
        (DATE, ([18_000, 20_000],), "<u2"),
        (CATEGORY, ([-2, -1, 0, 1],), "|u1"),
        (BOOLEAN, ([-1, 0, 1],), "|u1"),
        (INTEGER, ([],), "|u1"),
    ],
)
def test_as_few_bits_as_the_values_need(column: Column, batches: tuple[list[float], ...], dtype: str) -> None:
    values, found = kept(column, *batches)
    assert found == dtype
    assert np.array_equal(values, np.array(batches[-1], dtype=raw_type(column)), equal_nan=column is NUMBER)


def test_a_divided_step_is_the_double_that_its_decimal_text_means() -> None:
    steps = np.arange(-2000, 2000)
    for divisor in (10, 100, 1000, 10_000):
        texts = [float(Fraction(int(step), divisor)) for step in steps]
        assert (steps / divisor).tolist() == texts


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([("|u1", 256), ("|u1", 90), ("<u2", 2**16), ("<u4", 2**16 + 2)]), st.data())
def test_rows_compared_with_runs_are_the_rows_looked_up_one_by_one(kind: tuple[str, int], data: st.DataObject) -> None:
    dtype, codes = kind
    borders = data.draw(st.lists(st.integers(0, codes) | st.sampled_from([0, codes - 1, codes]), max_size=9))
    wanted = np.zeros(codes, dtype=np.bool_)
    for border in borders:
        wanted[border:] ^= True
    every = np.random.default_rng(len(borders)).permutation(codes).astype(dtype)
    column = KeptColumn(INTEGER, ColumnFile(dtype, packed=True, low=0, high=codes - 2), every)
    assert column.small
    found = rows_where(column, lambda _: wanted)
    rows = slice(3, codes - 5)
    assert np.array_equal(found(rows), wanted[every[rows]])
