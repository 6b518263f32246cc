"""One vote from each site: the most frequent value as each of them sees it, and the value with most votes.

A site that voted for the winner has hardly more units with any other value; of the others only the declared number
of patients is known. The bound on the regret says both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from coordinator.combining.noise import CONFIDENCE, NoiseSetting
from coordinator.combining.tables import key_text
from coordinator.combining.total import Found, estimate
from wardround.federation.forms.release import Release
from wardround.federation.plan.layout import Shape
from wardround.federation.plan.plan import Plan, choice
from wardround.federation.question.answer import Estimate
from wardround.federation.study.study import Unit
from wardround.privacy.inference.selection_error import regret_of_choice


def votes(
    plan: Plan, form: Shape, releases: Sequence[Release], *, setting: NoiseSetting, patients: Mapping[str, int]
) -> Iterator[Estimate]:
    """The value with most votes (the first in the study's order among equals), its lead, and its regret.

    The regret is in units, over all sites that answered. Where events are protected, nobody knows how many another
    site has, so there is a regret only when all sites agree.
    """
    (part,) = form.parts
    aggregate = part.aggregates[0]
    keys = form.table.column(aggregate.column or "").domain
    counts = [sum(int(release.values[place]) for release in releases) for place in range(len(keys))]
    order = sorted(range(len(keys)), key=lambda place: (-counts[place], place))
    best, lead = float(counts[order[0]]), float(counts[order[0]] - (counts[order[1]] if len(order) > 1 else 0))
    yield estimate(aggregate, (), Found(best, 0.0, (best, best)), term=key_text(keys[order[0]]))
    yield estimate(aggregate, (), Found(lead, 0.0, (lead, lead)), term="gap")
    others = [release.site for release in releases if not release.values[order[0]]]
    if others and form.unit is Unit.EVENT:
        return
    regret = 0.0
    if not setting.noiseless:
        epsilon = float(choice(plan, part).epsilon)
        # For all that answered, not only for the winner's: who voted for it is chance as well.
        chance = (1.0 - CONFIDENCE) / len(releases)
        short = regret_of_choice(epsilon=epsilon, candidates=len(keys), chance=chance)
        # Counts are whole: what falls short by less than 1 does not fall short.
        regret = counts[order[0]] * float(math.floor(short))
    regret += float(sum(patients[site] for site in others))
    yield estimate(aggregate, (), Found(regret, 0.0, (0.0, regret)), term="regret")
