"""How good an answer will be, before anything is spent: the error bars of a cohort that the study could have.

What a count's error is depends on the noise alone. For everything else a cohort of the declared size is put through
the same functions that make the estimates, so a dry run and an answer never use two formulas.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from coordinator.combining import Noise, NoiseSetting, Total, estimates_of, noise_of
from coordinator.rounds.selection_terms import expected_regret, threshold_text
from wardround.federation.plan.charge_split import shares
from wardround.federation.plan.layout import SQUARE_WEIGHT, Part, PartKind, Shape
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Estimate, ExpectedError
from wardround.federation.question.query import Aggregate, Statistic
from wardround.privacy.noise.distribution import Mechanism

_OF_EACH = {
    Statistic.HISTOGRAM: "of each interval",
    Statistic.CHI_SQUARE: "of each cell of the table",
    Statistic.CHOICE: "of each value's count",
    Statistic.KEYS: "of each key's count",
}
_EVEN = "values spread evenly over their bounds"
_TYPICAL = {
    Statistic.VARIANCE: _EVEN,
    Statistic.STD: _EVEN,
    Statistic.QUANTILE: _EVEN,
    Statistic.CORRELATION: f"unrelated columns, {_EVEN}, sampling included",
    Statistic.REGRESSION: f"the first slope of unrelated columns, {_EVEN}, sampling included",
    Statistic.SURVIVAL: "the time at which half are left, nobody censored, sampling included",
}


def expected_errors(
    plan: Plan, form: Shape, participants: Mapping[str, int], setting: NoiseSetting
) -> tuple[ExpectedError, ...]:
    """The standard error of every aggregate when all participants answer, in the question's order.

    That of a mean depends on how many patients there are; it is given for the declared number, and for the value of
    the mean at which it is largest.
    """
    patients = sum(participants.values())
    noises = setting.noises(sites=len(plan.participants))
    if not isinstance(plan.mechanism, Mechanism):
        return (_expected_votes(plan, form.parts[0]),)
    found: dict[Aggregate, ExpectedError] = {}
    for part, law, share in zip(form.parts, plan.laws(), shares(form, plan.mechanism), strict=True):
        noise = noise_of(law, noises=noises)
        for aggregate, error, shown in _errors(form, part, noise, patients=patients):
            note = f"{shown}; {threshold_text(plan, part)}" if plan.threshold else shown
            found[aggregate] = ExpectedError(
                aggregate.statistic.value, aggregate.column, part.groups, error, note, float(share)
            )
    return tuple(found[aggregate] for aggregate in form.query.aggregates)


def _expected_votes(plan: Plan, part: Part) -> ExpectedError:
    aggregate, regret = part.aggregates[0], expected_regret(plan, part)
    note = f"the votes have no error; in the mean the chosen value has at most {regret:.3g} fewer than the best"
    return ExpectedError(aggregate.statistic.value, aggregate.column, part.groups, 0.0, f"{note}, if the sites agree")


def _errors(form: Shape, part: Part, noise: Noise, *, patients: int) -> Iterator[tuple[Aggregate, float, str]]:
    first = part.aggregates[0]
    if part.kind in (PartKind.EVENTS, PartKind.PATIENTS, PartKind.SUM) or first.statistic is Statistic.HISTOGRAM:
        yield first, noise.deviation * float(part.grid), _OF_EACH.get(first.statistic, "")
        return
    note = f"for {patients} declared patients"
    if part.groups > 1:
        note += f", spread evenly over {part.groups} groups"
    alone = dataclasses.replace(form, query=dataclasses.replace(form.query, group_by=()), group_keys=((),))
    numbers = _typical_numbers(part, patients / part.groups)
    total = Total(alone, dataclasses.replace(part, groups=1), numbers, noise, key="")
    estimates = list(estimates_of(total))
    for place, aggregate in enumerate(part.aggregates):
        shown, chosen = _TYPICAL.get(aggregate.statistic), _chosen(aggregate, estimates, place)
        about = note if shown is None else f"{note}: {shown}"
        if chosen.standard_error is None:
            # All that is possible then, and a word that it will hardly be more.
            low, high = chosen.interval
            yield aggregate, (high - low) / 2, f"{about}; there will hardly be an estimate"
        else:
            yield aggregate, chosen.standard_error, about


def _chosen(aggregate: Aggregate, estimates: list[Estimate], place: int) -> Estimate:
    """The one number that stands for the aggregate."""
    match aggregate.statistic:
        case Statistic.SURVIVAL:
            curve = [estimate for estimate in estimates if estimate.term != "median"]
            return min(curve, key=lambda estimate: math.inf if estimate.value is None else abs(estimate.value - 0.5))
        case Statistic.CORRELATION | Statistic.REGRESSION:
            return estimates[0]
        case _:
            return estimates[place]


def _typical_numbers(part: Part, number: float) -> list[int]:
    """The integers of `number` records in one group: spread evenly, or where the error is largest."""
    match part.kind:
        case PartKind.MEAN:
            return [round(number * part.quantisers[0].high), 0]
        case PartKind.MOMENTS:
            square = (part.quantisers[0].high // 2) ** 2
            return [round(number * square), 0, -round(number * square / 6)]
        case PartKind.PRODUCTS:
            return _unrelated(part, number)
        case PartKind.TREE if part.tree is not None and part.coding is not None:
            each, codes = number * part.increment / part.coding.codes, part.coding.codes
            return [
                round(each * min(max(codes - cell * size, 0), size))
                for size in (part.tree.leaves // cells for cells in part.tree.sizes)
                for cell in range(part.tree.leaves // size)
            ]
        case PartKind.LAST:
            half = part.coordinates // 2
            return [count for _ in range(half) for count in (0, round(number * part.increment / half))]
        case _:
            return [round(number * part.increment), *([0] * (part.coordinates - 1))]


def _unrelated(part: Part, number: float) -> list[int]:
    """n, no sums, a third of the squares and no products."""
    halves = [quantiser.high // 2 for quantiser in part.quantisers]
    found = [round(number * SQUARE_WEIGHT * part.increment**2), *([0] * len(halves))]
    for place, half in enumerate(halves):
        square = SQUARE_WEIGHT * half**2 / 3
        found += [round(number * square), *([0] * (len(halves) - place - 1))]
    return found


def log_size(plan: Plan, form: Shape) -> float:
    """The logarithm of the product of the parts' errors: the plan with the smaller one is the better answer."""
    return sum(
        math.log(law.variance) / 2 + math.log(part.grid) for part, law in zip(form.parts, plan.laws(), strict=True)
    )
