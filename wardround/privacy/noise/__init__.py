"""Secret noise, drawn exactly from the law that the accountant charges for."""

from typing import Protocol

from wardround.privacy.bounded import IntVector
from wardround.privacy.law import NoiseLaw


class Noise(Protocol):
    """A source of independent draws from a noise law."""

    def draw(self, law: NoiseLaw, size: int) -> IntVector:
        """Draw `size` independent values, in grid units."""
        ...


__all__ = ["Noise"]
