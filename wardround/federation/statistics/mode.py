"""MODE(x): the most frequent value of a category, and nothing else about it.

It is read from a noised table of the values, or each site casts one vote for the value that is most frequent there,
whichever has the smaller expected regret. A site that voted for the winner has hardly more units with any other value;
of the others only the declared number of patients is known. The bound on the regret says both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.definition import (
    Definition,
    Function,
    MeasuredIn,
    Received,
    TermLayout,
    as_counted,
    need_public_values,
)
from wardround.federation.forms.parts import Frame, Part, Records, Sums
from wardround.federation.forms.totals import CONFIDENCE, Estimated, Total, estimate
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Grouping, Statistic
from wardround.federation.study.study import Unit
from wardround.privacy.accounting.cost import Fact
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.inference.error_bars import expected_regret_of_choice, expected_regret_of_noise, regret_of_choice
from wardround.privacy.mechanisms.private_selection import ChoiceFact
from wardround.privacy.noise.distribution import Mechanism


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """Units by value; under event adjacency, rows."""
    (aggregate,) = aggregates
    groups = len(frame.table.column(aggregate.column or "").domain)
    # A choice only asks how far one count moves: a patient may count for every value it has.
    most = frame.table.max_groups_per_unit if isinstance(frame.mechanism, Mechanism) else groups
    cells = min(most, groups) if frame.unit is Unit.PATIENT else 1
    return frame.part(
        aggregates,
        Records.UNITS if frame.unit is Unit.PATIENT else Records.ROWS,
        Sums.COUNT,
        l1_sensitivity=cells * frame.one,
        l2_sensitivity_squared=cells * frame.one**2,
        max_groups=cells,
        groupings=(Grouping(aggregate.column or ""),),
        groups=groups,
    )


def estimates(total: Total) -> Iterator[Estimate]:
    """The value with the largest noised count, its gap to the next, and how much it may fall short of the best.

    The true best is one cell, so a bound over all pairs with it holds whichever was chosen.
    """
    aggregate = total.part.aggregates[0]
    keys = total.form.table.column(aggregate.column or "").domain
    grid = float(total.part.grid)
    counts = [number * grid for number in total.numbers]
    deviation, critical = total.noise.deviation * grid, total.noise.critical
    wide = total.noise.wide
    order = sorted(range(len(keys)), key=lambda place: (-counts[place], place))
    best, reach = counts[order[0]], critical * deviation
    most = Estimated(best, deviation, (best - reach, best + reach))
    yield estimate(aggregate, (), most, place=0, term=key_text(keys[order[0]]))
    gap = best - counts[order[1]] if len(order) > 1 else 0.0
    apart = math.sqrt(2.0) * deviation if len(order) > 1 else 0.0
    yield estimate(aggregate, (), Estimated(gap, apart, (gap - wide * apart, gap + wide * apart)), place=0, term="gap")
    others = max(len(order) - 1, 1)
    regret = max(total.noise.passed(draws=2, chance=(1.0 - CONFIDENCE) / others) * apart - gap, 0.0)
    yield estimate(aggregate, (), Estimated(regret, 0.0, (0.0, regret)), place=0, term="regret")


def votes(received: Received) -> Iterator[Estimate]:
    """The value with most votes (the first in the study's order among equals), its lead, and its regret.

    The regret is in units, over all sites that answered. Where events are protected, nobody knows how many another
    site has, so there is a regret only when all sites agree.
    """
    form, releases = received.form, received.releases
    (part,) = form.parts
    aggregate = part.aggregates[0]
    keys = form.table.column(aggregate.column or "").domain
    counts = [sum(int(release.values[place]) for release in releases) for place in range(len(keys))]
    order = sorted(range(len(keys)), key=lambda place: (-counts[place], place))
    best, lead = float(counts[order[0]]), float(counts[order[0]] - (counts[order[1]] if len(order) > 1 else 0))
    yield estimate(aggregate, (), Estimated(best, 0.0, (best, best)), place=0, term=key_text(keys[order[0]]))
    yield estimate(aggregate, (), Estimated(lead, 0.0, (lead, lead)), place=0, term="gap")
    others = [release.site for release in releases if not release.values[order[0]]]
    if others and form.unit is Unit.EVENT:
        return
    regret = 0.0
    if not received.setting.noiseless:
        epsilon = float(choice_of(received.fact).epsilon)
        # For all that answered, not only for the winner's: who voted for it is chance as well.
        chance = (1.0 - CONFIDENCE) / len(releases)
        short = regret_of_choice(epsilon=epsilon, candidates=len(keys), chance=chance)
        # Counts are whole: what falls short by less than 1 does not fall short.
        regret = counts[order[0]] * float(math.floor(short))
    regret += float(sum(received.patients[site] for site in others))
    yield estimate(aggregate, (), Estimated(regret, 0.0, (0.0, regret)), place=0, term="regret")


def expected_regret(fact: AnyFact, part: Part, sites: int) -> float:
    """By how many units the chosen value may fall short of the best in the mean, if the sites agree which is best."""
    if isinstance(fact, Fact):
        return expected_regret_of_noise(fact.law, terms=sites, candidates=part.dimension) * float(part.grid)
    epsilon = float(choice_of(fact).epsilon)
    return sites * expected_regret_of_choice(epsilon=epsilon, candidates=part.dimension)


def promise(fact: AnyFact, part: Part, sites: int) -> str:
    """What a dry run says of votes."""
    regret = expected_regret(fact, part, sites)
    note = f"the votes have no error; in the mean the chosen value has at most {regret:.3g} fewer than the best"
    return f"{note}, if the sites agree"


def choice_of(fact: AnyFact) -> ChoiceFact:
    """The fact that paid for a vote."""
    if not isinstance(fact, ChoiceFact):
        raise InvariantBroken(private="a vote was not paid for as one")
    return fact


def key_text(key: object) -> str:
    """A key as a term shows it."""
    return {True: "true", False: "false"}[key] if isinstance(key, bool) else str(key)


MODE = Definition(
    statistic=Statistic.CHOICE,
    functions=(Function("MODE", "MODE({grouped})"),),
    check=need_public_values,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    alone=True,
    of_each="of each value's count",
    one_number=False,
    terms=TermLayout(summary=("gap", "regret")),
    votes=True,
    from_releases=votes,
    merit=expected_regret,
    promise=promise,
    measure=MeasuredIn.RECORDS,
    aside=(("regret", "the true first has at most so many more:"),),
)
