"""Answers as they are stored: a text that is written once and never changes.

What the study has spent and has left is not part of it; that is told as of the moment of the reply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from coordinator.store.rounds import Outcome
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.question.answer import Estimate, Loss, NoEstimate


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What was computed, from whom, and what it cost."""

    outcome: Outcome
    estimates: tuple[Estimate, ...]
    mechanism: str
    charged: Loss
    overlap: int
    composition: str
    noiseless: bool
    left_out: tuple[str, ...] = ()


def encode_answer(answer: StoredAnswer) -> str:
    """The text to store."""
    document: dict[str, object] = {
        "answered": answer.outcome.answered,
        "refused": answer.outcome.refused,
        "missing": answer.outcome.missing,
        "mechanism": answer.mechanism,
        "charged": [answer.charged.epsilon, answer.charged.delta],
        "overlap": answer.overlap,
        "composition": answer.composition,
        "noiseless": answer.noiseless,
        "estimates": [_line(estimate) for estimate in answer.estimates],
    }
    if any(estimate.place is not None for estimate in answer.estimates):
        document["places"] = [estimate.place for estimate in answer.estimates]
    if answer.left_out:
        document["left_out"] = answer.left_out
    # Public group keys are texts, whole numbers and truth values only; a float is written so that it comes back.
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _line(e: Estimate) -> list[object]:
    """An estimate as a list; the reason stands at its end where there is one, as answers of before have none."""
    bounds: list[object] = [e.standard_error, e.interval, e.confidence]
    line = [e.statistic, e.column, e.group, e.value, *bounds, e.term, e.sampling]
    return line if e.reason is None else [*line, e.reason.value]


def decode_answer(text: str) -> StoredAnswer:
    """The answer in a stored text."""
    try:
        document = json.loads(text)
        outcome = Outcome(
            tuple(document["answered"]),
            tuple((site, code) for site, code in document["refused"]),
            tuple(document["missing"]),
        )
        estimates = tuple(
            Estimate(
                statistic,
                column,
                tuple((name, key) for name, key in group),
                value,
                error,
                (interval[0], interval[1]),
                confidence,
                term,
                sampling,
                NoEstimate(reason[0]) if reason else None,
                place,
            )
            for (statistic, column, group, value, error, interval, confidence, term, sampling, *reason), place in zip(
                # Answers of before do not say which aggregate an estimate belongs to.
                document["estimates"],
                document.get("places", [None] * len(document["estimates"])),
                strict=True,
            )
        )
        return StoredAnswer(
            outcome=outcome,
            estimates=estimates,
            mechanism=document["mechanism"],
            charged=Loss(*document["charged"]),
            overlap=document["overlap"],
            composition=document["composition"],
            noiseless=document["noiseless"],
            left_out=tuple(document.get("left_out", ())),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LedgerCorrupt(private="a stored answer cannot be read") from None
