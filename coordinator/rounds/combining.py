"""From the sites' releases to the answer: estimates with error bars, or a training's sums. Post-processing only.

Numerators and denominators are added over the sites in integers before anything is divided. The law of the noise is
public, so its part of an error bar is computed, not estimated. Estimates with `sampling` also hold the error of the
sample of patients; all others are about these patients and the noise alone.

A site whose totals no table gives is left out and named. A count is never below nought, a sum of squares neither, and
no total passes the end at which sites saturate. Noise moves them beyond by no more than its law says: what passes that
with a chance of 2⁻⁴⁰, over all numbers of a release together, is the site's fault or its attacker's. Only released
integers and public numbers are looked at, never the declared patients: a hospital that has grown would be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.definition import Received
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NoiseSetting, Total, noise_of
from wardround.federation.plan.plan import Plan, facts_of
from wardround.federation.question.answer import Estimate, Update
from wardround.federation.statistics import own_definition
from wardround.privacy.inference.error_bars import passed_with_chance
from wardround.privacy.mechanisms.additive import LARGEST_TOTAL
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import IntVector

_LARGEST = 2**63 - 1
CHANCE = 2.0**-40
_ENDS = np.iinfo(np.int64)


def combine(
    plan: Plan, form: AnswerLayout, releases: Sequence[IntVector], *, setting: NoiseSetting
) -> tuple[Estimate, ...]:
    """Every estimate of every aggregate and group, from the sites that answered, in the question's order."""
    if not releases or any(values.shape != (form.dimension,) for values in releases):
        raise InvariantBroken(private="a stored release does not have the plan's form")
    sums = exact_sums(releases)
    found: dict[int, list[Estimate]] = {}
    start = 0
    for part, law in zip(form.parts, plan.laws(), strict=True):
        noise = noise_of(law, noises=setting.noises(sites=len(releases)))
        numbers = sums[start : start + part.dimension]
        start += part.dimension
        total = Total(form, part, numbers, noise, plan.plan_id)
        estimates = list(own_definition(part).estimates(total))
        # A part gives each of its aggregates equally many.
        each = len(estimates) // len(part.aggregates)
        for number, place in enumerate(total.places):
            found[place] = estimates[number * each : (number + 1) * each]
    return tuple(estimate for place in sorted(found) for estimate in found[place])


def exact_sums(releases: Sequence[IntVector]) -> list[int]:
    """Exact sums, however large: a site may have sent the ends of the 64-bit range."""
    total, far = added(releases)
    found: list[int] = total.tolist()
    for place, exact in far.items():
        found[place] = exact
    return found


def added(releases: Sequence[IntVector]) -> tuple[IntVector, dict[int, int]]:
    """The sums, and once more by place those that 64 bits might not hold; only the latter are right there."""
    total, far = np.zeros(releases[0].shape, np.int64), np.zeros(releases[0].shape, np.bool_)
    most = _LARGEST // len(releases)
    for values in releases:
        total += values
        if values.size and (int(values.max()) > most or int(values.min()) < -most):
            far |= (values > most) | (values < -most)
    return total, {place: sum(int(values[place]) for values in releases) for place in np.flatnonzero(far).tolist()}


def combine_releases(
    plan: Plan, form: AnswerLayout, releases: Sequence[Release], *, setting: NoiseSetting, patients: Mapping[str, int]
) -> tuple[Estimate, ...]:
    """Every estimate of the answer; `patients` are the numbers that the sites declared."""
    if isinstance(plan.mechanism, Mechanism) and not plan.threshold:
        return combine(plan, form, [release.values for release in releases], setting=setting)
    from_releases = own_definition(form.parts[0]).from_releases
    if from_releases is None:
        raise InvariantBroken(private="keys or votes were released for a statistic that has none")
    (fact,) = facts_of(plan, form)
    return tuple(from_releases(Received(form, releases, fact, setting, patients)))


def impossible(plan: Plan, form: AnswerLayout, releases: Sequence[Release]) -> tuple[str, ...]:
    """The sites whose totals no table gives, by name."""
    if not isinstance(plan.mechanism, Mechanism):
        # A vote is one of its candidates, or it was not accepted.
        return ()
    lowest = None if plan.threshold else least_totals(plan, form)
    return tuple(sorted(release.site for release in releases if not _possible(release.values, lowest)))


def least_totals(plan: Plan, form: AnswerLayout) -> IntVector:
    """The least number that an honest site releases in each place, but for a chance of 2⁻⁴⁰ over all of them."""
    chance = CHANCE / max(form.dimension, 1)
    ends = []
    for part, law in zip(form.parts, plan.laws(), strict=True):
        reach = min(passed_with_chance(law, chance), 2 * LARGEST_TOTAL)
        own = [-reach if sure else -LARGEST_TOTAL for sure in own_definition(part).never_below_nought(part)]
        ends.append(np.tile(np.maximum(np.array(own, dtype=np.int64), -LARGEST_TOTAL), part.groups))
    return np.concatenate(ends)


def _possible(values: IntVector, lowest: IntVector | None) -> bool:
    if values.size == 0:
        return True
    if int(values.max()) > LARGEST_TOTAL or int(values.min()) < -LARGEST_TOTAL:
        return False
    return lowest is None or bool((values >= lowest).all())


def updates(releases: Sequence[Release], *, by_site: bool) -> tuple[Update, ...]:
    """One update for each site that answered, in the order of their names, or one for all of them."""
    if by_site:
        ordered = sorted(releases, key=lambda release: release.site)
        return tuple(Update(release.site, release.values.astype("<i8").tobytes()) for release in ordered)
    total, far = added([each.values for each in releases])
    for place, exact in far.items():
        # Only a site that sends the ends of the range can come above them; the sum then stays at the end.
        total[place] = min(max(exact, _ENDS.min), _ENDS.max)
    return (Update("", total.astype("<i8").tobytes()),)
