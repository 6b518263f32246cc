"""Many exact coins at once, and fair choices among any number of things.

A coin compares 64 random bits with exp(-x) enclosed between two integers; what this leaves open, once in
about 2^63 times, is settled by further bits, so no probability is rounded (PROOFS.md#many-coins).
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.noise.exponential import Uniform, exp_enclosure
from wardround.privacy.noise.keystream import LARGEST_BLOCK, BitSource
from wardround.privacy.noise.vectors import IntVector

Flips: TypeAlias = NDArray[np.bool_]

LARGEST_LIMIT = 1 << 62

_WORD_BITS = 64
_LAST_WORD = (1 << _WORD_BITS) - 1


class Coins:
    """A coin for each kind: kind i is true with probability exp(-numerators[i]/denominator), exactly."""

    __slots__ = ("_denominator", "_numerators", "_open_to", "_true_below")

    def __init__(self, numerators: Sequence[int], denominator: int) -> None:
        self._numerators, self._denominator = numerators, denominator
        bounds = {x: exp_enclosure(x, denominator, _WORD_BITS) for x in set(numerators)}
        # A certain coin has the bound 2^64, which no word holds: its last word counts as open.
        self._true_below = np.array([min(bounds[x][0], _LAST_WORD) for x in numerators], np.uint64)
        self._open_to = np.array([min(bounds[x][1] - 1, _LAST_WORD) for x in numerators], np.uint64)

    def flip(self, kinds: IntVector, source: BitSource) -> Flips:
        """One independent coin for every entry of `kinds`."""
        outcome = np.empty(kinds.size, np.bool_)
        for start in range(0, kinds.size, LARGEST_BLOCK):
            kind = kinds[start : start + LARGEST_BLOCK]
            words = source.words(kind.size)
            is_true = words < self._true_below[kind]
            is_open = ~is_true & (words <= self._open_to[kind])
            for lane in np.flatnonzero(is_open):
                coin = Uniform(source, int(words[lane]), _WORD_BITS)
                is_true[lane] = coin.is_below_exp(self._numerators[kind[lane]], self._denominator)
            outcome[start : start + kind.size] = is_true
        return outcome


def uniform_below(limit: int, size: int, source: BitSource) -> IntVector:
    """`size` independent whole numbers from 0 to limit - 1, each as likely as any other."""
    if not 1 <= limit <= LARGEST_LIMIT:
        raise ValueError(f"a choice needs from 1 to 2^62 things to choose from, not {limit}")
    shift = np.uint64(_WORD_BITS - max(1, (limit - 1).bit_length()))
    drawn = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        # At least half of the numbers are kept; what is too much is thrown away unseen.
        words = source.words(min(LARGEST_BLOCK, 2 * (size - filled) + 16))
        numbers = (words >> shift).view(np.int64)
        kept = numbers[numbers < limit][: size - filled]
        drawn[filled : filled + kept.size] = kept
        filled += kept.size
    return drawn
