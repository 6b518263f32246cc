"""From the sites' noised integers to estimates with error bars. Pure, and post-processing only.

Numerators and denominators are added over the sites in integers before anything is divided. The law of the
noise is public, so every error bar is computed, not estimated; it is the error of the noise and says nothing
about sampling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wardround.federation.answer import Estimate
from wardround.federation.errors import InvariantBroken
from wardround.federation.expressions import Value
from wardround.federation.plan import Plan
from wardround.federation.shape import Part, Shape
from wardround.privacy.bounded import IntVector
from wardround.privacy.law import NoiseLaw
from wardround.privacy.uncertainty import critical_value, mean_interval, sum_variance

CONFIDENCE = 0.95
_LARGEST = 2**63 - 1


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
class Spread:
    """The noise in one total, in grid units: its standard deviation, and how many of them an interval takes."""

    deviation: float
    critical: float


def combine(plan: Plan, form: Shape, releases: Sequence[IntVector], *, setting: NoiseSetting) -> tuple[Estimate, ...]:
    """One estimate for every aggregate and group, from the sites that answered."""
    if not releases or any(values.shape != (form.dimension,) for values in releases):
        raise InvariantBroken(private="a stored release does not have the plan's form")
    totals = _add(releases)
    estimates: list[Estimate] = []
    start = 0
    for part, law in zip(form.parts, plan.laws(), strict=True):
        spread = _spread(law, noises=setting.noises(sites=len(releases)))
        numbers = totals[start : start + part.dimension]
        start += part.dimension
        estimates.extend(_estimates(part, form, numbers, spread))
    return tuple(estimates)


def _add(releases: Sequence[IntVector]) -> list[int]:
    """Exact sums, however large: a site may have sent the ends of the 64-bit range."""
    largest = max((max(int(values.max()), -int(values.min())) for values in releases if values.size), default=0)
    kind = np.int64 if largest * len(releases) <= _LARGEST else np.object_
    total: list[int] = np.sum([values.astype(kind) for values in releases], axis=0).tolist()
    return total


def _spread(law: NoiseLaw, *, noises: int) -> Spread:
    if noises == 0:
        return Spread(0.0, 0.0)
    return Spread(math.sqrt(sum_variance(law, noises)), critical_value(law, terms=noises, confidence=CONFIDENCE))


def _estimates(part: Part, form: Shape, numbers: Sequence[int], spread: Spread) -> Iterator[Estimate]:
    for index, key in enumerate(form.group_keys):
        names = (grouping.column for grouping in form.query.group_by)
        group = tuple(zip(names, key, strict=True))
        if part.coordinates == 1:
            yield _sum(part, group, numbers[index], spread)
        else:
            yield _mean(part, group, numbers[2 * index], numbers[2 * index + 1], spread)


def _sum(part: Part, group: tuple[tuple[str, Value], ...], total: int, spread: Spread) -> Estimate:
    # Python's division of integers is correctly rounded, so a noiseless total is exact.
    value = total * part.grid.numerator / part.grid.denominator
    error = spread.deviation * float(part.grid)
    reach = spread.critical * error
    return _estimate(part, group, value, error, (value - reach, value + reach))


def _mean(part: Part, group: tuple[tuple[str, Value], ...], above: int, below: int, spread: Spread) -> Estimate:
    """L + w·A/(A + B), kept inside [L, U]: A adds each record's distance from L, B its distance from U."""
    quantiser = part.quantisers[0]
    lower, width = quantiser.origin, part.grid * quantiser.high
    low, high = float(lower), float(lower + width)
    records = above + below
    if records <= 0:
        # The noise has swallowed the group: nothing is known beyond the public bounds.
        return _estimate(part, group, float(lower + width / 2), (high - low) / 2, (low, high))
    inside = min(max(above, 0), records)
    value = (lower.numerator * width.denominator * records + width.numerator * inside * lower.denominator) / (
        lower.denominator * width.denominator * records
    )
    share = inside / records
    error = float(width) * spread.deviation * math.hypot(share, 1.0 - share) / records
    ends = mean_interval(float(above), float(below), sd=spread.deviation, critical=spread.critical)
    interval = (
        (value, value) if spread.deviation == 0.0 else (low + float(width) * ends[0], low + float(width) * ends[1])
    )
    # Nothing that stays inside the bounds spreads more than half of them, whatever the formula says.
    return _estimate(
        part, group, value, min(error, (high - low) / 2), (min(interval[0], value), max(interval[1], value))
    )


def _estimate(
    part: Part,
    group: tuple[tuple[str, Value], ...],
    value: float,
    error: float,
    interval: tuple[float, float],
) -> Estimate:
    aggregate = part.aggregates[0]
    return Estimate(aggregate.statistic.value, aggregate.column, group, value, error, interval, CONFIDENCE)
