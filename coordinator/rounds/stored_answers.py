"""Answers as they are stored: a text, and the pages of a long one, that are written once and never change.

What the study has spent and has left is not part of it; that is told as of the moment of the reply. An answer of many
estimates is read page by page: its text names the pages by their hashes and holds none of them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from coordinator.store.kept_answers import WrittenAnswer
from coordinator.store.rounds import Outcome
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.question.answer import Estimate, Loss, NoEstimate
from wardround.federation.study.study import Value

PAGE_ESTIMATES = 2_048
"""How many estimates a page holds, but for the last; an answer of no more is one text."""


_Line: TypeAlias = tuple[
    str,
    str | None,
    Sequence[tuple[str, Value]],
    float | None,
    float | None,
    tuple[float, float],
    float,
    str,
    bool,
    *tuple[str, ...],
]


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


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A stored text: the answer, of a long one without its estimates, how many there are, and the pages' hashes."""

    answer: StoredAnswer
    total: int
    pages: tuple[str, ...] = ()


def write_answer(answer: StoredAnswer) -> WrittenAnswer:
    """The text to store, and the pages of a long answer."""
    estimates = answer.estimates
    if len(estimates) <= PAGE_ESTIMATES:
        return WrittenAnswer(_text(_head(answer) | _lines(estimates)))
    firsts = range(0, len(estimates), PAGE_ESTIMATES)
    pages = tuple(
        zlib.compress(_text(_lines(estimates[first : first + PAGE_ESTIMATES])).encode(), level=1) for first in firsts
    )
    hashes = [hashlib.sha256(page).hexdigest() for page in pages]
    return WrittenAnswer(_text(_head(answer) | {"total": len(estimates), "pages": hashes}), pages)


def read_answer(text: str) -> ReadAnswer:
    """The answer in a stored text."""
    try:
        document = json.loads(text)
        answer = StoredAnswer(
            outcome=Outcome(
                tuple(document["answered"]),
                tuple((site, code) for site, code in document["refused"]),
                tuple(document["missing"]),
            ),
            estimates=_estimates(() if "pages" in document else document["estimates"], document.get("places")),
            mechanism=document["mechanism"],
            charged=Loss(*document["charged"]),
            overlap=document["overlap"],
            composition=document["composition"],
            noiseless=document["noiseless"],
            left_out=tuple(document.get("left_out", ())),
        )
        return ReadAnswer(answer, document.get("total", len(answer.estimates)), tuple(document.get("pages", ())))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unreadable() from None


def read_page(page: bytes, page_hash: str) -> tuple[Estimate, ...]:
    """The estimates on a stored page; `LedgerCorrupt` unless it is the one that the answer names."""
    if hashlib.sha256(page).hexdigest() != page_hash:
        raise _unreadable()
    try:
        document = json.loads(zlib.decompress(page))
        return _estimates(document["estimates"], document.get("places"))
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error):
        raise _unreadable() from None


def with_pages(found: ReadAnswer, pages: Sequence[bytes], *, first_page: int) -> StoredAnswer:
    """The answer with the estimates on these pages, of which the first has this number."""
    hashes = found.pages[first_page : first_page + len(pages)]
    estimates = [estimate for page, named in zip(pages, hashes, strict=True) for estimate in read_page(page, named)]
    return replace(found.answer, estimates=tuple(estimates))


def _unreadable() -> LedgerCorrupt:
    return LedgerCorrupt(private="a stored answer cannot be read")


def _head(answer: StoredAnswer) -> dict[str, object]:
    head: dict[str, object] = {
        "answered": answer.outcome.answered,
        "refused": answer.outcome.refused,
        "missing": answer.outcome.missing,
        "mechanism": answer.mechanism,
        "charged": [answer.charged.epsilon, answer.charged.delta],
        "overlap": answer.overlap,
        "composition": answer.composition,
        "noiseless": answer.noiseless,
    }
    return head | {"left_out": answer.left_out} if answer.left_out else head


def _lines(estimates: Sequence[Estimate]) -> dict[str, object]:
    lines: dict[str, object] = {"estimates": [_line(estimate) for estimate in estimates]}
    if any(estimate.place is not None for estimate in estimates):
        lines["places"] = [estimate.place for estimate in estimates]
    return lines


def _line(e: Estimate) -> list[object]:
    """An estimate as a list; the reason stands at its end where there is one, as answers of before have none."""
    bounds: list[object] = [e.standard_error, e.interval, e.confidence]
    line = [e.statistic, e.column, e.group, e.value, *bounds, e.term, e.sampling]
    return line if e.reason is None else [*line, e.reason.value]


def _text(document: Mapping[str, object]) -> str:
    # Public group keys are texts, whole numbers and truth values only; a float is written so that it comes back.
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _estimates(lines: Sequence[_Line], places: Sequence[int | None] | None) -> tuple[Estimate, ...]:
    """The estimates on these lines; answers of before do not say which aggregate each belongs to."""
    return tuple(
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
            lines, [None] * len(lines) if places is None else places, strict=True
        )
    )
