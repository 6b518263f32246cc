"""Answers as they might be stored, for tests of how they are shown."""

from __future__ import annotations

import dataclasses

from wardround.federation.question.answer import Answer, Estimate, Loss, PrivacyStatement, Remaining
from wardround.federation.study.study import Value

PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")


def estimate(
    statistic: str,
    column: str | None,
    value: float,
    error: float,
    *,
    group: tuple[tuple[str, Value], ...] = (),
    term: str = "",
    sampling: bool = False,
) -> Estimate:
    """An estimate with an interval of two errors."""
    ends = (value - 2 * error, value + 2 * error)
    return Estimate(statistic, column, group, value, error, ends, 0.95, term, sampling)


def stored(*estimates: Estimate) -> Answer:
    """An answer of one site."""
    return dataclasses.replace(ANSWER, estimates=estimates)


ANSWER = Answer(
    "ab" * 32,
    "patient",
    replayed=False,
    noiseless=False,
    answered=("north",),
    refused=(),
    missing=(),
    estimates=(estimate("count", None, 100.0, 5.0), estimate("mean", "sbp", 131.0, 0.5)),
    privacy=PRIVACY,
)
