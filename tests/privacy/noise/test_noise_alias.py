"""The table sampler: its law enumerated in integers, its ties decided by the last bit."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from wardround.privacy.noise.alias_table import TIE_BITS, TOTAL_BITS, WORD_BITS, AliasTable, column_bits, gaussian_table
from wardround.privacy.noise.keystream import WordVector


class Scripted:
    """Serves the given 32-bit words, and one number for every tie."""

    def __init__(self, halves: list[int], tie: int = 0) -> None:
        self.block = np.array(halves + [0] * (len(halves) % 2), np.uint32).view(np.uint64)
        self.tie, self.ties = tie, 0

    def words(self, count: int) -> WordVector:
        served, self.block = self.block[:count], self.block[count:]
        return served

    def bits(self, count: int) -> int:
        assert count == TIE_BITS
        self.ties += 1
        return self.tie


def edges(table: AliasTable) -> list[int]:
    return [int(top) << TIE_BITS | rest for top, rest in zip(table.thresholds, table.remainders, strict=True)]


def law_of(table: AliasTable) -> Counter[int]:
    """How many of the 2^128 equally likely numbers yield each value."""
    room = 1 << (TOTAL_BITS - table.bits)
    law: Counter[int] = Counter()
    for column, edge in enumerate(edges(table)):
        own = edge - column * room
        assert 0 <= own < room
        law[int(table.values[2 * column + 1])] += own
        law[int(table.values[2 * column])] += room - own
    return law


def total_variation(law: Counter[int], sigma: Fraction) -> Fraction:
    """The distance from the discrete Gaussian, its own tail included, to 80 digits."""
    far = math.ceil(22 * sigma)
    with localcontext(prec=80):
        rate = Decimal(sigma.denominator**2) / Decimal(2 * sigma.numerator**2)
        half = [(-rate * n * n).exp() for n in range(far + 1)]
        whole = 2 * sum(half) - 1
        distance = sum(
            abs(half[abs(n)] / whole - Decimal(law[n]) / Decimal(2**TOTAL_BITS)) for n in range(-far, far + 1)
        )
        return Fraction(distance) / 2


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(4), Fraction(10), Fraction(276_837, 1024), Fraction(1000)])
def test_the_table_is_within_2_to_the_minus_100_of_the_discrete_gaussian(sigma: Fraction) -> None:
    law = law_of(gaussian_table(sigma))
    assert law.total() == 1 << TOTAL_BITS
    assert total_variation(law, sigma) < Fraction(1, 2**108)


def test_the_distance_sees_a_table_of_another_scale() -> None:
    assert total_variation(law_of(gaussian_table(Fraction(10))), Fraction(10_241, 1024)) > Fraction(1, 2**20)


@pytest.mark.parametrize("sigma", [Fraction(4), Fraction(40)])
def test_every_column_splits_exactly_at_its_edge(sigma: Fraction) -> None:
    table = gaussian_table(sigma)
    width = WORD_BITS - table.bits
    for column, edge in enumerate(edges(table)):
        top, rest = divmod(edge, 1 << TIE_BITS)
        alias, own = int(table.values[2 * column]), int(table.values[2 * column + 1])
        first, last = column << width, (column + 1 << width) - 1
        below = [word for word in {first, top - 1} if first <= word < top]
        above = [word for word in {top + 1, last} if top < word <= last]
        assert table.draw(len(below), Scripted(below)).tolist() == [own] * len(below)
        assert table.draw(len(above), Scripted(above)).tolist() == [alias] * len(above)
        at_edge = Scripted([top], tie=rest)
        assert table.draw(1, at_edge).tolist() == [alias]
        assert at_edge.ties == 1
        if rest:
            assert table.draw(1, Scripted([top], tie=rest - 1)).tolist() == [own]


def test_ties_in_a_long_draw_touch_only_their_own_places() -> None:
    table = gaussian_table(Fraction(4))
    plain = np.random.default_rng(3).integers(0, 2**32, 40_001, np.uint32)
    tied = plain.copy()
    tied[[5, 20_000, 40_000]] = table.thresholds[200]
    source = Scripted(tied.tolist(), tie=(1 << TIE_BITS) - 1)
    drawn, expected = table.draw(tied.size, source), table.draw(plain.size, Scripted(plain.tolist()))
    assert source.ties == 3
    assert set(np.flatnonzero(drawn != expected).tolist()) <= {5, 20_000, 40_000}
    assert drawn[5] == drawn[20_000] == drawn[40_000] == table.values[400]


def test_a_table_has_a_column_for_every_value_within_reach() -> None:
    for sigma in (Fraction(1), Fraction(10), Fraction(2000)):
        assert 1 << column_bits(sigma) >= 2 * 12.6 * sigma
    with pytest.raises(ValueError, match="at least one grid step"):
        gaussian_table(Fraction(1, 2))


def test_no_draws_are_no_draws() -> None:
    assert gaussian_table(Fraction(4)).draw(0, Scripted([])).shape == (0,)
