"""How far a number can go when every noised sum may be off by what its noise explains.

Near the edge of what the noise leaves known a first-order error is too short: a quotient whose denominator may be
almost nothing is larger than its slope says. The ends here are those of the number over all sums within `critical`
deviations of what was released (jointly, as a length), so an interval grows to all that is possible just where there
stops being an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from wardround.federation.forms.totals import Floats

Sloped: TypeAlias = Callable[[Floats], tuple[float, Floats] | None]
"""A number and its slopes in the sums it is made of; None where the sums make no number."""

_STEPS, _CLOSE = 20, 1e-3


def farthest(number: Sloped, at: Floats, deviations: Floats, *, critical: float, upwards: bool) -> float | None:
    """The number's greatest (or least) value over the sums that the noise allows; None where it has no end.

    From each point the next is the one to which its slopes show, half of the way, until the number stays as it is.
    """
    sign, place, last = (1.0 if upwards else -1.0), at, np.inf
    for _ in range(_STEPS):
        found = number(place)
        if found is None:
            return None
        value, slopes = found
        if abs(value - last) <= _CLOSE * max(abs(value), _CLOSE):
            return value
        last = value
        pull = slopes * deviations
        length = float(np.sqrt(pull @ pull))
        if length == 0.0:
            return value
        there = at + sign * critical * deviations * pull / length
        place = there if place is at else (place + there) / 2
    return last
