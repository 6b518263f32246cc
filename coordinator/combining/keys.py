"""The values of an open category, as far as sites showed them.

A site shows a key only when its noised count passes the plan's threshold, so a count here is about the sites that
showed the key, and says nothing of those that did not. The noise of a key near the threshold is more likely to have
been upwards: the lower end of its interval is as low as noise that has passed the threshold makes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

from coordinator.combining.noise import NoiseSetting, noise_of
from coordinator.combining.total import Found, estimate
from wardround.federation.forms.release import Release
from wardround.federation.plan.layout import Shape
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Estimate

_NORMAL = NormalDist()
_FARTHEST, _HALVINGS, _SMALLEST = 8.0, 40, 1e-300


def shown_keys(plan: Plan, form: Shape, releases: Sequence[Release], *, setting: NoiseSetting) -> Iterator[Estimate]:
    """Every key that some site showed, in the order of the keys, with its noised counts added up."""
    (law,), (part,) = plan.laws(), form.parts
    aggregate = part.aggregates[0]
    counts: dict[str, list[int]] = {}
    for release in releases:
        for key, number in zip(release.keys, release.values.tolist(), strict=True):
            counts.setdefault(key, []).append(number)
    for key in sorted(counts):
        sites = len(counts[key])
        # Cut-off noise is narrower than its law, so the law's error bar is on the safe side.
        noise = noise_of(law, noises=setting.noises(sites=sites))
        value = sum(counts[key]) * part.grid.numerator / part.grid.denominator
        error = noise.deviation * float(part.grid)
        reach = noise.critical * error
        # Nobody's key is never shown: each of these sites has at least one unit that holds it.
        lower = value - reach
        if noise.laplaces == 0 and noise.deviation > 0.0:
            one = noise.deviation / math.sqrt(sites)
            moved = passing_shift(counts[key], plan.threshold, deviation=one, critical=noise.critical)
            lower = min(lower, value - sites * moved * float(part.grid))
        least = max(lower, float(sites))
        found = Found(value, error, (least, max(value + reach, least)))
        yield estimate(aggregate, ((aggregate.column or "", key),), found)


def passing_shift(numbers: Sequence[int], threshold: int, *, deviation: float, critical: float) -> float:
    """By how much each of these noised counts may be above its own, all of them having passed the threshold.

    The greatest shift at which such counts, moved alike, would still add up to so much: the law of a normal number that
    has passed a threshold is moved upwards and narrower. Far above the threshold it is the noise's own reach.
    """
    low, high = 0.0, _FARTHEST * deviation
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        passed = [_passed(number - middle, threshold, deviation) for number in numbers]
        above = sum(numbers) - sum(mean for mean, _ in passed)
        if above <= critical * math.sqrt(sum(variance for _, variance in passed)):
            low = middle
        else:
            high = middle
    return high


def _passed(count: float, threshold: int, deviation: float) -> tuple[float, float]:
    """Mean and variance of a normal number around `count`, given that it is above the threshold."""
    edge = (threshold - count) / deviation
    tail = max(_NORMAL.cdf(-edge), _SMALLEST)
    hazard = _NORMAL.pdf(edge) / tail
    return count + deviation * hazard, max(deviation**2 * (1.0 - hazard * (hazard - edge)), 0.0)
