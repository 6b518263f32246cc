"""request.toml: one training as a researcher asks for it.

Read as strictly as every other file: a misspelt key that was ignored would train another model than the one that was
meant, and charge for it. Nothing is asked of anybody before a request is sound.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.models.training import MAX_HIDDEN, MAX_ROUNDS, RATE_UNIT, Model, ModelKind
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.decided import require_undecided
from wardround.federation.question.cohort import Expression
from wardround.federation.question.typed_cohort import typed_cohort
from wardround.federation.strict_toml import Section, check_plain, nearest, parse, read_text
from wardround.federation.study.study import Study
from wardround.federation.trust.asked_by import check_purpose

PLAIN = "fedavg"
"""The strategy that is the sum itself, and needs nothing but this project."""

PAID = "The rounds so far are kept and paid for."
"""What a strategy that fails during a training adds."""

DEFAULT_VALIDATION = 0.2
DEFAULT_HIDDEN = 8
MOST_HELD_OUT = 0.9
MOST_ROUNDS = 1000
MOST_LOCAL_STEPS = 1000
MOST_PATIENTS = 10**9


class StepSchedule(StrEnum):
    """Who moves the model: the analyst after every sum, or each site several times before it answers."""

    SUM_PER_ROUND = "sum_per_round"
    LOCAL_STEPS = "local_steps"


class Standardise(StrEnum):
    """Where inputs get their scale: from released, charged means and spreads, or from the study's bounds."""

    RELEASED = "released"
    BOUNDS = "bounds"


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """What to fit, from what, for how much; what is None or 0 is chosen by the planner.

    `patients` is a public guess of how many there are in all; `batch_size` is of all sites together. `by_site` shows
    each site's noised sums to the analyst, so that an impossible one can be named and left out. `purpose` is told to
    the hospitals and is no part of the training.
    """

    kind: ModelKind
    table: str
    target: str
    features: tuple[str, ...]
    epsilon: float
    delta: float | None = None
    cohort: str = ""
    schedule: StepSchedule | None = None
    rounds: int | None = None
    strategy: str = PLAIN
    validation_fraction: float = DEFAULT_VALIDATION
    standardise: Standardise = Standardise.RELEASED
    hidden: int = 0
    batch_size: int | None = None
    local_steps: int | None = None
    patients: int | None = None
    clip: float | None = None
    by_site: bool = False
    purpose: str = ""

    @property
    def held_out(self) -> Fraction:
        """The share of held-out patients, as exact as the coins that decide it."""
        return Fraction(round(self.validation_fraction * RATE_UNIT), RATE_UNIT)

    @property
    def shows_sites(self) -> bool:
        """Whether each site's sums must be seen: to combine them otherwise than by their sum, or by wish."""
        return self.by_site or not is_plain(self.strategy)


def is_plain(strategy: str) -> bool:
    """Whether a strategy is the sum itself, however it is written."""
    return strategy.lower() == PLAIN


def own_nonce(strategy: str) -> str:
    """What tells trainings apart that differ in nothing but how the sites' models are combined.

    A strategy decides where the next round stands, so the rounds of one are of no use to another. Under one name the
    second would go on with the first one's rounds until it was refused half-way.
    """
    if is_plain(strategy):
        return ""
    return hashlib.sha256("".join(strategy.lower().split()).encode()).hexdigest()[:32]


def read_request(path: Path) -> TrainingRequest:
    """The request in a file; `ConfigurationMistaken` in one sentence."""
    return parse_request(read_text(path), name=str(path))


def parse_request(text: str, *, name: str = "request.toml") -> TrainingRequest:
    """The request in a text that messages call `name`."""
    top = parse(text, name=name)
    check_plain(text, name=name, broken=("cohort",))
    # A misspelt key is told before the one that it leaves absent.
    given = {field.name for field in fields(TrainingRequest) if top.has(field.name)}
    top.close()
    kind = ModelKind(_chosen(top, "kind", [each.value for each in ModelKind]))
    request = TrainingRequest(
        kind=kind,
        table=top.text("table"),
        target=top.text("target"),
        features=top.texts("features"),
        epsilon=top.number("epsilon", lower=1e-6, upper=1e3),
        delta=top.number("delta", lower=0.0, upper=1.0) if "delta" in given else None,
        cohort=top.text("cohort", "") if "cohort" in given else "",
        schedule=StepSchedule(_chosen(top, "schedule", [each.value for each in StepSchedule]))
        if "schedule" in given
        else None,
        rounds=top.integer("rounds", lower=1, upper=MOST_ROUNDS) if "rounds" in given else None,
        strategy=top.text("strategy", PLAIN),
        validation_fraction=top.number("validation_fraction", DEFAULT_VALIDATION, lower=0.0, upper=MOST_HELD_OUT),
        standardise=Standardise(
            _chosen(top, "standardise", [each.value for each in Standardise], Standardise.RELEASED.value)
        ),
        hidden=_hidden(top, kind),
        batch_size=top.integer("batch_size", lower=1, upper=MOST_PATIENTS) if "batch_size" in given else None,
        local_steps=top.integer("local_steps", lower=1, upper=MOST_LOCAL_STEPS) if "local_steps" in given else None,
        patients=top.integer("patients", lower=1, upper=MOST_PATIENTS) if "patients" in given else None,
        clip=top.number("clip", lower=1e-3, upper=1e3) if "clip" in given else None,
        by_site=_truth(top, "by_site"),
        purpose=top.text("purpose", "") if "purpose" in given else "",
    )
    try:
        return sound(request)
    except QueryMistaken as mistake:
        raise ConfigurationMistaken(f"{name}: {mistake.message}") from None


def sound(request: TrainingRequest) -> TrainingRequest:
    """The same request if its parts go together, whoever made it; otherwise one sentence."""
    for sentence in (
        *_faults_of_numbers(request),
        *_faults_of_a_kind(request),
        *_faults_of_a_schedule(request),
        *_faults_of_a_purpose(request),
    ):
        raise QueryMistaken(sentence)
    return request


def _faults_of_a_purpose(request: TrainingRequest) -> Iterator[str]:
    try:
        check_purpose(request.purpose)
    except QueryMistaken as mistake:
        yield mistake.message


def _faults_of_numbers(request: TrainingRequest) -> Iterator[str]:
    if not (math.isfinite(request.epsilon) and request.epsilon > 0.0):
        yield "epsilon must be a finite number above 0."
    if request.delta is not None and not 0.0 < request.delta < 1.0:
        yield "delta must be a number between 0 and 1: a training uses Gaussian noise, which needs one."
    if not 0.0 <= request.validation_fraction <= MOST_HELD_OUT:
        yield f"validation_fraction must be from 0 to {MOST_HELD_OUT}."
    if request.clip is not None and not (math.isfinite(request.clip) and request.clip > 0.0):
        yield "clip must be a finite number above 0."
    if not request.features:
        yield "features must name at least one column."


def _faults_of_a_kind(request: TrainingRequest) -> Iterator[str]:
    definition, called = definition_of(request.kind), f"a {request.kind.value} model"
    if definition.layer is None and request.hidden > 0:
        yield f"hidden is for a perceptron; leave it out for {called}."
    if not definition.least_squares:
        return
    if request.schedule is StepSchedule.LOCAL_STEPS:
        yield f'{called} is fitted from one round of sums; leave out schedule, or set it to "sum_per_round".'
    if request.rounds not in (None, 1):
        yield f"{called} is fitted from one round of sums; leave out rounds, or set it to 1."
    if not is_plain(request.strategy):
        yield f'{called} is fitted from the sum itself; leave out strategy, or set it to "{PLAIN}".'
    if request.batch_size is not None:
        yield f"{called} is fitted to all patients at once; leave out batch_size."


def _faults_of_a_schedule(request: TrainingRequest) -> Iterator[str]:
    if request.local_steps is not None and request.schedule is not StepSchedule.LOCAL_STEPS:
        yield 'local_steps needs schedule = "local_steps".'
    if (request.rounds or 1) * (request.local_steps or 1) > MAX_ROUNDS:
        yield (
            f"rounds = {request.rounds} times local_steps = {request.local_steps} is more than {MAX_ROUNDS} noised "
            "sums; take fewer of one."
        )
    if request.batch_size is None:
        return
    if request.patients is None:
        yield (
            "batch_size needs patients, a public guess of how many there are in all: "
            "together they say how likely one is to be in a batch."
        )
    elif request.batch_size > request.patients:
        yield f"batch_size = {request.batch_size} is above patients = {request.patients}."


def model_of(request: TrainingRequest, study: Study) -> Model:
    """The model in the study's words; `QueryMistaken` with the nearest name that exists."""
    table = study.table(request.table)
    cohort = None if not request.cohort else typed_cohort(_condition(request.cohort), table)
    if cohort is not None:
        require_undecided(cohort, table)
    hidden = request.hidden
    if definition_of(request.kind).layer is not None and hidden == 0:
        hidden = DEFAULT_HIDDEN
    model = Model(request.kind, request.table, request.target, request.features, cohort, hidden)
    if (fault := fault_in(model)) is not None:
        raise QueryMistaken(f"a text of the request {fault}.")
    return model


def sharper(request: TrainingRequest, *, epsilon: float | None, delta: float | None) -> TrainingRequest:
    """The same request with another ε or δ, where one is given."""
    changed = replace(request, epsilon=request.epsilon if epsilon is None else epsilon)
    return sound(changed if delta is None else replace(changed, delta=delta))


def _condition(text: str) -> Expression:
    try:
        from wardround.analyst.sql.read import condition  # noqa: PLC0415 - an extra, loaded only for text
    except ImportError:
        raise ConfigurationMistaken(
            "sqlglot is not installed; install it with pip install 'wardround[analyst]'."
        ) from None
    try:
        return condition(text)
    except QueryMistaken as mistake:
        # A question's grammar is no help where a condition was meant.
        if mistake.message.startswith("the SQL cannot be read"):
            raise QueryMistaken(
                f"cohort = {text!r} cannot be read; write a condition as in WHERE, such as age >= 40 AND sex = 'F'."
            ) from None
        raise


def _chosen(top: Section, key: str, choices: list[str], default: str | None = None) -> str:
    """One of a few words, with the nearest where it is none of them."""
    if default is None and not top.has(key):
        raise top.fault(key, f"one of {', '.join(choices)}")
    value = default if default is not None and not top.has(key) else top.raw(key)
    if not isinstance(value, str):
        raise top.fault(key, f"one of {', '.join(choices)}")
    if value not in choices:
        raise ConfigurationMistaken(f"{top.file}: {key} is {value!r}; {nearest(value, choices)}")
    return value


def _hidden(top: Section, kind: ModelKind) -> int:
    if definition_of(kind).layer is not None:
        return top.integer("hidden", DEFAULT_HIDDEN, lower=1, upper=MAX_HIDDEN)
    return top.integer("hidden", 0, lower=0, upper=MAX_HIDDEN)


def _truth(top: Section, key: str) -> bool:
    value = top.raw(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise top.fault(key, "true or false")
    return value
