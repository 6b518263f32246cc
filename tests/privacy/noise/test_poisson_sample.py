"""A secret sample: every coin enumerated at its edge, each unit on its own, and never the same twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.bernoulli import RATE_BITS, sample
from wardround.privacy.noise.keystream import LARGEST_BLOCK, KeyStream, WordVector
from wardround.simulation.noise import SeededNoise, ZeroNoise

WHOLE = 1 << RATE_BITS
TIE = 1 << 24


class Scripted:
    """Serves the given bytes for the coins, and then one number of 24 bits for every tie."""

    def __init__(self, coins: list[int], tie: int) -> None:
        self.coins = np.array(coins + [255] * (-len(coins) % 8), np.uint8).view(np.uint64)
        self.tie, self.ties, self.is_begun = tie, 0, False

    def words(self, count: int) -> WordVector:
        if not self.is_begun:
            self.is_begun = True
            assert count == self.coins.size
            return self.coins
        self.ties += count
        # The 40 bits that are not used are all set, so that using one would show.
        return np.full(count, self.tie << 40 | (1 << 40) - 1, np.uint64)

    def bits(self, count: int) -> int:
        raise NotImplementedError


@given(chance=st.one_of(st.sampled_from([1, TIE - 1, TIE, TIE + 1, WHOLE // 2, WHOLE - 1]), st.integers(1, WHOLE - 1)))
@settings(deadline=None)
def test_a_coin_is_true_for_exactly_as_many_of_all_32_bit_numbers_as_its_rate_says(chance: int) -> None:
    first, rest = divmod(chance, TIE)
    for tie in {0, max(rest - 1, 0), rest, TIE - 1}:
        source = Scripted(list(range(256)), tie)
        taken = sample(256, Fraction(chance, WHOLE), source)
        # The coin's number is its byte and then the tie's bits: it is below the chance, or it is not.
        assert taken.tolist() == [byte for byte in range(256) if byte * TIE + tie < chance]
        assert source.ties == 1
    # The comparison of ties turns at `rest`: so many numbers with a smaller byte, and so many with the same one.
    assert first * TIE + rest == chance


def test_a_tie_of_every_coin_is_settled_for_each_by_itself() -> None:
    class Ties(Scripted):
        def words(self, count: int) -> WordVector:
            before, served = self.ties, super().words(count)
            if self.ties == 0:
                return served
            return np.arange(before, before + count, dtype=np.uint64) << np.uint64(40)

    units = 2 * LARGEST_BLOCK + 5
    source = Ties([7] * units, 0)
    taken = sample(units, Fraction(7 * TIE + LARGEST_BLOCK + 1000, WHOLE), source)
    assert taken.tolist() == list(range(LARGEST_BLOCK + 1000))
    assert source.ties == units


@pytest.mark.parametrize("rate", [Fraction(11, 4096), Fraction(1, 256), Fraction(1, 8), Fraction(7, 8)])
def test_units_are_taken_as_often_as_the_rate_and_two_per_cent_more_or_less_would_show(rate: Fraction) -> None:
    units, stream = 9 * LARGEST_BLOCK + 17, KeyStream()
    times = np.zeros(units, dtype=np.int64)
    rounds = 40
    for _ in range(rounds):
        taken = sample(units, rate, stream)
        assert (np.diff(taken) > 0).all()
        times[taken] += 1
    expected, variance = units * rounds * rate, units * rounds * rate * (1 - rate)
    # 6.5 standard deviations: once in ten thousand million runs.
    assert abs(times.sum() - float(expected)) < 6.5 * float(variance) ** 0.5
    if 0.02 * float(expected) > 13 * float(variance) ** 0.5:
        for wrong in (Fraction(98, 100), Fraction(102, 100)):
            assert abs(times.sum() - float(wrong * expected)) > 6.5 * float(variance) ** 0.5
    # Coins of one unit are as spread as those of a binomial variable, in every part of every block.
    for part in np.array_split(times, 7):
        spread = float(rounds * rate * (1 - rate))
        assert abs(part.var() / spread - 1.0) < 6.5 * ((2.0 + 1.0 / spread) / part.size) ** 0.5


def test_units_are_taken_independently_of_their_neighbours() -> None:
    rate = Fraction(1, 4)
    taken = np.zeros(200_000, dtype=np.bool_)
    taken[sample(taken.size, rate, KeyStream())] = True
    for apart in (1, 2, 7, 8, 32, LARGEST_BLOCK):
        both = int(np.count_nonzero(taken[apart:] & taken[:-apart]))
        pairs = taken.size - apart
        assert abs(both - pairs / 16) < 5.5 * (pairs / 16) ** 0.5 * 1.3


def test_a_rate_of_one_takes_everybody_and_no_units_are_no_places() -> None:
    assert SecureChance().sample(5, Fraction(1)).tolist() == [0, 1, 2, 3, 4]
    for rate in (Fraction(1), Fraction(1, 2)):
        assert SecureChance().sample(0, rate).shape == (0,)
        assert SecureChance().sample(0, rate).dtype == np.intp


@pytest.mark.parametrize("make", [SecureChance, ZeroNoise, lambda: SeededNoise(3)])
@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1, 2), Fraction(3, 2), Fraction(1, 3), Fraction(1, 2**33)])
def test_a_rate_that_no_coin_has_is_refused(make: Callable[[], Chance], rate: Fraction) -> None:
    with pytest.raises(ValueError, match="whole number of 2\\^-32"):
        make().sample(10, rate)


def test_a_negative_number_of_units_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        SecureChance().sample(-1, Fraction(1, 2))


def test_the_same_sample_twice_is_another_sample() -> None:
    chance, half = SecureChance(), Fraction(1, 2)
    assert len({tuple(chance.sample(256, half).tolist()) for _ in range(50)}) == 50


FORKED_SAMPLES = """
import os
from fractions import Fraction
from wardround.privacy.mechanisms.randomness import SecureChance

chance, half = SecureChance(), Fraction(1, 2)
chance.sample(256, half)
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        os.write(1, (",".join(map(str, chance.sample(256, half))) + "\\n").encode())
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
os.write(1, (",".join(map(str, chance.sample(256, half))) + "\\n").encode())
"""


def test_forks_take_distinct_samples() -> None:
    run = subprocess.run([sys.executable, "-c", FORKED_SAMPLES], capture_output=True, text=True, check=True)
    samples = run.stdout.split()
    assert len(samples) == len(set(samples)) == 5


def test_a_simulation_takes_the_same_samples_again_but_another_one_in_every_step() -> None:
    rate = Fraction(1, 8)
    for make in (ZeroNoise, lambda: SeededNoise(3)):
        chance, again = make(), make()
        first, second = chance.sample(4096, rate), chance.sample(4096, rate)
        assert again.sample(4096, rate).tolist() == first.tolist()
        assert first.tolist() != second.tolist()
        assert abs(first.size - 512) < 5.2 * 448**0.5
        assert ZeroNoise().sample(6, Fraction(1)).tolist() == [0, 1, 2, 3, 4, 5]
