"""What a loss means for one patient, in plain words, and no stronger than it is.

A pure ε bounds every belief that one unit is there. With a δ the bounds hold for answers that are within distance δ of
these; that is not a chance of failure, and nothing here says so (PROOFS.md#beliefs).
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal

from wardround.analyst.tables.text_tables import TextTable, percent
from wardround.federation.question.answer import Loss, PrivacyStatement, Remaining, Shortfall
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study, Unit
from wardround.privacy.report.dearest_patient import of_many_events
from wardround.privacy.report.posterior_beliefs import posterior_bound, worst_bits

PRIORS = (0.01, 0.1, 0.5)

_UNITS = {"patient": "one patient, with all of the patient's rows", "event": "one event (one row), not one patient"}
_ADJACENCY = {
    "patient": "add or remove all rows of one patient, at all of the patient's sites",
    "event": "add or remove one event (one row)",
}
# From one content to another is a step out and a step in.
_TWICE = "To tell apart what the rows say, rather than whether they are there, ε counts twice."


@dataclass(frozen=True, slots=True)
class PatientLevel:
    """What an event-level study still promises a patient with so many events."""

    events: int
    spent: Loss
    cap: Loss


def unit_text(unit: str) -> str:
    """Whom a study protects."""
    return _UNITS.get(unit, unit)


def adjacency(unit: str) -> str:
    """Which two worlds are hard to tell apart."""
    return _ADJACENCY.get(unit, unit)


def plural(count: int, word: str) -> str:
    """The word, in the plural unless there is one."""
    return word if count == 1 else f"{word}s"


def next_text(remaining: Remaining, *, delta: float) -> str:
    """What may still be asked."""
    lane = "pure" if delta == 0.0 else "Gaussian"
    left = percent(remaining.fraction)
    return f"the largest next question has ε = {remaining.epsilon:.4g} ({left} of the {lane} budget is left)."


def date_text(seconds: float) -> str:
    """A moment, in UTC, as ISO 8601 writes it."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def too_much(excess: Shortfall | None) -> str:
    """What a dry run adds where the budget would refuse the whole; nothing where it fits."""
    if excess is None:
        return ""
    left = f"ε = {excess.remaining:.4g} remains"
    if excess.asked <= excess.remaining:
        # What is left may be in the other lane, or enough for one number only.
        return f" It would be refused: {left}, but not for noise of this kind."
    return f" It would be refused: {left}, {excess.asked - excess.remaining:.4g} too little."


def answer_meaning(unit: str, privacy: PrivacyStatement) -> str:
    """One line for one answer."""
    epsilon = privacy.charged.epsilon
    rare, even = (percent(posterior_bound(prior, epsilon)) for prior in (0.01, 0.5))
    bounds = f"a belief of 1 % becomes at most {rare}, one of 50 % at most {even}"
    rest = "" if privacy.charged.delta == 0.0 else f" (ignoring a remainder of δ = {_plain(privacy.charged.delta)})"
    whom = "one patient's rows are" if unit == Unit.PATIENT else "one event is"
    return f"What this can tell about whether {whom} there: {bounds}{rest}."


def belief_table(report: BudgetReport) -> TextTable:
    """From several beliefs, the most that anyone can come to believe."""
    losses = (report.spent, report.cap)
    beliefs = tuple(
        (percent(prior), *(percent(posterior_bound(prior, loss.epsilon)) for loss in losses)) for prior in PRIORS
    )
    bits = ("bits learnt, at worst", *(f"{worst_bits(loss.epsilon):.3g}" for loss in losses))
    whom = "a patient's rows are" if report.unit == Unit.PATIENT else "an event is"
    return TextTable(
        (f"belief that {whom} there, before", "after what is spent", "after the whole cap"), (*beliefs, bits), 2
    )


def weight_text(delta: float) -> str:
    """What the bounds are worth under this δ."""
    if delta == 0.0:
        return f"The bounds hold for every outcome (pure ε). {_TWICE}"
    return (
        f"The bounds ignore a remainder of δ = {_plain(delta)}: the answers are within that distance of ones for "
        "which they always hold. It is not a chance of failure: the loss exceeds ε more often than δ, mostly by "
        f"little. {_TWICE}"
    )


def _plain(delta: float) -> str:
    """A small number without an exponent."""
    return f"{Decimal(f'{delta:.3g}'):f}"


def patient_level(report: BudgetReport, study: Study) -> PatientLevel | None:
    """The promise to a patient with the most events a table allows for; None where patients are the unit."""
    if report.unit != Unit.EVENT:
        return None
    events = max(table.max_rows_per_unit for table in study.tables)

    def grown(loss: Loss) -> Loss:
        return Loss(*of_many_events(loss.epsilon, loss.delta, events=events))

    return PatientLevel(events, grown(report.spent), grown(report.cap))


def patient_text(patient: PatientLevel) -> str:
    """The promise to a patient, where events are the unit."""
    spent, cap = (
        f"ε = {loss.epsilon:.4g} at δ = {loss.delta:.3g}{' (no promise at all)' if loss.delta >= 1.0 else ''}"
        for loss in (patient.spent, patient.cap)
    )
    if patient.events == 1:
        return "For a patient with m events it is mε at δ(e^(mε) − 1)/(e^ε − 1); the study names no m."
    return f"For a patient with {patient.events} events that is {spent} so far, and {cap} at the cap; more with more."
