"""Secret noise, drawn exactly from the law that the accountant charges for.

Noise is made of operating-system entropy at the moment it is needed and never kept: there
is no seed to steal, to reuse after a fork, or to find in a snapshot.
"""

from typing import Protocol

from wardround.privacy.noise import alias_table as alias
from wardround.privacy.noise import discrete as exact
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import KeyStream
from wardround.privacy.noise.vectors import IntVector

# A table costs about thirty exact draws per column to build, and outgrows the cache beyond 2^16.
_DRAWS_PER_COLUMN = 32
_MOST_COLUMN_BITS = 16


class Noise(Protocol):
    """A source of independent draws from a noise law."""

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        """Draw `size` independent values, in grid units."""
        ...


class SecureNoise:
    """The noise of production: every call draws under a fresh key from the operating system."""

    __slots__ = ()

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        """Draw `size` independent values, by table only where that pays and slack is charged."""
        if size < 0:
            raise ValueError("a number of draws cannot be negative")
        stream = KeyStream()
        if prefers_table(law, size):
            return alias.gaussian_table(law.scale).draw(size, stream)
        return exact.draw(law, size, stream)


def prefers_table(law: NoiseDistribution, size: int) -> bool:
    """Whether `size` draws are worth a table; decided by public numbers alone.

    Never for the Laplace law, whose claim of pure ε leaves no room for a table's slack.
    """
    if law.mechanism is not Mechanism.DISCRETE_GAUSSIAN or law.scale < 1:
        return False
    bits = alias.column_bits(law.scale)
    return bits <= _MOST_COLUMN_BITS and size >= _DRAWS_PER_COLUMN << bits


__all__ = ["Noise", "SecureNoise", "prefers_table"]
