"""From the sites' releases to the answer: keys, votes, or noised integers that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.combining import combine
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.definition import Received
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.plan import Plan, facts_of
from wardround.federation.question.answer import Estimate
from wardround.federation.statistics import own_definition
from wardround.privacy.noise.distribution import Mechanism


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
