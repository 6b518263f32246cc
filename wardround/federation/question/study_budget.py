"""The study's budget, as an analyst reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

from wardround.federation.limits import MAX_SITES, Distinct, Finite, Many, Member, Needed, Whole, name_of, word_of
from wardround.federation.question.answer import MAX_FIGURES, Epsilon, EpsilonIfAny, Loss, Overlap, Remaining, UnitName

MAX_HISTORY = 10_000
_LAST_DATE = 253_402_300_799.0  # the end of the year 9999


class SiteStanding(StrEnum):
    """Whether a site takes part. An active one that has not called for two polls is away."""

    ACTIVE = "active"
    AWAY = "away"
    FROZEN = "frozen"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class SiteBudget:
    """One site in the budget report; a coordinator of an earlier version tells of its standing only `frozen`."""

    name: Annotated[str, name_of("the sites")]
    spent: Annotated[Loss, Needed("a report does not say what a site spent.")]
    frozen: bool
    standing: Annotated[SiteStanding, Member("a site's standing")] | None = None

    @property
    def state(self) -> str:
        """The standing in one word, as far as it is known."""
        return self.standing.value if self.standing is not None else "frozen" if self.frozen else "active"


@dataclass(frozen=True, slots=True)
class Statement:
    """One ε, at the study's δ, with what it is: a guarantee, or a description of what was charged.

    A guarantee also holds for analysts who choose each question after reading earlier answers.
    """

    name: Annotated[str, word_of("a statement")]
    epsilon: EpsilonIfAny
    guarantee: bool


@dataclass(frozen=True, slots=True)
class ByOverlap:
    """The filter's ε if a unit were at one site only, at as many as the study declares, and at every site."""

    one: Epsilon
    declared: Epsilon
    every: Epsilon

    def fault(self) -> str | None:
        """The wider the dearer."""
        return None if self.one <= self.declared <= self.every else "a wider overlap costs less."


@dataclass(frozen=True, slots=True)
class Spending:
    """The filter's ε after so many charges; `date` is that of the last of them, in seconds since 1970."""

    date: Annotated[float, Finite("a date", lower=0.0, upper=_LAST_DATE)]
    charges: Annotated[int, Whole("the number of charges")]
    epsilon: Epsilon


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The study's budget as the coordinator's ledger has it.

    Every ε is that of the unit it costs most, at the study's δ, and infinite where an accountant has none. `events`
    are charges: rounds of a training after the one that paid for it are none.
    """

    study: Annotated[str, name_of("a study")]
    unit: UnitName
    overlap: Overlap
    cap: Annotated[Loss, Needed("a report has no cap.")]
    spent: Annotated[Loss, Needed("a report does not say what was spent.")]
    remaining: Annotated[Remaining, Needed("a report does not say what remains.")]
    accountants: Annotated[
        tuple[tuple[Annotated[str, word_of("an accountant")], EpsilonIfAny], ...],
        Many("a report has too many accountants.", MAX_FIGURES),
    ]
    sites: Annotated[
        tuple[SiteBudget, ...],
        Many(f"the sites has more than {MAX_SITES} names.", MAX_SITES),
        Distinct("the sites", attrgetter("name")),
    ]
    events: Annotated[int, Whole("the number of events")]
    by_overlap: Annotated[ByOverlap, Needed("a report does not say what an overlap means.")]
    statements: Annotated[tuple[Statement, ...], Many("a report has too many statements.", MAX_FIGURES)]
    history: Annotated[tuple[Spending, ...], Many("a history has too many points.", MAX_HISTORY)]
