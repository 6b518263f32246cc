"""What a question costs for one error and another, and what a dearer kind of noise cost: as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from wardround.analyst.showing.documents import Json, finite
from wardround.analyst.tables.text_tables import NOISE_NAMES, TextTable, as_text, number_text, percent
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.answer import DearerNoise, ErrorCost, WhyDearer
from wardround.federation.question.query import Query

_HARDLY = 1e-4
_WHY = {
    WhyDearer.USED_UP: "its part of the budget was used up",
    WhyDearer.DOES_NOT_FIT: "this question does not fit its part of the budget",
}


def dearer_text(dearer: DearerNoise, query: Query | None) -> str:
    """One sentence: which noise the question would like, what it would have given, and why it has another."""
    noise = NOISE_NAMES.get(dearer.mechanism, dearer.mechanism)
    place = dearer.place
    if place is None:
        given = f"cost ε = {dearer.instead:.3g} instead of {dearer.actual:.3g}"
    else:
        # How they compare, not the two: what was expected beforehand is not the error that the answer now shows.
        whose = "" if query is None or place >= len(query.aggregates) else f"{label_text(query.aggregates[place])} "
        smaller = f"an error {dearer.actual / dearer.instead:.3g} times smaller" if dearer.instead else "no error"
        given = f"given {whose}{smaller}"
    return f"{noise} noise would have {given}, but {_WHY[dearer.why]}."


def dearer_document(dearer: DearerNoise, query: Query | None) -> dict[str, Json]:
    """The same as JSON: half-widths at 95 % of one aggregate, or ε where the question was asked by error."""
    return {
        "mechanism": dearer.mechanism,
        "reason": dearer.why.value,
        "of": "epsilon" if dearer.place is None else "half_width",
        "aggregate": dearer.place,
        "instead": finite(dearer.instead),
        "actual": finite(dearer.actual),
        "message": dearer_text(dearer, query),
    }


def error_lines(costs: Sequence[ErrorCost], query: Query | None) -> list[str]:
    """The small table of a dry run: error → ε → share of what is left."""
    if not costs:
        return []
    labels = () if query is None else tuple(label_text(aggregate) for aggregate in query.aggregates)
    rows = tuple(
        (
            _errors_text(each.errors, labels),
            "cannot be had" if each.loss is None else f"{each.loss.epsilon:.3g}",
            NOISE_NAMES.get(each.mechanism or "", ""),
            "" if each.loss is None else _share_text(each.share),
        )
        for each in costs
    )
    return as_text(TextTable(("error at 95 %", "ε", "noise", "share of what is left"), rows, 3)).split("\n")


def error_documents(costs: Sequence[ErrorCost]) -> list[Json]:
    """The same as JSON; without an ε the errors cannot be had."""
    return [
        {
            "errors": list(each.errors),
            "epsilon": None if each.loss is None else finite(each.loss.epsilon),
            "delta": None if each.loss is None else finite(each.loss.delta),
            "mechanism": each.mechanism,
            "share_of_remaining": each.share,
        }
        for each in costs
    ]


def _errors_text(errors: Sequence[float], labels: Sequence[str]) -> str:
    if len(errors) == 1 or len(errors) != len(labels):
        return ", ".join(f"± {number_text(error)}" for error in errors)
    return ", ".join(f"{label} ± {number_text(error)}" for label, error in zip(labels, errors, strict=True))


def _share_text(share: float | None) -> str:
    if share is None or share > 1.0:
        return "more than is left"
    return "hardly any" if share < _HARDLY else percent(share)
