"""Means and shares: two sums whose noise is one charge, L + w·A/(A + B), and Fieller's interval around it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from coordinator.combining.noise import Noise
from coordinator.combining.total import Found, Total, Unknown, estimate, number_text
from wardround.federation.question.answer import Estimate
from wardround.federation.question.no_estimate import NoEstimate
from wardround.privacy.inference.error_bars import mean_interval


def estimates(total: Total) -> Iterator[Estimate]:
    """The mean of the records of each group."""
    quantiser = total.part.quantisers[0]
    for group, (above, below) in total.groups:
        lower, upper = quantiser.origin, quantiser.value(quantiser.high)
        yield estimate(total.part.aggregates[0], group, two_sided(above, below, lower, upper, total.noise))


def shares(total: Total) -> Iterator[Estimate]:
    """The share of records at or below the question's value: a mean of ones and noughts."""
    aggregate = total.part.aggregates[0]
    for group, (below, above) in total.groups:
        found = two_sided(below, above, Fraction(0), Fraction(1), total.noise)
        yield estimate(aggregate, group, found, term=number_text(aggregate.level or 0.0))


def two_sided(above: int, below: int, lower: Fraction, upper: Fraction, noise: Noise) -> Found | Unknown:
    """Value, error and interval of L + w·A/(A + B): A adds each record's distance from L, B its distance from U."""
    width = upper - lower
    low, high = float(lower), float(upper)
    records = above + below
    if records <= 0 or records <= noise.wide * math.sqrt(2.0) * noise.deviation:
        # The noise may be all there is: nothing is known beyond the public bounds.
        return Unknown(NoEstimate.TOO_FEW, (low, high))
    inside = min(max(above, 0), records)
    value = (lower.numerator * width.denominator * records + width.numerator * inside * lower.denominator) / (
        lower.denominator * width.denominator * records
    )
    if noise.deviation == 0.0:
        return Found(value, 0.0, (value, value))
    share = inside / records
    error = float(width) * noise.deviation * math.hypot(share, 1.0 - share) / records
    ends = mean_interval(float(above), float(below), sd=noise.deviation, critical=noise.wide)
    # Nothing that stays inside the bounds spreads more than half of them, whatever the formula says.
    return Found(value, min(error, (high - low) / 2), (low + float(width) * ends[0], low + float(width) * ends[1]))
