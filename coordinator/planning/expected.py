"""How good the answer to a plan will be: the standard error, and half of the 95 % interval, of every aggregate.

What a count's error is depends on the noise alone. For everything else a cohort of the declared size is put through
the same functions that make the estimates, so a dry run and an answer never use two formulas.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.forms.totals import NoiseSetting, Total, TotalNoise, noise_of
from wardround.federation.plan.layout import shares
from wardround.federation.plan.plan import Plan, facts_of
from wardround.federation.question.answer import ExpectedError
from wardround.federation.question.query import Aggregate
from wardround.federation.statistics import find, own_definition
from wardround.privacy.noise.distribution import Mechanism


@dataclass(frozen=True, slots=True)
class Expected:
    """What one aggregate of a part will be known to; the half-width is infinite where there will be no estimate."""

    aggregate: Aggregate
    standard_error: float
    half_width: float
    note: str


def expected_errors(
    plan: Plan,
    form: AnswerLayout,
    participants: Mapping[str, int],
    setting: NoiseSetting,
    *,
    split: Sequence[Fraction] = (),
) -> tuple[ExpectedError, ...]:
    """The errors of every aggregate when all participants answer, in the question's order.

    That of a mean depends on how many patients there are; it is given for the declared number, and for the value of
    the mean at which it is largest. `split` says how the parts share the charge, where that is not by need.
    """
    patients = sum(participants.values())
    noises = setting.noises(sites=len(plan.participants))
    promise = _promise(plan, form)
    if not isinstance(plan.mechanism, Mechanism):
        (part,), (aggregate,) = form.parts, form.query.aggregates
        return (ExpectedError(aggregate.statistic.value, aggregate.column, part.groups, 0.0, promise),)
    found: dict[Aggregate, ExpectedError] = {}
    for part, law, share in zip(form.parts, plan.laws(), split or shares(form, plan.mechanism), strict=True):
        for each in of_part(form, part, noise_of(law, noises=noises), patients=patients):
            found[each.aggregate] = ExpectedError(
                each.aggregate.statistic.value,
                each.aggregate.column,
                part.groups,
                each.standard_error,
                f"{each.note}; {promise}" if promise else each.note,
                float(share),
                each.half_width if math.isfinite(each.half_width) else None,
            )
    return tuple(found[aggregate] for aggregate in form.query.aggregates)


def _promise(plan: Plan, form: AnswerLayout) -> str:
    """What is said of keys or votes, which are more or less than a noised vector."""
    promise = own_definition(form.parts[0]).promise
    if promise is None or (isinstance(plan.mechanism, Mechanism) and not plan.threshold):
        return ""
    return promise(facts_of(plan, form)[0], form.parts[0], len(plan.participants))


def of_part(form: AnswerLayout, part: Part, noise: TotalNoise, *, patients: int) -> Iterator[Expected]:
    """The errors of the aggregates that a part answers, with this noise in each of its totals."""
    owner = own_definition(part)
    if owner.typical is None:
        error = noise.deviation * float(part.grid)
        yield Expected(part.aggregates[0], error, _twelve_digits(noise.critical * error), owner.of_each)
        return
    note = f"for {patients} declared patients"
    if part.groups > 1:
        note += f", spread evenly over {part.groups} groups"
    if owner.assumed:
        note += f": {owner.assumed}"
    alone = dataclasses.replace(form, query=dataclasses.replace(form.query, group_by=()), group_keys=((),))
    numbers = owner.typical(part, patients / part.groups)
    total = Total(alone, dataclasses.replace(part, groups=1), numbers, noise, key="")
    estimates = list(owner.estimates(total))
    for place, aggregate in enumerate(part.aggregates):
        chosen = find(aggregate.statistic).stands_for(estimates, place)
        if chosen.standard_error is None:
            # All that is possible then, and a word that it will hardly be more.
            low, high = chosen.interval
            yield Expected(aggregate, (high - low) / 2, math.inf, f"{note}; the noise will probably hide it")
        else:
            yield Expected(aggregate, chosen.standard_error, _twelve_digits(owner.half_width(chosen)), note)


def _twelve_digits(half_width: float) -> float:
    """Without the last digits, in which critical values were rounded up and computers differ."""
    return float(f"{half_width:.12g}")
