"""From the noised integers of a round to the sums a model moves by, checked before they are believed.

An honest site's sum cannot be longer than its patients and its noise make it. A sum that is impossible is the site's
fault or its attacker's: where sites can be told apart it is left out and the site is named, else the training ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wardround.analyst.estimation.fitted import RoundSums
from wardround.federation.errors import MalformedMessage
from wardround.federation.models.step_layout import LENGTH, StepLayout, measured
from wardround.federation.models.training import StageKind, Vector
from wardround.federation.question.answer import Answer

Whole = NDArray[np.int64]

LARGEST = 2**52
"""No sum of contributions and noise is larger: so many are exact in doubles, and a thousand of them fit 64 bits."""
_SURE = 8.0
"""Standard deviations that honest noise passes less often than once in 10^15."""
_GUESS = 2.0
"""How far the true number of patients may be above the public guess."""
_TRUNCATED = 1.001


@dataclass(frozen=True, slots=True)
class SiteScreening:
    """What is known about who answers: the patients each site can have at most, and the sites that are left out.

    The empty name is for all sites together, which were `counted` together.
    """

    patients: int | None = None
    most: Mapping[str, float] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = field(default_factory=dict)


def sums_of(
    answer: Answer, form: StepLayout, screening: SiteScreening, *, title: str
) -> tuple[RoundSums, SiteScreening]:
    """The sums of a round, and what is known after it; `MalformedMessage` where no sum can be believed."""
    updates = {update.site: _whole(update.total, form, title=title) for update in answer.updates}
    by_site = form.step.training.by_site
    if set(updates) != (set(answer.answered) if by_site else {""}):
        raise MalformedMessage(f"{title}: the answer does not hold the sums of the sites that answered.")
    scale = 0.0 if answer.noiseless else float(form.step.training.stages[form.step.stage].scale) / LENGTH
    one_noise = answer.privacy.composition == "trusted_total"
    several = 1 if one_noise or by_site else len(answer.answered)
    kept: dict[str, Whole] = {}
    left_out = dict(screening.left_out)
    for site, whole in sorted(updates.items()):
        if site in left_out:
            continue
        fault = _fault(whole, form, _most(screening, site, answer, form), noise=scale * math.sqrt(several))
        if fault is None:
            kept[site] = whole
        elif by_site:
            left_out[site] = f"{title}: {fault}"
        else:
            raise MalformedMessage(
                f"{title}: the total is impossible ({fault}); set by_site = true to see which site's sum it is."
            )
    if not kept:
        raise MalformedMessage(f"{title}: no site's sum is possible: {'; '.join(left_out.values())}.")
    total = np.sum(np.stack(list(kept.values())), axis=0)
    answered = len(kept) if by_site else len(answer.answered)
    sums = RoundSums(
        totals=_contributions(total, form),
        sites={site: _contributions(whole, form) for site, whole in kept.items()} if by_site else {},
        answered=answered,
        noise_sd=scale * (1.0 if one_noise else math.sqrt(answered)),
    )
    counts = _counts(kept, form, noise=scale * math.sqrt(several))
    counted = frozenset(answer.answered) if counts else screening.counted
    return sums, SiteScreening(screening.patients, {**screening.most, **counts}, counted, left_out)


def _whole(total: bytes, form: StepLayout, *, title: str) -> Whole:
    if len(total) != 8 * form.dimension:
        raise MalformedMessage(
            f"{title}: an update holds {len(total)} bytes where {form.dimension} numbers of 8 bytes are expected."
        )
    return np.frombuffer(total, dtype="<i8").astype(np.int64)


def _fault(whole: Whole, form: StepLayout, most: float | None, *, noise: float) -> str | None:
    """Why no honest site can have sent this sum; None when one can."""
    if int(whole.max()) > LARGEST or int(whole.min()) < -LARGEST:
        return "its numbers are beyond what any number of patients gives"
    if most is None:
        return None
    # Of a secret sample no more than this many take part, as surely as noise stays within its bounds.
    rate = float(form.step.training.stages[form.step.stage].rate)
    people = most if rate == 1.0 else min(most, most * rate + _SURE * math.sqrt(most * rate) + _SURE)
    limit = people + noise * (math.sqrt(form.width) + _SURE)
    longest = float(np.sqrt(np.square(_contributions(whole, form)).sum(axis=1)).max())
    if longest > limit:
        return f"its length is {longest:.3g} where at most {limit:.3g} is possible"
    return None


def _most(screening: SiteScreening, site: str, answer: Answer, form: StepLayout) -> float | None:
    """The most patients a sum can be about: by the site's own count, and never more than the public guess allows."""
    known = screening.most.get(site)
    if site == "" and not set(answer.answered) <= screening.counted:
        # Somebody joined since the patients were counted.
        known = None
    held_out = form.step.training.held_out
    if known is not None and form.step.kind is StageKind.SCORES:
        expected = known * float(held_out / (1 - held_out))
        known = 2.0 * expected + _SURE * math.sqrt(expected) + _SURE**2
    guess = None if screening.patients is None else _GUESS * screening.patients
    return min((bound for bound in (known, guess) if bound is not None), default=None)


def _counts(kept: Mapping[str, Whole], form: StepLayout, *, noise: float) -> dict[str, float]:
    """What a round says about how many patients each sum is about, at the most."""
    if form.step.kind is not StageKind.MOMENTS:
        return {}
    columns = measured(form.step.training.model.kind, len(form.inputs))
    unit = math.sqrt(1.0 + 1.25 * columns)
    # Truncation takes less than a thousandth of a count.
    return {
        site: max(0.0, (float(whole[0]) / LENGTH + _SURE * noise) * unit) * _TRUNCATED + 1.0
        for site, whole in kept.items()
    }


def _contributions(whole: Whole, form: StepLayout) -> Vector:
    """Steps by width, in contributions of one patient."""
    return (whole / LENGTH).reshape(form.steps, form.width)
