"""Exact, untruncated discrete Laplace and discrete Gaussian noise for any scale.

One rejection sampler serves both laws: a proposal of geometric blocks with a uniform
place inside each, kept with probability exp(-h) for a rational h ≥ 0. It is the sampler
of Canonne, Kamath and Steinke with its two coins thrown as one and its block a power of
two (PROOFS.md#discrete-laplace-sampler, PROOFS.md#discrete-gaussian-sampler).

Floating point only ever sorts out the proposals that are clear; whatever falls within
`band` of the edge is decided in integers, so the law owes nothing to floating point.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.noise.bernoulli import Uniform, exp_enclosure, geometric
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import BitSource, WordVector
from wardround.privacy.noise.vectors import IntVector

BAND = 2.0**-40
"""Above the certified error of the double-precision coin by a factor of 7 (PROOFS.md#band)."""

LARGEST_NOISE = 1 << 62
"""Where a draw saturates; `mechanisms.apply` makes that invisible."""

BLOCK_BITS = 16
"""Leading bits of a lane's second word, which choose the block."""

COIN_BITS = 48
"""The other bits of that word, which decide whether the proposal is kept."""

# 64 KiB per temporary: small enough for the allocator to reuse and for the cache to hold.
_LANES = 1 << 13
_UNCLEAR = 255


def _block_table() -> NDArray[np.uint8]:
    """The block that each 16-bit prefix of a uniform selects, or _UNCLEAR if it is not enough."""
    table = np.zeros(1 << BLOCK_BITS, np.uint8)
    edges: list[int] = []
    while not edges or edges[-1] > 0:
        edges.append(exp_enclosure(len(edges) + 1, 1, BLOCK_BITS)[0])
        table[: edges[-1]] = len(edges)
    table[edges] = _UNCLEAR
    return table


_BLOCKS = _block_table()


@dataclass(frozen=True, slots=True)
class Proposal:
    """How one law is proposed and kept.

    Propose block v with probability ∝ e^-v and a place u below 2^place_bits, so that
    y = v·2^place_bits + u; keep ±y with probability exp(-h), where
    h = (quadratic·y² + linear·y + constant)/unit - v is never negative.
    """

    place_bits: int
    quadratic: int
    linear: int
    constant: int
    unit: int

    def exponent(self, y: int, v: int) -> int:
        """The exact h of a proposal, times `unit`."""
        return (self.quadratic * y + self.linear) * y + self.constant - v * self.unit

    def settle(self, place: int, block: Uniform, coin: Uniform) -> tuple[bool, int]:
        """Decide one proposal in exact arithmetic: whether it is kept, and its value.

        `place` is a 64-bit word: its top bit is the sign, its low bits the place.
        """
        v = geometric(block)
        y = (v << self.place_bits) | (place & ((1 << self.place_bits) - 1))
        is_negative = bool(place >> 63)
        # Without this, zero would be counted once for each sign.
        is_kept = not (is_negative and y == 0) and coin.is_below_exp(self.exponent(y, v), self.unit)
        return is_kept, min(y, LARGEST_NOISE) * (-1 if is_negative else 1)


@lru_cache(maxsize=256)
def proposal_for(law: NoiseDistribution) -> Proposal:
    """The proposal whose kept values follow `law` exactly."""
    k, n = law.scale.numerator, law.scale.denominator
    if law.mechanism is Mechanism.DISCRETE_LAPLACE:
        # A block of at least b = k/n keeps h = y/b - v ≥ y/2^j - v ≥ 0.
        place_bits = (-(-k // n) - 1).bit_length()
        return Proposal(place_bits, quadratic=0, linear=n, constant=0, unit=k)
    # Any block keeps h = y²/2σ² + σ²/2·4^j - v ≥ (y/σ - σ/2^j)²/2 ≥ 0, where σ = k/n;
    # one between σ/√2 and √2·σ keeps most.
    place_bits = max((2 * k * k // (n * n)).bit_length() - 1, 0) // 2
    step = 1 << place_bits
    return Proposal(place_bits, quadratic=(n * n * step) ** 2, linear=0, constant=k**4, unit=2 * (k * n * step) ** 2)


def draw(law: NoiseDistribution, size: int, source: BitSource, *, band: float = BAND) -> IntVector:
    """Draw `size` independent values that follow `law` exactly."""
    proposal = proposal_for(law)
    values = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        # About two proposals in five are kept; what is too much is thrown away unseen.
        lanes = min(_LANES, 3 * (size - filled) + 16)
        kept = propose(proposal, source.words(2 * lanes), source, band=band)[: size - filled]
        values[filled : filled + kept.size] = kept
        filled += kept.size
    return values


def propose(proposal: Proposal, words: WordVector, source: BitSource, *, band: float = BAND) -> IntVector:
    """The values kept out of one proposal per pair of words (place, block and coin)."""
    lanes = words.size // 2
    place, choice = words[:lanes], words[lanes:]
    v = _BLOCKS.take((choice >> np.uint64(COIN_BITS)).view(np.int64))
    y = v.astype(np.int64)
    y <<= proposal.place_bits
    y |= (place & np.uint64((1 << proposal.place_bits) - 1)).view(np.int64)

    distance = y.astype(np.float64)
    exponent = distance * -(proposal.quadratic / proposal.unit)
    exponent -= proposal.linear / proposal.unit
    exponent *= distance
    exponent -= proposal.constant / proposal.unit
    exponent += v
    margin = np.exp(exponent, out=exponent)
    margin -= (choice & np.uint64((1 << COIN_BITS) - 1)).view(np.int64) * 2.0**-COIN_BITS

    sign = place.view(np.int64) >> 63
    keep = margin > 0
    keep &= (y | ~sign) != 0
    y ^= sign
    y -= sign
    unclear = np.abs(margin, out=margin) <= band
    unclear |= v == _UNCLEAR
    for lane in np.flatnonzero(unclear):
        head, tail = divmod(int(choice[lane]), 1 << COIN_BITS)
        block, coin = Uniform(source, head, BLOCK_BITS), Uniform(source, tail, COIN_BITS)
        keep[lane], y[lane] = proposal.settle(int(place[lane]), block, coin)
    return y.take(np.flatnonzero(keep))
