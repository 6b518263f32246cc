"""Where the noise is, and how much of it a total over several sites carries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

from wardround.privacy.inference.error_bars import critical_value, sum_variance
from wardround.privacy.noise.distribution import Mechanism, NoiseLaw

CONFIDENCE = 0.95
_SMOOTH = Fraction(2**20)
_UNIT = NormalDist()
NORMAL = _UNIT.inv_cdf(0.5 * (1.0 + CONFIDENCE))
_RAREST = 1e-3


@dataclass(frozen=True, slots=True)
class NoiseSetting:
    """Where the noise is: at every site, unless a simulation leaves it out or adds it once to the total."""

    noiseless: bool = False
    trusted_total: bool = False

    def noises(self, *, sites: int) -> int:
        """How many independent noises are in a total over `sites` sites."""
        if self.noiseless:
            return 0
        return 1 if self.trusted_total else sites

    def composition(self, *, overlap: int) -> str:
        """How the loss of one unit adds up over the sites, in a word."""
        if self.trusted_total:
            return "trusted_total"
        return "parallel" if overlap == 1 else f"overlap {overlap}"


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise in one total, in grid units: its standard deviation, and how many of them an interval takes.

    `critical` is that of one coordinate.
    """

    deviation: float
    critical: float
    # How many Laplace draws it is the sum of; none where it is normal.
    laplaces: int = 0

    @property
    def wide(self) -> float:
        """The critical value for combinations: between one coordinate's law and the normal, so the larger of both."""
        return max(self.critical, NORMAL)

    def shown(self, *clearances: float, moved: float = 0.5) -> float:
        """The critical value of a number that is only shown when others are clear of the noise, each by its clearance.

        A clearance counts a number in its own deviations; `wide` of them are the least. Near it the noise has chosen
        which numbers are shown, with about the chance that a number like this one passes. An interval that misses as
        often among all of them as it may among those that are shown must be so much surer. Those that are shown were
        moved upwards by their noise: by `moved` deviations more than they really are clear.
        """
        if self.deviation == 0.0:
            return self.wide
        chance = math.prod(_UNIT.cdf(clearance - self.wide - moved) for clearance in clearances)
        surer = _UNIT.inv_cdf(1.0 - (1.0 - CONFIDENCE) * max(chance, _RAREST) / 2.0)
        return self.wide * max(surer / NORMAL, 1.0)

    def passed(self, *, draws: int, chance: float) -> float:
        """How many of its own deviations a sum of `draws` such noises passes upwards with at most this chance."""
        if self.laplaces == 0:
            return NormalDist().inv_cdf(1.0 - chance)
        # In its own deviations a sum of Laplace draws is the same for every large scale.
        smooth = NoiseLaw(Mechanism.DISCRETE_LAPLACE, _SMOOTH)
        return critical_value(smooth, terms=draws * self.laplaces, confidence=1.0 - 2.0 * chance)

    def scaled(self, factor: float) -> Noise:
        """The same noise in another unit."""
        return Noise(self.deviation * factor, self.critical, self.laplaces)


def noise_of(law: NoiseLaw, *, noises: int) -> Noise:
    """The noise in a sum of `noises` draws; without any, what is left is sampling, which is normal."""
    if noises == 0:
        return Noise(0.0, NORMAL)
    laplaces = noises if law.mechanism is Mechanism.DISCRETE_LAPLACE else 0
    critical = critical_value(law, terms=noises, confidence=CONFIDENCE)
    return Noise(math.sqrt(sum_variance(law, noises)), critical, laplaces)
