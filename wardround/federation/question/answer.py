"""What the analyst gets: a question's progress, the answer with its error bars, or why there is no estimate.

A number that is not known is not shown as one. Why follows from released numbers and the public law of the noise, so
saying it tells nothing more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import Annotated

from wardround.federation.limits import (
    INFINITE_IF_ABSENT,
    MAX_AGGREGATES,
    MAX_SITES,
    MAX_TEXT,
    Distinct,
    Finite,
    Form,
    Many,
    Member,
    Names,
    Needed,
    PlanId,
    RefusalCode,
    Text,
    Whole,
    name_of,
)
from wardround.federation.question.cohort import ColumnName
from wardround.federation.question.query import MAX_CELLS, MAX_GROUP_COLUMNS, Statistic
from wardround.federation.study.study import Unit, Value
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism

MAX_UPDATE_BYTES = 2**30
"""What the updates of one answer take at most: an analyst holds them all."""

MAX_ESTIMATES = MAX_AGGREGATES * MAX_CELLS
MAX_NOTE = 1024
MAX_OVERLAP = 10_000
MAX_COMPOSITION = 64
MAX_FIGURES = 32

Epsilon = Annotated[float, Finite("ε", lower=0.0)]
EpsilonIfAny = Annotated[float, Finite("ε", lower=0.0), INFINITE_IF_ABSENT]
Overlap = Annotated[int, Whole("an overlap", 1, MAX_OVERLAP)]
UnitName = Annotated[str, Member("a unit", of=(Unit,))]
StatisticName = Annotated[str, Member("a statistic", of=(Statistic,))]
MechanismName = Annotated[str, Member("a mechanism", of=(Mechanism, Choosing), but=(Choosing.EXPONENTIAL,))]
StandardError = Annotated[float, Finite("a standard error", lower=0.0)]

HalfWidth = Annotated[float, Finite("half of an interval", lower=0.0)]
AWAITED = "AwaitingApproval"
"""The code of what is foreseen where a person decides; also that of the error while one has yet to."""

NOISE_AWARE = "noise_aware_statistic"
"""The term of the number by which a table of two columns is tested: of the released table, not of the patients'."""


class NoEstimate(StrEnum):
    """What happened; each member has a sentence that says so, and what to do."""

    TOO_FEW = "too_few"
    NO_SPREAD = "no_spread"
    PREDICTORS_ALIKE = "predictors_alike"
    NOBODY_LEFT = "nobody_left"

    @property
    def sentence(self) -> str:
        """What happened and what to do, for a person."""
        return _SENTENCES[self]


_SENTENCES = {
    NoEstimate.TOO_FEW: (
        "too few patients: the noise may be larger than the answer; ask with a larger ε, widen the "
        "cohort, or ask for fewer groups."
    ),
    NoEstimate.NO_SPREAD: (
        "a column varies so little that the noise may hide it; ask with a larger ε, widen the cohort, or "
        "narrow the column's bounds (CLAMP)."
    ),
    NoEstimate.PREDICTORS_ALIKE: (
        "the noise hides how the predictors differ from each other; "
        "ask with a larger ε, widen the cohort, take fewer predictors, or narrow their bounds (CLAMP)."
    ),
    NoEstimate.NOBODY_LEFT: (
        "so few patients are still followed at that time that the noise may hide them; ask with a larger "
        "ε, widen the cohort, or ask for fewer intervals of time."
    ),
}


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
    `reason` there is no number and no error, and the interval is all that is still possible. `place` is that of its
    aggregate in the question; None where it belongs to none of them, and in answers of before.
    """

    statistic: StatisticName
    column: ColumnName | None
    group: Annotated[
        tuple[tuple[ColumnName, Value], ...], Many("an estimate has too many group columns.", MAX_GROUP_COLUMNS)
    ]
    value: Annotated[float, Finite("an estimate")] | None
    standard_error: StandardError | None
    interval: tuple[Annotated[float, Finite("an interval")], Annotated[float, Finite("an interval")]]
    confidence: Annotated[float, Finite("a confidence", lower=0.0, upper=1.0)]
    term: Annotated[str, Text("a term", longest=MAX_TEXT, shortest=0, plain=False)] = ""
    sampling: bool = False
    reason: Annotated[NoEstimate, Member("the reason for no estimate")] | None = None
    place: Annotated[int, Whole("the place of an aggregate", upper=MAX_AGGREGATES - 1)] | None = None

    @property
    def shown_interval(self) -> tuple[float, float] | None:
        """The interval; None for a number that estimates nothing and so has none."""
        return None if self.term == NOISE_AWARE and self.statistic == Statistic.CHI_SQUARE else self.interval

    def fault(self) -> str | None:
        """An interval goes from below to above."""
        return None if self.interval[0] <= self.interval[1] else "an interval is the wrong way round."


@dataclass(frozen=True, slots=True)
class Update:
    """The noised integers of a step: of one site, or of all that answered together where `site` is empty."""

    site: str
    total: bytes
    """Little-endian 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Loss:
    """ε at δ."""

    epsilon: Epsilon
    delta: Annotated[float, Finite("δ", lower=0.0, upper=1.0)]


@dataclass(frozen=True, slots=True)
class Remaining:
    """The largest next question that would be admitted, and the share of the Gaussian lane left."""

    epsilon: Annotated[float, Finite("what remains", lower=0.0)]
    fraction: Annotated[float, Finite("the share that remains", lower=0.0, upper=1.0)]


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """What the answer cost one unit, and what is left of the study's budget."""

    mechanism: MechanismName
    charged: Annotated[Loss, Needed("a privacy statement does not say what was charged.")]
    spent: Annotated[Loss, Needed("a privacy statement does not say what was spent.")]
    remaining: Annotated[Remaining, Needed("a privacy statement does not say what remains.")]
    overlap: Overlap
    composition: Annotated[str, Text("a composition", longest=MAX_COMPOSITION, plain=True)]


class WhyDearer(StrEnum):
    """Why a plan has another kind of noise than its question would like."""

    USED_UP = "used_up"
    DOES_NOT_FIT = "does_not_fit"


@dataclass(frozen=True, slots=True)
class DearerNoise:
    """That another `mechanism` would have been better, why it is not used, and what that costs.

    The two numbers are half-widths at 95 % of the aggregate at `place`, at the same ε. Where the question was asked by
    error they are the ε of each at the same error, and there is no place.
    """

    mechanism: MechanismName
    why: Annotated[WhyDearer, Member("the reason for dearer noise")]
    instead: Annotated[float, Finite("what other noise gives", lower=0.0)]
    actual: Annotated[float, Finite("what the noise gives", lower=0.0)]
    place: Annotated[int, Whole("the place of an aggregate", upper=MAX_AGGREGATES - 1)] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Estimates from the sites that answered, and who did not; `updates` are the answer to a step.

    `left_out` answered too, with totals that no table gives, and is in none of the estimates. Where a hospital is
    lacking, `lacking_patients` of `asked_patients` are declared by those that are; None from earlier coordinators.
    """

    plan_id: PlanId
    unit: UnitName
    replayed: bool
    noiseless: bool
    answered: Annotated[tuple[str, ...], Names("the sites that answered")]
    refused: Annotated[
        tuple[tuple[Annotated[str, name_of("the sites that refused")], RefusalCode], ...],
        Many(f"the sites that refused has more than {MAX_SITES} names.", MAX_SITES),
        Distinct("the sites that refused", itemgetter(0)),
    ]
    missing: Annotated[tuple[str, ...], Names("the missing sites")]
    estimates: Annotated[tuple[Estimate, ...], Many("an answer has too many estimates.", MAX_ESTIMATES)]
    privacy: Annotated[PrivacyStatement, Needed("an answer does not say what it cost.")]
    updates: tuple[Update, ...] = ()
    left_out: Annotated[tuple[str, ...], Names("the sites that are left out")] = ()
    dearer: DearerNoise | None = None
    asked_patients: Annotated[int, Whole("the number of patients")] | None = None
    lacking_patients: Annotated[int, Whole("the number of patients")] | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """An answer with some of its `total` estimates: those from number `first` on."""

    answer: Answer
    first: int
    total: int


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """What a dry run promises for one part: the standard error of each of its numbers.

    For a mean the error depends on how many patients there are, so it is given for the declared number. `share`
    is the part's share of the charge, `half_width` half of the interval at 95 %; None where there will hardly be one,
    for votes, and from a coordinator of before.
    """

    statistic: StatisticName
    column: ColumnName | None
    groups: Annotated[int, Whole("the number of groups", 1, MAX_CELLS)]
    standard_error: StandardError
    note: Annotated[str, Text("a note", longest=MAX_NOTE, shortest=0, plain=True)]
    share: Annotated[float, Finite("a share", lower=0.0, upper=1.0)] = 1.0
    half_width: HalfWidth | None = None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why a question would be refused now: the ε that it asks for, and the one that remains for it."""

    asked: Annotated[float, Finite("what is asked", lower=0.0)]
    remaining: Annotated[float, Finite("what remains", lower=0.0)]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a site would do with a question other than answer at once, by the limits that it published.

    It refuses with this code, or lets a person decide (`AWAITED`); the sentence begins with the site's name.
    """

    site: Annotated[str, name_of("the sites that would refuse")]
    code: RefusalCode
    sentence: Annotated[str, Text("what is foreseen", longest=MAX_NOTE, plain=True)]

    @property
    def refuses(self) -> bool:
        return self.code != AWAITED


@dataclass(frozen=True, slots=True)
class ErrorCost:
    """What a question would cost if it were asked for these errors, one for each aggregate.

    Without a loss no budget of the study reaches them, or none within the ε that the question allows; `share` is that
    of what is left for this kind of noise, above 1 where it is not enough and None where nothing is left.
    """

    errors: Annotated[tuple[HalfWidth, ...], Many("a line of errors has too few or too many.", MAX_AGGREGATES, least=1)]
    loss: Loss | None = None
    mechanism: MechanismName | None = None
    share: Annotated[float, Finite("a share", lower=0.0)] | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """A dry run: what would be charged and how good the answer would be. Nothing was spent.

    `excess` is there when the budget would refuse the question as things stand, `block` for a step: what all rounds of
    its training have in common. `foreseen` are the sites that would refuse it, or let a person decide.
    `by_error` is there for a question that was asked by error: half of it, the same, and twice.
    """

    plan_id: PlanId
    unit: UnitName
    replayed: bool
    sites: Annotated[tuple[str, ...], Names("the participants")]
    expected: Annotated[tuple[ExpectedError, ...], Many("a preview has too many parts.", MAX_AGGREGATES)]
    privacy: Annotated[PrivacyStatement, Needed("a preview does not say what it would cost.")]
    excess: Shortfall | None = None
    block: Annotated[str, Form("a training's block is not a hash.", re.compile(r"(?:[0-9a-f]{64})?"))] = ""
    foreseen: Annotated[
        tuple[Foreseen, ...],
        Many(f"the sites that would refuse has more than {MAX_SITES} names.", MAX_SITES),
        Distinct("the sites that would refuse", attrgetter("site")),
    ] = ()
    dearer: DearerNoise | None = None
    by_error: Annotated[tuple[ErrorCost, ...], Many("a preview has too many lines of errors.", MAX_FIGURES)] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of every participant, numbered so that a long poll can wait for the next change."""

    seen: Annotated[int, Whole("progress")]
    sites: Annotated[
        tuple[tuple[Annotated[str, name_of("the participants")], Annotated[SiteState, Member("a site's state")]], ...],
        Many(f"the participants has more than {MAX_SITES} names.", MAX_SITES),
        Distinct("the participants", itemgetter(0)),
    ]
