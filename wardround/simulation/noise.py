"""Noise for tests and teaching only: none at all, or the same every time.

No flag and no environment variable reaches this module from a production path; only a simulation or a
test can pass these where a site agent would pass `SecureNoise`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from wardround.privacy.mechanisms.partition_selection import KeyCounts, SelectionFact, passing
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Scores
from wardround.privacy.noise.bernoulli import RATE_BITS, Places, chance_of
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.vectors import IntVector


class ZeroNoise:
    """Adds nothing, and samples the same units in the same order of calls: for comparing with known answers."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        del law
        return np.zeros(size, dtype=np.int64)

    def select(self, keys: KeyCounts, fact: SelectionFact) -> dict[str, int]:
        """The keys whose counts pass the threshold with what is drawn."""
        return passing(keys, fact, self.draw(fact.law, len(keys.counts)))

    def choose(self, scores: Scores, fact: ChoiceFact) -> int:
        """The best candidate, the first of them when several are."""
        del fact
        return int(scores.values.argmax())

    def sample(self, units: int, rate: Fraction) -> Places:
        """A sample by a generator that always begins alike."""
        return np.flatnonzero(self._generator.integers(0, 1 << RATE_BITS, units) < chance_of(rate))


class SeededNoise(ZeroNoise):
    """Repeatable noise of about the right law, and not private: for seeing twice what happened once."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        """Rounded normal or Laplace numbers."""
        scale = float(law.scale)
        if law.mechanism is Mechanism.DISCRETE_GAUSSIAN:
            drawn = self._generator.normal(0.0, scale, size)
        else:
            drawn = self._generator.laplace(0.0, scale, size)
        return np.rint(drawn).astype(np.int64)

    def choose(self, scores: Scores, fact: ChoiceFact) -> int:
        """The best candidate after exponential noise, which is the law of permute-and-flip."""
        noise = self._generator.exponential(1.0 / float(fact.rate(scores)), scores.values.size)
        return int((scores.values + noise).argmax())
