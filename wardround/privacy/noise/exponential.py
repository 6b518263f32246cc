"""Coins that land heads with probability exp(-x), for rational x, without rounding.

A uniform real is kept as the bits known so far; exp(-x) is kept as an interval of
integers. Only when the two cannot be told apart is another bit drawn, so the outcome has
exactly the stated probability (PROOFS.md#coins).
"""

from dataclasses import dataclass
from functools import lru_cache

from wardround.privacy.noise.keystream import BitSource

_GUARD_BITS = 16


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
