"""Coins that fall true with exactly the stated probability: exp(-x) for rational x, or a rate; one, or many at once.

For exp(-x) a uniform real is kept as the bits known so far and exp(-x) as an interval of integers: only when the two
cannot be told apart is another bit drawn (PROOFS.md#coins). Many coins compare 64 bits each; what this leaves open,
once in about 2^63 times, is settled by further bits (PROOFS.md#many-coins). A Poisson sample's rate is a whole number
of 2^-32: one byte decides nearly every coin, and only a tie draws the other 24 bits (PROOFS.md#poisson-sample).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.noise.keystream import LARGEST_BLOCK, BitSource
from wardround.privacy.noise.vectors import IntVector

_GUARD_BITS = 16

Places: TypeAlias = NDArray[np.intp]

RATE_BITS = 32
"""A chance is a whole number of 2^-32."""

_TIE_BITS = 24
_UNUSED_BITS = np.uint64(64 - _TIE_BITS)
_WORD_BYTES = 8
_COINS = LARGEST_BLOCK * _WORD_BYTES
"""Coins that one block of words holds."""

Flips: TypeAlias = NDArray[np.bool_]

LARGEST_LIMIT = 1 << 62

_WORD_BITS = 64
_LAST_WORD = (1 << _WORD_BITS) - 1


def exp_enclosure(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers low and high with low ≤ 2^bits·exp(-numerator/denominator) ≤ high, for numerator ≥ 0.

    Every step rounds outwards, so the bounds hold whatever the precision; the guard bits
    only make them tight.
    """
    if numerator == 0:
        return 1 << bits, 1 << bits
    halvings = (numerator // denominator).bit_length()
    work = bits + 2 * halvings + _GUARD_BITS
    # y = x / 2^halvings < 1, where x is the fraction, as an interval in units of 2^-work.
    y_low = (numerator << (work - halvings)) // denominator
    low, high = _alternating_series(y_low, y_low + 1, work)
    for _ in range(halvings):
        low, high = low * low >> work, _ceil_shift(high * high, work)
    return low >> (work - bits), _ceil_shift(high, work - bits)


def _alternating_series(y_low: int, y_high: int, work: int) -> tuple[int, int]:
    """Bounds of exp(-y) for y in [y_low, y_high] ⊂ [0, 1], all in units of 2^-work.

    Terms fall and alternate, so what is left out is smaller than the first term left out.
    """
    term_low = term_high = low = high = 1 << work
    order = 0
    while term_high > 1:
        order += 1
        term_low = term_low * y_low // (order << work)
        term_high = -(-term_high * y_high // (order << work))
        if order % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    return max(low - term_high, 0), high + term_high


def _ceil_shift(value: int, shift: int) -> int:
    return -(-value >> shift)


# Whole exponents come back for every block of the geometric law; others almost never do.
_whole_enclosure = lru_cache(maxsize=4096)(exp_enclosure)


@dataclass(slots=True)
class Uniform:
    """A uniform real in [0, 1) whose first `length` bits are `prefix`; the rest is undrawn."""

    source: BitSource
    prefix: int = 0
    length: int = 0

    def is_below_exp(self, numerator: int, denominator: int = 1) -> bool:
        """Whether this real is below exp(-numerator/denominator); draws bits only while that is open."""
        enclosure = _whole_enclosure if denominator == 1 else exp_enclosure
        while True:
            low, high = enclosure(numerator, denominator, self.length)
            if self.prefix < low:
                return True
            if self.prefix >= high:
                return False
            self.prefix = self.prefix << 1 | self.source.bits(1)
            self.length += 1


def geometric(uniform: Uniform) -> int:
    """The number of whole v ≥ 1 with uniform < exp(-v): P(v or more) = exp(-v)."""
    v = 0
    while uniform.is_below_exp(v + 1):
        v += 1
    return v


def sample(units: int, rate: Fraction, source: BitSource) -> Places:
    """The places, rising, of the units that are taken, each with chance `rate` and on its own."""
    whole = chance_of(rate)
    if units < 0:
        raise ValueError("a number of units cannot be negative")
    if whole == 1 << RATE_BITS:
        return np.arange(units, dtype=np.intp)
    first, rest = divmod(whole, 1 << _TIE_BITS)
    blocks = [
        _block(min(_COINS, units - start), np.uint8(first), rest, source) + start for start in range(0, units, _COINS)
    ]
    return np.concatenate([np.empty(0, dtype=np.intp), *blocks])


def chance_of(rate: Fraction) -> int:
    """The rate in parts of 2^-32; `ValueError` unless that is a whole number, above 0 and up to 1."""
    if not 0 < rate <= 1 or (1 << RATE_BITS) % rate.denominator:
        raise ValueError(f"a rate must be a whole number of 2^-32, above 0 and at most 1, not {rate}")
    return int(rate * (1 << RATE_BITS))


def _block(count: int, first: np.uint8, rest: int, source: BitSource) -> Places:
    coins = source.words(-(-count // _WORD_BYTES)).view(np.uint8)[:count]
    places = np.flatnonzero(coins <= first)
    # A copy, because the served block is gone with the next one.
    is_tied = coins[places] == first
    is_taken = ~is_tied
    ties = np.flatnonzero(is_tied)
    for start in range(0, ties.size, LARGEST_BLOCK):
        some = ties[start : start + LARGEST_BLOCK]
        is_taken[some] = source.words(some.size) >> _UNUSED_BITS < rest
    taken: Places = places[is_taken]
    return taken


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
