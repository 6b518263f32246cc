"""Many coins at once: the same decisions as one exact coin at a time, also at the very edge."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from wardround.privacy.noise.bernoulli import LARGEST_LIMIT, Coins, exp_enclosure, uniform_below
from wardround.privacy.noise.keystream import LARGEST_BLOCK, KeyStream, WordVector

RARE = 1e-10


class Words:
    """Serves the given words, then the same further bit for ever."""

    def __init__(self, words: list[int], bit: int = 0) -> None:
        self.served, self.bit, self.further = words, bit, 0

    def words(self, count: int) -> WordVector:
        block, self.served = self.served[:count], self.served[count:]
        return np.array(block + [0] * (count - len(block)), np.uint64)

    def bits(self, count: int) -> int:
        self.further += count
        return self.bit * ((1 << count) - 1)


@pytest.mark.parametrize("exponent", [Fraction(1, 7), Fraction(1), Fraction(22, 7), Fraction(40)])
def test_a_word_at_the_edge_is_settled_by_further_bits(exponent: Fraction) -> None:
    low, high = exp_enclosure(exponent.numerator, exponent.denominator, 64)
    assert high == low + 1
    coins = Coins([exponent.numerator], exponent.denominator)
    kind = np.zeros(3, np.int64)
    for bit, at_the_edge in ((0, True), (1, False)):
        source = Words([low - 1, low, high], bit)
        assert coins.flip(kind, source).tolist() == [True, at_the_edge, False]
        assert source.further > 0


def test_a_certain_coin_is_true_for_every_word() -> None:
    words = [0, 1, 2**63, 2**64 - 2, 2**64 - 1]
    assert Coins([0], 5).flip(np.zeros(5, np.int64), Words(words)).all()


def test_a_nearly_certain_coin_still_asks_about_the_last_word() -> None:
    coins = Coins([1], 2**80)
    assert coins.flip(np.zeros(1, np.int64), Words([2**64 - 1], bit=0)).tolist() == [True]
    assert coins.flip(np.zeros(1, np.int64), Words([2**64 - 1], bit=1)).tolist() == [False]


def test_a_hopeless_coin_is_true_for_the_first_word_only_if_all_further_bits_agree() -> None:
    coins = Coins([100], 1)
    assert coins.flip(np.zeros(2, np.int64), Words([0, 1])).tolist() == [True, False]
    assert coins.flip(np.zeros(1, np.int64), Words([0], bit=1)).tolist() == [False]


def test_each_kind_has_its_own_coin_over_several_blocks() -> None:
    size = 3 * LARGEST_BLOCK + 5
    kinds = np.arange(size) % 3
    true = Coins([0, 1, 2], 1).flip(kinds, KeyStream())
    for kind in range(3):
        chance = math.exp(-kind)
        heads, tosses = int(true[kinds == kind].sum()), int((kinds == kind).sum())
        assert stats.binomtest(heads, tosses, chance).pvalue > RARE


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 1000])
def test_a_number_below_a_limit_is_any_of_them(limit: int) -> None:
    drawn = uniform_below(limit, 100_000, KeyStream())
    assert drawn.size == 100_000
    assert 0 <= drawn.min() <= drawn.max() < limit
    if limit > 1:
        assert stats.chisquare(np.bincount(drawn, minlength=limit)).pvalue > RARE


def test_numbers_at_or_above_the_limit_are_thrown_away() -> None:
    # Three bits of each word: 7, 5, 4, 0; below 5 are only the last two.
    words = [number << 61 for number in (7, 5, 4, 0)]
    assert uniform_below(5, 2, Words(words)).tolist() == [4, 0]


@pytest.mark.parametrize("limit", [0, -1, LARGEST_LIMIT + 1])
def test_there_is_no_choice_among_nothing(limit: int) -> None:
    with pytest.raises(ValueError, match="things to choose from"):
        uniform_below(limit, 1, KeyStream())
