"""The law of the noise: which distribution, and how wide, in grid units.

A scale is an exact fraction, never a float, so that the site that draws and the
coordinator that accounts speak of the same distribution to the last digit.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

SCALE_UNIT = 1024
"""Scales are whole numbers of 1/1024 of a grid step; the wire carries that number."""

LARGEST_SCALE = 1 << 50
"""Beyond it the noise would crowd 64-bit integers (noise/PROOFS.md#mechanism-application)."""

# From here on the discrete Gaussian's variance equals sigma^2 to far below a double's
# last digit: the relative difference is of order exp(-2 pi^2 sigma^2) < 1e-130.
_SMOOTH_SIGMA = 4


class Mechanism(StrEnum):
    """The two noise distributions wardround knows."""

    DISCRETE_GAUSSIAN = "discrete_gaussian"
    DISCRETE_LAPLACE = "discrete_laplace"


@dataclass(frozen=True, slots=True)
class NoiseDistribution:
    """Noise on the integers: P(n) ∝ exp(-n²/2σ²) or exp(-|n|/b), where scale is σ or b."""

    mechanism: Mechanism
    scale: Fraction

    def __post_init__(self) -> None:
        """Refuse a scale that the wire cannot carry or 64-bit noise cannot hold."""
        if not 0 < self.scale <= LARGEST_SCALE:
            raise ValueError(f"a noise scale must be above 0 and at most 2^50 grid steps, not {self.scale}")
        if SCALE_UNIT % self.scale.denominator:
            raise ValueError(f"a noise scale must be a whole number of 1/1024, not {self.scale}")

    @property
    def variance(self) -> float:
        """The variance of one draw, in squared grid units."""
        scale = float(self.scale)
        if self.mechanism is Mechanism.DISCRETE_LAPLACE:
            return 2.0 * math.exp(-1.0 / scale) / math.expm1(-1.0 / scale) ** 2
        return _gaussian_variance(scale)


def _gaussian_variance(sigma: float) -> float:
    if sigma >= _SMOOTH_SIGMA:
        return sigma * sigma
    weights = [math.exp(-0.5 * (n / sigma) ** 2) for n in range(1, 40 * _SMOOTH_SIGMA)]
    second = math.fsum(weight * n * n for n, weight in enumerate(weights, start=1))
    return 2.0 * second / (1.0 + 2.0 * math.fsum(weights))
