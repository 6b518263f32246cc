"""The values of an open category, as far as sites showed them.

A site shows a key only when its noised count passes the plan's threshold, so a count here is about the sites that
showed the key, and says nothing of those that did not. The noise of a key near the threshold is more likely to have
been upwards: an interval misses the truth and is shown at all no more often than it claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.combining.noise import NoiseSetting, noise_of
from coordinator.combining.total import Found, estimate
from wardround.federation.answer import Estimate
from wardround.federation.plan import Plan
from wardround.federation.release import Release
from wardround.federation.shape import Shape


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
        least = max(value - reach, float(sites))
        found = Found(value, error, (least, max(value + reach, least)))
        yield estimate(aggregate, ((aggregate.column or "", key),), found)
