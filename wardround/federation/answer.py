"""What the analyst gets: a question's request, its progress, and the answer with its error bars."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.expressions import Value
from wardround.federation.no_estimate import NoEstimate
from wardround.federation.query import Query, Statistic
from wardround.federation.training import Step

MAX_UPDATE_BYTES = 2**30
"""What the updates of one answer take at most: an analyst holds them all."""

NOISE_AWARE = "noise_aware_statistic"
"""The term of the number by which a table of two columns is tested: of the released table, not of the patients'."""


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question and how sharp its answer should be; `nonce` is set by the analyst for a fresh answer.

    A step says how sharp it is by itself: ε and δ are None then.
    """

    query: Query | Step
    epsilon: float | None = None
    delta: float | None = None
    nonce: str = ""


class SiteState(StrEnum):
    """Where one site is with one plan."""

    OPEN = "open"
    CLAIMED = "claimed"
    PENDING = "pending"
    RELEASED = "released"
    REFUSED = "refused"
    FAILED = "failed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its error at `confidence`: that of the noise, and with `sampling` also that of the sample.

    `term` says which number it is, where a statistic gives several: an interval, a level, a time, a column. With a
    `reason` there is no number and no error, and the interval is all that is still possible.
    """

    statistic: str
    column: str | None
    group: tuple[tuple[str, Value], ...]
    value: float | None
    standard_error: float | None
    interval: tuple[float, float]
    confidence: float
    term: str = ""
    sampling: bool = False
    reason: NoEstimate | None = None

    @property
    def shown_interval(self) -> tuple[float, float] | None:
        """The interval; None for a number that estimates nothing and so has none."""
        return None if self.term == NOISE_AWARE and self.statistic == Statistic.CHI_SQUARE else self.interval


@dataclass(frozen=True, slots=True)
class Update:
    """The noised integers of a step: of one site, or of all that answered together where `site` is empty."""

    site: str
    total: bytes
    """Little-endian 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Loss:
    """ε at δ."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Remaining:
    """The largest next question that would be admitted, and the share of the Gaussian lane left."""

    epsilon: float
    fraction: float


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """What the answer cost one unit, and what is left of the study's budget."""

    mechanism: str
    charged: Loss
    spent: Loss
    remaining: Remaining
    overlap: int
    composition: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Estimates from the sites that answered, and who did not; `updates` are the answer to a step.

    `left_out` answered too, with totals that no table gives, and is in none of the estimates.
    """

    plan_id: str
    unit: str
    replayed: bool
    noiseless: bool
    answered: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    privacy: PrivacyStatement
    updates: tuple[Update, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """What a dry run promises for one part: the standard error of each of its numbers.

    For a mean the error depends on how many patients there are, so it is given for the declared number. `share`
    is the part's share of the charge.
    """

    statistic: str
    column: str | None
    groups: int
    standard_error: float
    note: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Excess:
    """Why a question would be refused now: the ε that it asks for, and the one that remains for it."""

    asked: float
    remaining: float


@dataclass(frozen=True, slots=True)
class Preview:
    """A dry run: what would be charged and how good the answer would be. Nothing was spent.

    `excess` is there when the budget would refuse the question as things stand.
    """

    plan_id: str
    unit: str
    replayed: bool
    sites: tuple[str, ...]
    expected: tuple[ExpectedError, ...]
    privacy: PrivacyStatement
    excess: Excess | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of every participant, numbered so that a long poll can wait for the next change."""

    seen: int
    sites: tuple[tuple[str, SiteState], ...]


@dataclass(frozen=True, slots=True)
class SiteBudget:
    """One site in the budget report."""

    name: str
    spent: Loss
    frozen: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """One ε, at the study's δ, with what it is: a guarantee, or a description of what was charged.

    A guarantee also holds for analysts who choose each question after reading earlier answers.
    """

    name: str
    epsilon: float
    guarantee: bool


@dataclass(frozen=True, slots=True)
class ByOverlap:
    """The filter's ε if a unit were at one site only, at as many as the study declares, and at every site."""

    one: float
    declared: float
    every: float


@dataclass(frozen=True, slots=True)
class Spending:
    """The filter's ε after so many charges; `date` is that of the last of them, in seconds since 1970."""

    date: float
    charges: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The study's budget as the coordinator's ledger has it.

    Every ε is that of the unit it costs most, at the study's δ, and infinite where an accountant has none. `events`
    are charges: rounds of a training after the one that paid for it are none.
    """

    study: str
    unit: str
    overlap: int
    cap: Loss
    spent: Loss
    remaining: Remaining
    accountants: tuple[tuple[str, float], ...]
    sites: tuple[SiteBudget, ...]
    events: int
    by_overlap: ByOverlap
    statements: tuple[Statement, ...]
    history: tuple[Spending, ...]
