"""From the sites' releases to the answer: keys, votes, or noised integers that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.combining import NoiseSetting, combine
from coordinator.combining.keys import shown_keys
from coordinator.combining.votes import votes
from wardround.federation.forms.release import Release
from wardround.federation.plan.layout import Shape
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Estimate
from wardround.privacy.mechanisms.private_selection import Choosing


def combine_releases(
    plan: Plan, form: Shape, releases: Sequence[Release], *, setting: NoiseSetting, patients: Mapping[str, int]
) -> tuple[Estimate, ...]:
    """Every estimate of the answer; `patients` are the numbers that the sites declared."""
    if plan.threshold:
        return tuple(shown_keys(plan, form, releases, setting=setting))
    if plan.mechanism is Choosing.PERMUTE_AND_FLIP:
        return tuple(votes(plan, form, releases, setting=setting, patients=patients))
    return combine(plan, form, [release.values for release in releases], setting=setting)
