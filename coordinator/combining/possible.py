"""Whose totals no table gives: such a site is left out of the answer and named.

A count is never below nought, a sum of squares neither, and no total passes the end at which sites saturate. Noise
moves them beyond by no more than its law says: what passes that with a chance of 2⁻⁴⁰, over all numbers of a release
together, is the site's fault or its attacker's. Only released integers and public numbers are looked at, never the
declared patients: a hospital that has grown would be left out for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release
from wardround.federation.plan.plan import Plan
from wardround.federation.statistics import own_definition
from wardround.privacy.inference.error_bars import passed_with_chance
from wardround.privacy.mechanisms.additive import LARGEST_TOTAL
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import IntVector

CHANCE = 2.0**-40


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
