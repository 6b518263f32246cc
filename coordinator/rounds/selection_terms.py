"""How keys are selected and choices made: the threshold, and which mechanism promises more. Pure.

A threshold is as low as the question's own share of the study's δ allows, so that as many questions for keys fit
a study as its ε admits. A choice is made by votes or from a noised table, whichever has the smaller expected regret.
"""

from __future__ import annotations

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.plan.plan import Plan, facts_of, selection, selection_slack
from wardround.federation.statistics import own_definition
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import SLACK_UNIT
from wardround.privacy.mechanisms.partition_selection import LARGEST_THRESHOLD, least_threshold
from wardround.privacy.noise.distribution import NoiseDistribution

# An allowance comes from floating point, whose last places differ between machines; a site must not refuse for them.
_KEPT = (999, 1000)


def planned_threshold(law: NoiseDistribution, part: Part, study: Study, *, slack: int) -> int:
    """The least threshold that the question's share of the study's slack pays for, within `slack` units a site."""
    share = selection_slack(selection(law, part, LARGEST_THRESHOLD).cost(), study)
    units = min(share, slack) * _KEPT[0] // _KEPT[1]
    if units < 1:
        raise QueryMistaken(
            "which values an open category has can only be shown with a δ above 0, in the study and in the question; "
            "list the values you are interested in instead."
        )
    return least_threshold(law, delta=units / SLACK_UNIT, max_keys=part.max_groups, steps=part.increment)


def merit(plan: Plan, form: AnswerLayout) -> float | None:
    """What makes one plan for keys or for a choice better than another, the less the better; None for any other."""
    part = form.parts[0]
    own = own_definition(part).merit
    return None if own is None else own(facts_of(plan, form)[0], part, len(plan.participants))
