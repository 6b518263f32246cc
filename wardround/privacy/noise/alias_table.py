"""Discrete Gaussian noise from a table, for the vectors that have millions of coordinates.

Walker's alias method over probabilities that are whole multiples of 2^-128. A 32-bit word
picks a column and compares the rest with its threshold; a tie is decided by 96 further
bits, so the table's law is drawn without rounding. That law is within 2^-100 in total
variation of the discrete Gaussian (PROOFS.md#alias-table), which the accountant charges as
slack; a pure ε claim has no slack and never comes here.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.noise.bernoulli import exp_enclosure
from wardround.privacy.noise.keystream import BitSource
from wardround.privacy.noise.vectors import IntVector

TOTAL_BITS = 128
WORD_BITS = 32
TIE_BITS = TOTAL_BITS - WORD_BITS

# P(|N| > 12.6 σ) < 2^-118 for σ ≥ 1.
_REACH = Fraction(126, 10)
_WEIGHT_BITS = 256
_FEWEST_COLUMN_BITS = 8
_CHUNK = 1 << 14

_Halves: TypeAlias = NDArray[np.uint32]


def column_bits(sigma: Fraction) -> int:
    """The binary logarithm of the number of columns of a table for σ."""
    return max(_FEWEST_COLUMN_BITS, (2 * _reach(sigma)).bit_length())


def _reach(sigma: Fraction) -> int:
    return int(_REACH * sigma) + 1


@dataclass(frozen=True, slots=True, eq=False)
class AliasTable:
    """A distribution over integers, ready to be drawn by the million.

    Column i is chosen with probability 2^-bits. In it, a 128-bit number whose leading
    bits are i yields values[2i+1] if it is below thresholds[i]·2^96 + remainders[i], else
    values[2i].
    """

    bits: int
    thresholds: _Halves
    remainders: tuple[int, ...]
    values: IntVector

    def draw(self, size: int, source: BitSource) -> IntVector:
        drawn = np.empty(size, np.int64)
        column = np.empty(_CHUNK, np.int64)
        threshold = np.empty(_CHUNK, np.uint32)
        is_below = np.empty(_CHUNK, np.bool_)
        for start in range(0, size, _CHUNK):
            count = min(_CHUNK, size - start)
            words = source.words((count + 1) // 2).view(np.uint32)[:count]
            self._pick(words, column[:count], threshold[:count], is_below[:count], drawn[start : start + count], source)
        return drawn

    def _pick(
        self,
        words: _Halves,
        column: IntVector,
        threshold: _Halves,
        is_below: NDArray[np.bool_],
        drawn: IntVector,
        source: BitSource,
    ) -> None:
        """Turn each word into a value; the buffers only save allocations."""
        np.right_shift(words, np.uint32(WORD_BITS - self.bits), out=column, casting="unsafe")
        # The indices are in range by construction; "clip" spares take() a buffered check.
        np.take(self.thresholds, column, out=threshold, mode="clip")
        np.equal(words, threshold, out=is_below)
        ties = np.flatnonzero(is_below)
        np.less(words, threshold, out=is_below)
        for tie in ties:
            is_below[tie] = source.bits(TIE_BITS) < self.remainders[column[tie]]
        np.left_shift(column, 1, out=column)
        np.add(column, is_below, out=column, casting="unsafe")
        np.take(self.values, column, out=drawn, mode="clip")


@lru_cache(maxsize=8)
def gaussian_table(sigma: Fraction) -> AliasTable:
    """The table of the discrete Gaussian of σ ≥ 1."""
    if sigma < 1:
        raise ValueError("a table needs a σ of at least one grid step")
    weights = _gaussian_weights(sigma)
    bits = column_bits(sigma)
    own = np.zeros(1 << bits, np.int64)
    own[: len(weights)] = np.arange(len(weights)) - len(weights) // 2
    chances = _whole_chances(weights) + [0] * ((1 << bits) - len(weights))
    limits, other = _walker(chances, 1 << (TOTAL_BITS - bits))

    # A limit becomes the 128-bit number to stay below: its column first, then the limit.
    # A column that is all its own has no alias to lose to, so its limit may be anything.
    full = 1 << (TOTAL_BITS - bits)
    edges = [(i << (TOTAL_BITS - bits)) + (limit if limit < full else 0) for i, limit in enumerate(limits)]
    values = np.empty(2 << bits, np.int64)
    values[0::2] = own[other]
    values[1::2] = own
    mask = (1 << TIE_BITS) - 1
    return AliasTable(
        bits, np.array([edge >> TIE_BITS for edge in edges], np.uint32), tuple(edge & mask for edge in edges), values
    )


def _gaussian_weights(sigma: Fraction) -> list[int]:
    """exp(-n²/2σ²) for -reach ≤ n ≤ reach in units of 2^-256, each by its ratio to the last."""
    base = exp_enclosure(sigma.denominator**2, 2 * sigma.numerator**2, _WEIGHT_BITS)[0]
    square = base * base >> _WEIGHT_BITS
    weights, ratio = [1 << _WEIGHT_BITS], base
    for _ in range(_reach(sigma)):
        weights.append(weights[-1] * ratio >> _WEIGHT_BITS)
        ratio = ratio * square >> _WEIGHT_BITS
    return weights[:0:-1] + weights


def _whole_chances(weights: list[int]) -> list[int]:
    """The weights as multiples of 2^-128 that add up to one; the middle takes the rounding."""
    total = sum(weights)
    chances = [(weight << TOTAL_BITS) // total for weight in weights]
    chances[len(chances) // 2] += (1 << TOTAL_BITS) - sum(chances)
    return chances


def _walker(chances: list[int], room: int) -> tuple[list[int], list[int]]:
    """Fill columns of `room` each: column i holds limits[i] of i and the rest of other[i]."""
    left = list(chances)
    limits, other = [room] * len(left), list(range(len(left)))
    poor = [i for i, chance in enumerate(left) if chance < room]
    rich = [i for i, chance in enumerate(left) if chance >= room]
    while poor and rich:
        needy, donor = poor.pop(), rich[-1]
        limits[needy], other[needy] = left[needy], donor
        left[donor] -= room - left[needy]
        if left[donor] < room:
            poor.append(rich.pop())
    # The chances add up to all the room there is, in integers: nobody poor is left over.
    return limits, other
