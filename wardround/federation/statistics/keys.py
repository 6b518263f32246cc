"""KEYS(x): which values an open category has, as far as sites showed them.

A site shows a key only when its noised count passes the plan's threshold, so a count here is about the sites that
showed the key, and says nothing of those that did not. The noise of a key near the threshold is more likely to have
been upwards: the lower end of its interval is as low as noise that has passed the threshold makes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

from wardround.federation.errors import InvariantBroken, QueryMistaken
from wardround.federation.forms.definition import Definition, Function, MeasuredIn, Received, as_counted
from wardround.federation.forms.parts import Frame, Part, Records, Sums
from wardround.federation.forms.totals import Estimated, estimate, noise_of
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.statistics.count import estimates
from wardround.federation.study.study import Table, Unit
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.mechanisms.partition_selection import SelectionFact

_NORMAL = NormalDist()
_FARTHEST, _HALVINGS, _SMALLEST = 8.0, 40, 1e-300


def check(aggregate: Aggregate, table: Table) -> None:
    """One open category."""
    column = table.column(aggregate.column or "")
    if not column.open and column.domain:
        raise QueryMistaken(f"the values of {column.name!r} are public; ask COUNT(*) with GROUP BY {column.name}.")
    if not column.open:
        known = ", ".join(each.name for each in table.columns if each.open)
        raise QueryMistaken(f"{column.name!r} is no open category; open categories: {known or 'none'}.")


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """How many units hold one key; of each unit so many keys count."""
    by_patient = frame.unit is Unit.PATIENT
    cells = frame.table.max_groups_per_unit if by_patient else 1
    return frame.part(
        aggregates,
        Records.UNITS if by_patient else Records.ROWS,
        Sums.COUNT,
        l1_sensitivity=cells * frame.one,
        l2_sensitivity_squared=cells * frame.one**2,
        max_groups=cells,
    )


def shown_keys(received: Received) -> Iterator[Estimate]:
    """Every key that some site showed, in the order of the keys, with its noised counts added up."""
    releases, setting, fact = received.releases, received.setting, selection_of(received.fact)
    (part,) = received.form.parts
    aggregate = part.aggregates[0]
    counts: dict[str, list[int]] = {}
    for release in releases:
        for key, number in zip(release.keys, release.values.tolist(), strict=True):
            counts.setdefault(key, []).append(number)
    for key in sorted(counts):
        sites = len(counts[key])
        # Cut-off noise is narrower than its law, so the law's error bar is on the safe side.
        noise = noise_of(fact.law, noises=setting.noises(sites=sites))
        value = sum(counts[key]) * part.grid.numerator / part.grid.denominator
        error = noise.deviation * float(part.grid)
        reach = noise.critical * error
        # Nobody's key is never shown: each of these sites has at least one unit that holds it.
        lower = value - reach
        if noise.laplaces == 0 and noise.deviation > 0.0:
            one = noise.deviation / math.sqrt(sites)
            moved = passing_shift(counts[key], fact.threshold, deviation=one, critical=noise.critical)
            lower = min(lower, value - sites * moved * float(part.grid))
        least = max(lower, float(sites))
        found = Estimated(value, error, (least, max(value + reach, least)))
        yield estimate(aggregate, ((aggregate.column or "", key),), found, place=0)


def passing_shift(numbers: Sequence[int], threshold: int, *, deviation: float, critical: float) -> float:
    """By how much each of these noised counts may be above its own, all of them having passed the threshold.

    The greatest shift at which such counts, moved alike, would still add up to so much: the law of a normal number that
    has passed a threshold is moved upwards and narrower. Far above the threshold it is the noise's own reach.
    """
    low, high = 0.0, _FARTHEST * deviation
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        passed = [_passed(number - middle, threshold, deviation) for number in numbers]
        above = sum(numbers) - sum(mean for mean, _ in passed)
        if above <= critical * math.sqrt(sum(variance for _, variance in passed)):
            low = middle
        else:
            high = middle
    return high


def _passed(count: float, threshold: int, deviation: float) -> tuple[float, float]:
    """Mean and variance of a normal number around `count`, given that it is above the threshold."""
    edge = (threshold - count) / deviation
    tail = max(_NORMAL.cdf(-edge), _SMALLEST)
    hazard = _NORMAL.pdf(edge) / tail
    return count + deviation * hazard, max(deviation**2 * (1.0 - hazard * (hazard - edge)), 0.0)


def threshold(fact: AnyFact, part: Part, sites: int) -> float:  # noqa: ARG001
    """How many units a site must have that hold a key: the fewer the better."""
    return float(selection_of(fact).threshold * part.grid)


def promise(fact: AnyFact, part: Part, sites: int) -> str:  # noqa: ARG001
    """From how many units on a key has an even chance to be shown."""
    return f"a site shows a key whose noised count passes {math.floor(selection_of(fact).threshold * part.grid)}"


def selection_of(fact: AnyFact) -> SelectionFact:
    """The fact that paid for a selection."""
    if not isinstance(fact, SelectionFact):
        raise InvariantBroken(private="keys were not paid for as such")
    return fact


KEYS = Definition(
    statistic=Statistic.KEYS,
    functions=(Function("KEYS", "KEYS({open})"),),
    check=check,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    alone=True,
    of_each="of each key's count",
    selects_keys=True,
    from_releases=shown_keys,
    merit=threshold,
    promise=promise,
    measure=MeasuredIn.RECORDS,
)
