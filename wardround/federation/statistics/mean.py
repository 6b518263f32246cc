"""AVG(x): the mean over units of their own means.

With K levels over [L, U] a record at level q adds (q, K − q): its distance from both bounds. Together they are K
whatever x is, so numerator and denominator share one charge (PROOFS.md, "Counts, sums and means on the grid"). The mean
is L + w·A/(A + B) with w = U − L, and its interval is Fieller's: exact for the ratio of two normal sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from wardround.federation.forms.definition import AT_A_BOUND, Definition, Function, down_to_interval, need_numbers
from wardround.federation.forms.grids import level_quantiser
from wardround.federation.forms.parts import Frame, Part, Records, Sums, Tally
from wardround.federation.forms.totals import Estimated, Total, TotalNoise, Unknown, estimate
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.privacy.inference.error_bars import mean_interval


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """(q, K − q): each record's distance from both bounds."""
    quantiser = level_quantiser(frame.column(aggregates[0]), rows=frame.rows)
    levels = quantiser.high
    return frame.part(
        aggregates,
        Records.MEANS,
        Sums.COUNTED_LEVELS,
        coordinates=2,
        grid=1 / quantiser.per_unit,
        increment=1,
        l1_sensitivity=frame.max_groups * levels,
        l2_sensitivity_squared=frame.max_groups * levels**2,
        largest=levels,
        quantisers=(quantiser,),
    )


def coordinates(part: Part, tally: Tally) -> Tally:
    """From n and Σq."""
    number, levels = tally[:, 0], tally[:, 1]
    return np.stack((levels, part.quantisers[0].high * number - levels), axis=1)


def estimates(total: Total) -> Iterator[Estimate]:
    """The mean of the records of each group."""
    quantiser = total.part.quantisers[0]
    lower, upper = quantiser.origin, quantiser.value(quantiser.high)
    for group, (above, below) in total.groups:
        found = two_sided(above, below, lower, upper, total.noise)
        yield estimate(total.part.aggregates[0], group, found, place=total.place)


def two_sided(above: int, below: int, lower: Fraction, upper: Fraction, noise: TotalNoise) -> Estimated | Unknown:
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
        return Estimated(value, 0.0, (value, value))
    share = inside / records
    error = float(width) * noise.deviation * math.hypot(share, 1.0 - share) / records
    ends = mean_interval(float(above), float(below), sd=noise.deviation, critical=noise.wide)
    # Nothing that stays inside the bounds spreads more than half of them, whatever the formula says.
    return Estimated(value, min(error, (high - low) / 2), (low + float(width) * ends[0], low + float(width) * ends[1]))


def typical(part: Part, number: float) -> list[int]:
    """All at the upper bound, where the error is largest."""
    return [round(number * part.quantisers[0].high), 0]


MEAN = Definition(
    statistic=Statistic.MEAN,
    functions=(Function("AVG"),),
    check=need_numbers,
    part=part,
    coordinates=coordinates,
    estimates=estimates,
    typical=typical,
    assumed=f"a mean {AT_A_BOUND}",
    half_width=down_to_interval,
)
