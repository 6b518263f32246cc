"""A secret Poisson sample: an exact coin for every unit, and the places of those whose coin fell true.

The chance is a whole number of 2^-32. One byte decides nearly every coin; only where it ties with the chance's
first byte are the other 24 bits drawn, so no probability is rounded (PROOFS.md#poisson-sample).
"""

from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.noise.keystream import LARGEST_BLOCK, BitSource

Places: TypeAlias = NDArray[np.intp]

RATE_BITS = 32
"""A chance is a whole number of 2^-32."""

_TIE_BITS = 24
_UNUSED_BITS = np.uint64(64 - _TIE_BITS)
_WORD_BYTES = 8
_COINS = LARGEST_BLOCK * _WORD_BYTES
"""Coins that one block of words holds."""


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
