"""Values before and after noise: the two ends of the one place where noise is added.

A bound travels with the value it bounds, so that nobody can noise a total without
saying how much one unit could have moved it.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntVector: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """A sum over units, each within these norms on an integer grid. Secret."""

    # Never in a repr: a traceback or a log line that shows a Bounded must show no truth.
    total: IntVector = field(repr=False)
    l1_sensitivity: int
    l2_sensitivity_squared: int
    grid: Fraction

    def __post_init__(self) -> None:
        """Refuse what is not a vector of 64-bit integers on a real grid."""
        _require_vector(self.total)
        if self.l1_sensitivity < 0 or self.l2_sensitivity_squared < 0:
            raise ValueError("a sensitivity cannot be negative")
        _require_grid(self.grid)


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """A sum with its noise, still in integers on the grid. May leave the site once charged."""

    total: IntVector
    grid: Fraction

    def __post_init__(self) -> None:
        """Refuse what is not a vector of 64-bit integers on a real grid."""
        _require_vector(self.total)
        _require_grid(self.grid)


def _require_vector(total: IntVector) -> None:
    if total.dtype != np.int64 or total.ndim != 1:
        raise ValueError(f"a total must be a vector of int64, not {total.ndim}-dimensional {total.dtype}")


def _require_grid(grid: Fraction) -> None:
    if grid <= 0:
        raise ValueError("a grid step must be positive")
