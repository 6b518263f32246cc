"""A single quantile by noisy binary search: ten rounds that each ask which share lies below one value.

Everything here is post-processing of released shares. Each value is fixed before its round's noise is drawn, so the
union bound over the rounds holds however the search went.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

ROUNDS = 10
CONFIDENCE = 0.95
_SINGLE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class ReleasedShare:
    """The released share at or below `value`."""

    value: float
    share: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class FoundQuantile:
    """The quantile with its error and interval."""

    value: float
    standard_error: float
    interval: tuple[float, float]


def next_value(level: float, bounds: tuple[float, float], shares: Sequence[ReleasedShare]) -> float:
    """The middle of what the rounds so far have left."""
    low, high = bounds
    for each in shares:
        if each.share < level:
            low = each.value
        else:
            high = each.value
    return low + (high - low) / 2


def found(level: float, bounds: tuple[float, float], shares: Sequence[ReleasedShare]) -> FoundQuantile:
    """Where the rising curve through all shares crosses the level, within what the rounds exclude."""
    ends = _interval(level, bounds, shares)
    left, right = (bounds[0], 0.0), (bounds[1], 1.0)
    for value, share in _rising(shares):
        if share < level:
            left = (value, share)
        elif share > level:
            right = (value, share)
            break
    crossing = left[0] + (level - left[1]) / (right[1] - left[1]) * (right[0] - left[0])
    return FoundQuantile(min(max(crossing, ends[0]), ends[1]), (ends[1] - ends[0]) / (2 * _SINGLE), ends)


def _interval(level: float, bounds: tuple[float, float], shares: Sequence[ReleasedShare]) -> tuple[float, float]:
    """The values that no round excludes; all rounds together err with the probability of one interval."""
    wide = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * max(len(shares), 1)))
    low, high = bounds
    for each in sorted(shares, key=lambda share: share.value):
        if each.share + wide * each.standard_error < level:
            low = max(low, each.value)
        elif each.share - wide * each.standard_error >= level:
            high = min(high, each.value)
    # Two rounds that contradict each other exclude everything between them; then both ends are possible.
    return min(low, high), max(low, high)


def _rising(shares: Sequence[ReleasedShare]) -> list[tuple[float, float]]:
    """The nearest rising curve, in weighted squares: neighbours that fall are averaged."""
    blocks: list[tuple[float, float, list[float]]] = []
    for each in sorted(shares, key=lambda share: share.value):
        weight = 1.0 if each.standard_error == 0.0 else each.standard_error**-2
        mean, values = each.share, [each.value]
        while blocks and blocks[-1][0] >= mean:
            above, heavier, earlier = blocks.pop()
            mean = (mean * weight + above * heavier) / (weight + heavier)
            weight += heavier
            values = earlier + values
        blocks.append((mean, weight, values))
    return [(value, mean) for mean, _, values in blocks for value in values if math.isfinite(mean)]
