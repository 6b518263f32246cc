"""Answers as they are stored: a text that is written once and never changes.

What the study has spent and has left is not part of it; that is told as of the moment of the reply.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass

from coordinator.accounting import Outcome
from coordinator.ledger import Ledger
from wardround.federation.answer import Estimate, Loss
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger import chain
from wardround.federation.no_estimate import NoEstimate


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


def keep_answer(ledger: Ledger, plan_id: str, answer: StoredAnswer) -> None:
    """Store the answer under its plan; one that is already there stays as it is."""
    text = _encode(answer)
    with ledger.database.transaction() as connection:
        if has_answer(connection, plan_id):
            return
        connection.execute("INSERT INTO answers (plan_id, answer) VALUES (?, ?)", (plan_id, text))
        connection.execute("UPDATE rounds SET state = 'answered' WHERE plan_id = ?", (plan_id,))
        digest = hashlib.sha256(text.encode()).hexdigest()
        chain.append(connection, ledger.identity, kind="answered", body={"plan_id": plan_id, "answer_hash": digest})


def has_answer(connection: sqlite3.Connection, plan_id: str) -> bool:
    """Whether the plan has been answered."""
    return connection.execute("SELECT 1 FROM answers WHERE plan_id = ?", (plan_id,)).fetchone() is not None


def answer_text(connection: sqlite3.Connection, plan_id: str) -> str | None:
    """The stored answer as it was written, if there is one; decode it once the ledger is free again."""
    row = connection.execute("SELECT answer FROM answers WHERE plan_id = ?", (plan_id,)).fetchone()
    return None if row is None else str(row[0])


def _encode(answer: StoredAnswer) -> str:
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
    if answer.left_out:
        document["left_out"] = answer.left_out
    # Public group keys are texts, whole numbers and truth values only; a float is written so that it comes back.
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _line(e: Estimate) -> list[object]:
    """An estimate as a list; the reason stands at its end where there is one, as answers of before have none."""
    line: list[object] = [
        e.statistic,
        e.column,
        e.group,
        e.value,
        e.standard_error,
        e.interval,
        e.confidence,
        e.term,
        e.sampling,
    ]
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
            )
            for statistic, column, group, value, error, interval, confidence, term, sampling, *reason in document[
                "estimates"
            ]
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
