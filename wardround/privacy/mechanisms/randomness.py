"""Everything random that a site does: noise on totals, a selection of keys, a choice, a sample of units.

One seam, so that a simulation without noise leaves out all of it, and a site none.
"""

from fractions import Fraction
from typing import Protocol

from wardround.privacy.mechanisms.partition_selection import KeyCounts, SelectionFact, select
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Scores, choose
from wardround.privacy.noise.bernoulli import Places, sample
from wardround.privacy.noise.keystream import KeyStream
from wardround.privacy.noise.sampler import Noise, SecureNoise


class Chance(Noise, Protocol):
    """Independent draws of whatever a fact may name."""

    def select(self, keys: KeyCounts, fact: SelectionFact) -> dict[str, int]:
        """The keys that pass, with their noised counts in steps, in the order of the keys."""
        ...

    def choose(self, scores: Scores, fact: ChoiceFact) -> int:
        """The place of the candidate that is chosen."""
        ...

    def sample(self, units: int, rate: Fraction) -> Places:
        """The places, rising, of units that are taken with chance `rate`, a whole number of 2^-32, each on its own."""
        ...


class SecureChance(SecureNoise):
    """The chance of production: every call draws under a fresh key from the operating system."""

    __slots__ = ()

    def select(self, keys: KeyCounts, fact: SelectionFact) -> dict[str, int]:
        """The keys that pass, drawn exactly from the law that is charged for."""
        return select(keys, fact, KeyStream())

    def choose(self, scores: Scores, fact: ChoiceFact) -> int:
        """One candidate, drawn exactly from the law that is charged for."""
        return choose(scores, fact, KeyStream())

    def sample(self, units: int, rate: Fraction) -> Places:
        """A sample that nobody can foresee, drawn with exact coins."""
        return sample(units, rate, KeyStream())
