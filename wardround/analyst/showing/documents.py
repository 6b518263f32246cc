"""Answers, previews, budgets and errors as plain JSON documents: a contract, since scripts depend on it.

JSON knows no infinity, so a number that is not finite is null.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass

from wardround.analyst.showing.interpretation import PRIORS, adjacency, date_text, patient_level
from wardround.analyst.tables.presentation import Gap
from wardround.federation.errors import BudgetExceeded, FederationError
from wardround.federation.question.answer import (
    Answer,
    Estimate,
    ExpectedError,
    Loss,
    NoEstimate,
    Preview,
    PrivacyStatement,
    Remaining,
    Shortfall,
)
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.refusal import refusal_words
from wardround.federation.study.study import Study, Value
from wardround.privacy.report.posterior_beliefs import posterior_bound, worst_bits

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class AnswerExtras:
    """What is shown beside an answer: its lines with their aliases, all plans, the gap of a top-k, the shares."""

    lines: tuple[tuple[Estimate, str], ...]
    plan_ids: tuple[str, ...] = ()
    gap: Gap | None = None
    shares: tuple[tuple[str, float], ...] = ()


def answer_document(answer: Answer, extras: AnswerExtras | None = None) -> dict[str, Json]:
    """The document `ask` prints."""
    more = extras or AnswerExtras(tuple((estimate, "") for estimate in answer.estimates))
    document: dict[str, Json] = {
        "plan_id": answer.plan_id,
        "unit": answer.unit,
        "replayed": answer.replayed,
        "noiseless": answer.noiseless,
        "sites": _sites(answer),
        "estimates": [_estimate(estimate, name) for estimate, name in more.lines],
        "privacy": privacy_document(answer.privacy, unit=answer.unit),
    }
    if more.plan_ids:
        document["plan_ids"] = list(more.plan_ids)
    if more.gap is not None:
        document["gap"] = {"value": finite(more.gap.value), "standard_error": finite(more.gap.standard_error)}
    if more.shares:
        document["shares"] = [{"aggregate": label, "share": share} for label, share in more.shares]
    return document


def _sites(answer: Answer) -> dict[str, Json]:
    """Who answered and who did not; a refusal's code is for scripts, its reason for people."""
    document: dict[str, Json] = {
        "answered": list(answer.answered),
        "refused": dict(answer.refused),
        "missing": list(answer.missing),
        "left_out": list(answer.left_out),
    }
    if answer.lacking_patients is not None:
        document |= {"lacking_patients": answer.lacking_patients, "asked_patients": answer.asked_patients}
    if answer.refused:
        document["reasons"] = {site: refusal_words(code) for site, code in answer.refused}
    return document


def preview_document(preview: Preview, rounds: Sequence[tuple[str, Loss]] = ()) -> dict[str, Json]:
    """The document of a dry run; its `privacy` says what would be charged and what is spent now."""
    document: dict[str, Json] = {
        "plan_id": preview.plan_id,
        "unit": preview.unit,
        "replayed": preview.replayed,
        "dry_run": True,
        "sites": {"asked": list(preview.sites)},
        "expected": [_expected(expected) for expected in preview.expected],
        "refusal": refusal_document(preview.excess),
        "privacy": privacy_document(preview.privacy, unit=preview.unit),
    }
    if preview.foreseen:
        document["foreseen"] = foreseen_document(preview)
    if rounds:
        document["rounds"] = [{"asks": title, "charged": _loss(loss)} for title, loss in rounds]
    return document


def foreseen_document(preview: Preview) -> list[Json]:
    """What sites would do other than answer at once: a stable code for each, and a sentence."""
    return [{"site": each.site, "code": each.code, "message": each.sentence} for each in preview.foreseen]


def budget_document(report: BudgetReport, study: Study) -> dict[str, Json]:
    """The document `budget` prints."""
    document: dict[str, Json] = {
        "study": report.study,
        "unit": report.unit,
        "overlap": report.overlap,
        "cap": _loss(report.cap),
        "spent": _loss(report.spent),
        "remaining": _remaining(report.remaining),
        "accountants": {name: finite(epsilon) for name, epsilon in report.accountants},
        "sites": {
            site.name: {"spent": _loss(site.spent), "frozen": site.frozen, "state": site.state} for site in report.sites
        },
        "events": report.events,
        "adjacency": adjacency(report.unit),
        "groups": [{"sites": list(group.sites), "overlap": group.overlap} for group in study.groups],
        "meaning": {**_meaning(report.spent.epsilon), "at_cap": _meaning(report.cap.epsilon)},
        "overlaps": {
            "1": finite(report.by_overlap.one),
            "declared": finite(report.by_overlap.declared),
            "all": finite(report.by_overlap.every),
        },
        "statements": [
            {
                "name": each.name,
                "epsilon": finite(each.epsilon),
                "kind": "guarantee" if each.guarantee else "descriptive",
            }
            for each in report.statements
        ],
        "history": [
            {"date": date_text(point.date), "charges": point.charges, "epsilon": finite(point.epsilon)}
            for point in report.history
        ],
    }
    if (patient := patient_level(report, study)) is not None:
        document["patient_level"] = {"events": patient.events, "spent": _loss(patient.spent), "cap": _loss(patient.cap)}
    return document


def refusal_document(excess: Shortfall | None) -> Json:
    """The error that the same call without a dry run would end with now; null where the budget admits it."""
    if excess is None:
        return None
    return error_document(BudgetExceeded(asked=excess.asked, remaining=excess.remaining))["error"]


def error_document(error: FederationError) -> dict[str, Json]:
    """The document of a failure: its stable code and public sentence, never its private text."""
    fault: dict[str, Json] = {"code": error.code, "message": error.message}
    if isinstance(error, BudgetExceeded):
        fault["asked"] = finite(error.asked)
        fault["remaining"] = finite(error.remaining)
        fault["difference"] = finite(error.difference)
        fault["charged"] = 0
    return {"error": fault}


def _estimate(estimate: Estimate, name: str) -> dict[str, Json]:
    document: dict[str, Json] = {
        "statistic": estimate.statistic,
        "column": estimate.column,
        "group": {column: _value(value) for column, value in estimate.group},
        "value": None if estimate.value is None else finite(estimate.value),
        "standard_error": None if estimate.standard_error is None else finite(estimate.standard_error),
        "interval": [finite(bound) for bound in estimate.shown_interval or (math.nan, math.nan)],
        "confidence": finite(estimate.confidence),
        "term": estimate.term or None,
        "sampling": estimate.sampling,
        "reason": reason_document(estimate.reason),
    }
    if name:
        document["name"] = name
    return document


def reason_document(reason: NoEstimate | None) -> Json:
    """Why there is no value, as a stable code and a sentence; null where there is one."""
    return None if reason is None else {"code": reason.value, "message": reason.sentence}


def _expected(expected: ExpectedError) -> dict[str, Json]:
    return {
        "statistic": expected.statistic,
        "column": expected.column,
        "groups": expected.groups,
        "standard_error": finite(expected.standard_error),
        "note": expected.note,
        "share": expected.share,
        "half_width": None if expected.half_width is None else finite(expected.half_width),
    }


def privacy_document(privacy: PrivacyStatement, *, unit: str) -> dict[str, Json]:
    """What something cost, what is left, and what that means."""
    return {
        "mechanism": privacy.mechanism,
        "charged": _loss(privacy.charged),
        "spent": _loss(privacy.spent),
        "remaining": _remaining(privacy.remaining),
        "overlap": privacy.overlap,
        "composition": privacy.composition,
        "adjacency": adjacency(unit),
        "meaning": _meaning(privacy.charged.epsilon),
    }


def _meaning(epsilon: float) -> dict[str, Json]:
    """Bounds that always hold under pure ε, and that ignore a remainder of δ otherwise."""
    return {
        "posterior": [{"prior": prior, "at_most": posterior_bound(prior, epsilon)} for prior in PRIORS],
        "bits": finite(worst_bits(epsilon)),
    }


def _loss(loss: Loss) -> dict[str, Json]:
    return {"epsilon": finite(loss.epsilon), "delta": finite(loss.delta)}


def _remaining(remaining: Remaining) -> dict[str, Json]:
    return {"epsilon": finite(remaining.epsilon), "fraction": finite(remaining.fraction)}


def finite(number: float) -> float | None:
    """A number that JSON knows; null for one that is not finite."""
    return number if math.isfinite(number) else None


def _value(value: Value) -> Json:
    return value.isoformat() if isinstance(value, datetime.date) else value
