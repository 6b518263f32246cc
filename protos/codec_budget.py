"""Budget reports, as messages and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protos import checks
from protos._generated import answer_pb2 as pb
from protos.codec_answer import (
    UNITS,
    loss_from_message,
    loss_to_message,
    overlap_number,
    remaining_from_message,
    remaining_to_message,
    unit_from_number,
)
from wardround.federation.answer import BudgetReport, ByOverlap, SiteBudget, Spending, Statement
from wardround.federation.study import Unit

MAX_FIGURES = 32
MAX_HISTORY = 10_000

_LAST_DATE = 253_402_300_799.0  # the end of the year 9999


def budget_to_message(report: BudgetReport) -> pb.BudgetReport:
    """A budget report as a message."""
    return pb.BudgetReport(
        study=report.study,
        unit=UNITS[Unit(report.unit)],
        overlap=report.overlap,
        cap=loss_to_message(report.cap),
        spent=loss_to_message(report.spent),
        remaining=remaining_to_message(report.remaining),
        accountants=[
            pb.Accountant(name=name, epsilon=_unless_infinite(epsilon)) for name, epsilon in report.accountants
        ],
        sites=[
            pb.SiteBudget(name=site.name, spent=loss_to_message(site.spent), frozen=site.frozen)
            for site in report.sites
        ],
        events=report.events,
        by_overlap=pb.ByOverlap(
            one=report.by_overlap.one, declared=report.by_overlap.declared, every=report.by_overlap.every
        ),
        statements=[
            pb.Statement(name=each.name, epsilon=_unless_infinite(each.epsilon), guarantee=each.guarantee)
            for each in report.statements
        ],
        history=[
            pb.Spending(date=point.date, charges=point.charges, epsilon=point.epsilon) for point in report.history
        ],
    )


def budget_from_message(message: pb.BudgetReport) -> BudgetReport:
    """The budget report in a message."""
    checks.require(len(message.accountants) <= MAX_FIGURES, "a report has too many accountants.")
    checks.require(len(message.statements) <= MAX_FIGURES, "a report has too many statements.")
    checks.require(message.HasField("by_overlap"), "a report does not say what an overlap means.")
    return BudgetReport(
        study=checks.name(message.study, "a study"),
        unit=unit_from_number(message.unit),
        overlap=overlap_number(message.overlap),
        cap=loss_from_message(message.cap),
        spent=loss_from_message(message.spent),
        remaining=remaining_from_message(message.remaining),
        accountants=tuple((checks.word(each.name, "an accountant"), _epsilon(each)) for each in message.accountants),
        sites=_site_budgets(message.sites),
        events=checks.whole(message.events, "the number of events"),
        by_overlap=_by_overlap(message.by_overlap),
        statements=tuple(
            Statement(checks.word(each.name, "a statement"), _epsilon(each), guarantee=each.guarantee)
            for each in message.statements
        ),
        history=_history(message.history),
    )


def _site_budgets(messages: Sequence[pb.SiteBudget]) -> tuple[SiteBudget, ...]:
    names = checks.names([message.name for message in messages], "the sites")
    return tuple(
        SiteBudget(name, loss_from_message(message.spent), message.frozen)
        for name, message in zip(names, messages, strict=True)
    )


def _by_overlap(message: pb.ByOverlap) -> ByOverlap:
    one, declared, every = (
        checks.finite(value, "ε", lower=0.0) for value in (message.one, message.declared, message.every)
    )
    checks.require(one <= declared <= every, "a wider overlap costs less.")
    return ByOverlap(one, declared, every)


def _history(messages: Sequence[pb.Spending]) -> tuple[Spending, ...]:
    checks.require(len(messages) <= MAX_HISTORY, "a history has too many points.")
    return tuple(
        Spending(
            date=checks.finite(point.date, "a date", lower=0.0, upper=_LAST_DATE),
            charges=checks.whole(point.charges, "the number of charges"),
            epsilon=checks.finite(point.epsilon, "ε", lower=0.0),
        )
        for point in messages
    )


def _unless_infinite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _epsilon(message: pb.Accountant | pb.Statement) -> float:
    return checks.finite(message.epsilon, "ε", lower=0.0) if message.HasField("epsilon") else math.inf
