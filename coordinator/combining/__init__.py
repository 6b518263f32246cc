"""From the sites' noised integers to estimates with error bars. Pure, and post-processing only.

Numerators and denominators are added over the sites in integers before anything is divided. The law of the noise is
public, so its part of an error bar is computed, not estimated. Estimates with `sampling` also hold the error of the
sample of patients; all others are about these patients and the noise alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.totals import NoiseSetting, Total, noise_of
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Estimate
from wardround.federation.statistics import own_definition
from wardround.privacy.noise.vectors import IntVector

_LARGEST = 2**63 - 1


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
