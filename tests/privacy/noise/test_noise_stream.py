"""The key stream: fresh for every draw, and for every process."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import LARGEST_BLOCK, KeyStream
from wardround.privacy.noise.sampler import SecureNoise

WIDE = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(2**40))

FORKED_DRAWS = """
import os
from fractions import Fraction
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise

law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(2**40))
noise = SecureNoise()
noise.draw(law, 8)
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        os.write(1, (" ".join(map(str, noise.draw(law, 8))) + "\\n").encode())
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
os.write(1, (" ".join(map(str, noise.draw(law, 8))) + "\\n").encode())
"""


def test_forks_draw_distinct_noise() -> None:
    run = subprocess.run([sys.executable, "-c", FORKED_DRAWS], capture_output=True, text=True, check=True)
    values = run.stdout.split()
    assert len(values) == 5 * 8
    assert len(set(values)) == 5 * 8


def test_the_same_question_twice_draws_distinct_noise() -> None:
    noise = SecureNoise()
    assert not set(noise.draw(WIDE, 100).tolist()) & set(noise.draw(WIDE, 100).tolist())


def test_no_draws_are_no_draws_and_fewer_are_refused() -> None:
    assert SecureNoise().draw(WIDE, 0).shape == (0,)
    assert SecureNoise().draw(WIDE, 0).dtype == np.int64
    with pytest.raises(ValueError, match="cannot be negative"):
        SecureNoise().draw(WIDE, -1)


def test_words_and_bits_never_repeat_within_a_stream() -> None:
    stream = KeyStream()
    served: list[int] = []
    for count in (3, 1, LARGEST_BLOCK, 5, 100):
        served += stream.words(count).tolist()
        served.append(stream.bits(64))
    assert len(set(served)) == len(served) == 5 + 3 + 1 + LARGEST_BLOCK + 5 + 100


def test_single_bits_leave_a_served_block_as_it_was() -> None:
    stream = KeyStream()
    block = stream.words(64)
    before = block.copy()
    stream.bits(1)
    stream.bits(96)
    assert np.array_equal(block, before)


def test_bits_are_fair_and_in_range() -> None:
    stream = KeyStream()
    for count in (1, 2, 7, 8, 9, 96):
        assert all(0 <= stream.bits(count) < 1 << count for _ in range(200))
    ones = sum(stream.bits(1) for _ in range(40_000))
    assert abs(ones - 20_000) < 6.5 * 100
    words = stream.words(LARGEST_BLOCK)
    for bit in range(64):
        ones = int(np.count_nonzero(words >> np.uint64(bit) & np.uint64(1)))
        assert abs(ones - LARGEST_BLOCK / 2) < 6.5 * LARGEST_BLOCK**0.5 / 2


@pytest.mark.parametrize("count", [-1, LARGEST_BLOCK + 1])
def test_a_block_beyond_the_largest_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="at most"):
        KeyStream().words(count)
