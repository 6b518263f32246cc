"""How good an answer will be, before anything is spent: the error bars of a cohort that the study could have.

What a count's error is depends on the noise alone. For everything else a cohort of the declared size is put through
the same functions that make the estimates, so a dry run and an answer never use two formulas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.forms.totals import NoiseSetting, Total, TotalNoise, noise_of
from wardround.federation.plan.layout import shares
from wardround.federation.plan.plan import Plan, facts_of
from wardround.federation.question.answer import ExpectedError
from wardround.federation.question.query import Aggregate
from wardround.federation.statistics import find, own_definition
from wardround.privacy.noise.distribution import Mechanism


def expected_errors(
    plan: Plan, form: AnswerLayout, participants: Mapping[str, int], setting: NoiseSetting
) -> tuple[ExpectedError, ...]:
    """The standard error of every aggregate when all participants answer, in the question's order.

    That of a mean depends on how many patients there are; it is given for the declared number, and for the value of
    the mean at which it is largest.
    """
    patients = sum(participants.values())
    noises = setting.noises(sites=len(plan.participants))
    promise = _promise(plan, form)
    if not isinstance(plan.mechanism, Mechanism):
        (part,), (aggregate,) = form.parts, form.query.aggregates
        return (ExpectedError(aggregate.statistic.value, aggregate.column, part.groups, 0.0, promise),)
    found: dict[Aggregate, ExpectedError] = {}
    for part, law, share in zip(form.parts, plan.laws(), shares(form, plan.mechanism), strict=True):
        noise = noise_of(law, noises=noises)
        for aggregate, error, shown in _errors(form, part, noise, patients=patients):
            note = f"{shown}; {promise}" if promise else shown
            found[aggregate] = ExpectedError(
                aggregate.statistic.value, aggregate.column, part.groups, error, note, float(share)
            )
    return tuple(found[aggregate] for aggregate in form.query.aggregates)


def _promise(plan: Plan, form: AnswerLayout) -> str:
    """What is said of keys or votes, which are more or less than a noised vector."""
    promise = own_definition(form.parts[0]).promise
    if promise is None or (isinstance(plan.mechanism, Mechanism) and not plan.threshold):
        return ""
    return promise(facts_of(plan, form)[0], form.parts[0], len(plan.participants))


def _errors(
    form: AnswerLayout, part: Part, noise: TotalNoise, *, patients: int
) -> Iterator[tuple[Aggregate, float, str]]:
    owner = own_definition(part)
    if owner.typical is None:
        yield part.aggregates[0], noise.deviation * float(part.grid), owner.of_each
        return
    note = f"for {patients} declared patients"
    if part.groups > 1:
        note += f", spread evenly over {part.groups} groups"
    alone = dataclasses.replace(form, query=dataclasses.replace(form.query, group_by=()), group_keys=((),))
    numbers = owner.typical(part, patients / part.groups)
    total = Total(alone, dataclasses.replace(part, groups=1), numbers, noise, key="")
    estimates = list(owner.estimates(total))
    for place, aggregate in enumerate(part.aggregates):
        asked = find(aggregate.statistic)
        chosen = asked.stands_for(estimates, place)
        about = f"{note}: {asked.assumed}" if asked.assumed else note
        if chosen.standard_error is None:
            # All that is possible then, and a word that it will hardly be more.
            low, high = chosen.interval
            yield aggregate, (high - low) / 2, f"{about}; there will hardly be an estimate"
        else:
            yield aggregate, chosen.standard_error, about
