"""What typical questions of a study would cost, and how sharp their answers would be, from the study alone.

The planner that a coordinator runs makes the plans; no federation is started, nothing is spent and no row is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from coordinator.planning.expected import expected_errors
from coordinator.planning.plans import planned_for, target_of
from wardround.analyst.asking import builder
from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.plan import Planned, privacy_target
from wardround.federation.plan.sql_text import aggregate_text, query_text
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.query import GroupBy, Query
from wardround.federation.statistics import find
from wardround.federation.study.study import ColumnType, Study, Table, delta_fault
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_remaining

SPREADS = (10, 100)
"""Over how many questions the whole budget is spread."""

ASSUMED_PATIENTS = 10_000
_BINS = 10


@dataclass(frozen=True, slots=True)
class Sharing:
    """One way to ask: ε for a question, and of how many it is one; the default is one of as many as fit."""

    title: str
    epsilon: float
    questions: int | None


@dataclass(frozen=True, slots=True)
class QuestionCost:
    """One typical question: the standard error for each way of asking, and how many at the default ε would fit.

    `shown_from` is there for the values of an open category: how many patients of one site must have a value so
    that, but for the noise, it is shown.
    """

    table: str
    title: str
    sql: str
    errors: tuple[float | None, ...]
    groups: int
    fitting: int
    note: str
    shown_from: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class StudyCosts:
    """The table: which participants it is for, the ways to ask, and a line for every typical question."""

    sites: int
    patients: int
    assumed: bool
    askings: tuple[Sharing, ...]
    questions: tuple[QuestionCost, ...]


def study_costs(study: Study, *, patients: int | None = None, sites: int | None = None) -> StudyCosts:
    """The costs for so many declared patients in total; `ConfigurationMistaken` when no site could then join."""
    participants = _participants(study, patients=patients, sites=sites)
    if (fault := delta_fault(study.cap.delta, participants)) is not None:
        raise ConfigurationMistaken(fault)
    overlap = study.overlap_among(participants)
    askings = (
        Sharing("default", privacy_target(None, None, study).epsilon, None),
        *(Sharing(f"one of {number}", _epsilon_of_one(study, number, overlap=overlap), number) for number in SPREADS),
    )
    lines = tuple(
        _cost(query, study, participants, askings) for table in study.tables for query in typical_questions(table)
    )
    return StudyCosts(len(participants), sum(participants.values()), patients is None, askings, lines)


def typical_questions(table: Table) -> Iterator[Query]:
    """Counts, patients by every public category and month, the values of open ones, and three of every number."""
    about = builder.query(table.name)
    patients = about.count(distinct=table.unit_key)
    yield about.count().query
    yield patients.query
    for column in table.columns:
        match column.type:
            case ColumnType.CATEGORY if not column.open:
                yield patients.group_by(column.name).query
            case ColumnType.CATEGORY:
                yield about.keys(column.name).query
            case ColumnType.DATE if column.lower is not None:
                yield patients.group_by(builder.month(column.name)).query
            case ColumnType.BOOLEAN:
                yield about.mean(column.name).query
            case ColumnType.INTEGER | ColumnType.NUMBER if column.numeric_bounds is not None:
                yield about.mean(column.name).query
                yield about.median(column.name).query
                yield about.histogram(column.name, _BINS).query
            case _:
                pass


def _participants(study: Study, *, patients: int | None, sites: int | None) -> Mapping[str, int]:
    """Sites with even shares of the patients: those the study names first."""
    named = [site for group in study.groups for site in group.sites]
    number = max(study.min_sites, len(named)) if sites is None else sites
    if number < study.min_sites:
        raise ConfigurationMistaken(f"an answer of this study needs {study.min_sites} sites; say at least so many.")
    names = [*named, *(f"site-{place + 1}" for place in range(number))][:number]
    total = _assumed(study) if patients is None else patients
    share, rest = divmod(total, number)
    return {name: share + (place < rest) for place, name in enumerate(names)}


def _assumed(study: Study) -> int:
    """As many patients as are usually assumed, or as few as δ allows."""
    if study.cap.delta * ASSUMED_PATIENTS < 1.0:
        return ASSUMED_PATIENTS
    return max(math.ceil(1.0 / study.cap.delta) - 1, 1)


def _epsilon_of_one(study: Study, number: int, *, overlap: int) -> float:
    """The ε of one of `number` equal questions that together take the whole budget."""
    whole = study.cap.allowance()
    rest = Cost(
        mu_squared=whole.mu_squared - whole.mu_squared // number, pure=whole.pure - whole.pure // number, slack=0
    )
    return epsilon_remaining(rest, study.cap, delta=study.cap.delta, overlap=overlap)


def _cost(query: Query, study: Study, participants: Mapping[str, int], askings: tuple[Sharing, ...]) -> QuestionCost:
    errors: list[float | None] = []
    shown_from: list[int | None] = []
    groups, note, fitting = 1, "", 0
    for asking in askings:
        plans = _plans(query, study, participants, asking)
        if asking.questions is None:
            # Every kind of noise has a budget of its own, and one is used when the other is spent.
            fitting = sum(_fitting(plan, study) for plan in plans)
        shown_from.append(_shown_from(plans[0]) if plans else None)
        if not plans:
            errors.append(None)
            continue
        (expected,) = expected_errors(plans[0].plan, plans[0].layout, participants, NoiseSetting())
        errors.append(expected.standard_error)
        groups, note = expected.groups, expected.note
    opened = any(find(aggregate.statistic).selects_keys for aggregate in query.aggregates)
    return QuestionCost(
        query.table,
        _title(query),
        query_text(query),
        tuple(errors),
        groups,
        fitting,
        note,
        tuple(shown_from) if opened else (),
    )


def _plans(query: Query, study: Study, participants: Mapping[str, int], asking: Sharing) -> list[Planned[AnswerLayout]]:
    """The plans of which as many fit as are asked, that of which most do first; none where ε is too small."""
    request = AskRequest(query, epsilon=asking.epsilon)
    try:
        target = target_of(request, study, participants)
        plans = planned_for(request, query, target, study, tuple(participants))
    except QueryMistaken:
        return []
    fitting = [plan for plan in plans if _fitting(plan, study) >= (asking.questions or 1)]
    if asking.questions is None:
        fitting.sort(key=lambda plan: -_fitting(plan, study))
    return fitting


def _title(query: Query) -> str:
    """The question in a few words."""
    (aggregate,) = query.aggregates
    text = aggregate_text(aggregate) if aggregate.level is None else f"MEDIAN({aggregate.column})"
    months = {GroupBy.MONTH: "month of "}
    return text + "".join(f" by {months.get(grouping.by, '')}{grouping.column}" for grouping in query.group_by)


def _shown_from(found: Planned[AnswerLayout]) -> int:
    """The least count that passes the plan's threshold."""
    return found.plan.threshold // found.layout.parts[0].increment + 1


def _fitting(found: Planned[AnswerLayout], study: Study) -> int:
    """How many such questions a fresh budget admits."""
    whole, cost = study.cap.allowance(), found.charge.cost
    overlap = study.overlap_among(found.plan.participants)
    lanes = ((whole.mu_squared, cost.mu_squared), (whole.pure, cost.pure), (whole.slack, cost.slack))
    return min(allowed // (overlap * each) for allowed, each in lanes if each > 0)
