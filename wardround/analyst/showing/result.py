"""What `ask` and `preview` return: the answer, ready to read, to compute with and to keep.

A number is never shown without its error, nor an answer without what it cost and whom it protects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wardround.analyst.showing.documents import AnswerExtras, Json, answer_document, preview_document
from wardround.analyst.showing.interpretation import answer_meaning, next_text, plural, too_much, unit_text
from wardround.analyst.showing.plot import picture, write_picture
from wardround.analyst.showing.presentation import BoundQuestion, Gap, Shown, shown, statistic_label
from wardround.analyst.showing.text_tables import (
    Readable,
    TextTable,
    cell_text,
    estimate_text,
    listed,
    percent,
    value_text,
    with_error,
)
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.answer import Answer, Estimate, Loss, NoEstimate, Preview, PrivacyStatement
from wardround.federation.question.query import Query, Statistic
from wardround.federation.refusal import refusal_texts
from wardround.federation.statistics import find
from wardround.federation.study.study import Value
from wardround.privacy.mechanisms.private_selection import Choosing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MECHANISMS = {"discrete_gaussian": "discrete Gaussian", "discrete_laplace": "discrete Laplace"}
_TEXTS = ("statistic", "column", "term", "reason")
_NUMBERS = ("value", "standard_error", "lower", "upper", "confidence")


# Without slots, so that the view is applied once.
@dataclass(frozen=True, repr=False)
class Result(Readable):
    """The answer to one question, one estimate a line, as the question wants it shown.

    `answer` has everything that was released, whatever is shown. `plan_ids` are those of all rounds, when there
    were several; `shares` says how the aggregates shared the charge.
    """

    answer: Answer
    asked: BoundQuestion | None = None
    plan_ids: tuple[str, ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    note: str = ""

    @cached_property
    def shown(self) -> Shown:
        """The lines that are shown, and what the view left out."""
        return shown(self.answer.estimates, self.asked)

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Every number that is shown, with its error."""
        return tuple(line.estimate for line in self.shown.lines)

    @property
    def privacy(self) -> PrivacyStatement:
        """What the answer cost one unit, and what is left."""
        return self.answer.privacy

    @property
    def gap(self) -> Gap | None:
        """With ORDER BY … LIMIT: how far the last group shown is ahead of the next."""
        return self.shown.gap

    def __len__(self) -> int:
        return len(self.shown.lines)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the answer, with its intervals, into an .svg file."""
        write_picture(picture(self.answer, self.shown.lines), Path(path))

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround ask --json`."""
        lines = tuple((line.estimate, line.name) for line in self.shown.lines)
        return answer_document(self.answer, AnswerExtras(lines, self.plan_ids, self.gap, self.shares))

    def to_pandas(self) -> pd.DataFrame:
        """A data frame: a row for each estimate, a column for each group column.

        Where there is no estimate its numbers are NaN (null in Arrow), and `reason` says why.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - an extra, loaded only when asked for
        except ImportError:
            raise _absent("pandas") from None
        # A column without any estimate is one of numbers still.
        return pd.DataFrame(self._columns()).astype(dict.fromkeys(_NUMBERS, "float64"))

    def to_arrow(self) -> pa.Table:
        """An Arrow table with the same columns as `to_pandas`."""
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra, loaded only when asked for
        except ImportError:
            raise _absent("pyarrow") from None
        types = {name: pa.string() for name in _TEXTS} | {name: pa.float64() for name in _NUMBERS}
        arrays = {name: pa.array(cells, type=types.get(name)) for name, cells in self._columns().items()}
        return pa.table(arrays)

    def _columns(self) -> dict[str, list[Value | None]]:
        columns: dict[str, list[Value | None]] = {}
        own = (*_TEXTS, *_NUMBERS, "sampling")
        for name in self._groups():
            # A study may well have a column called "value".
            columns[f"group_{name}" if name in own else name] = [dict(each.group).get(name) for each in self]
        columns["statistic"] = [each.statistic for each in self]
        columns["column"] = [each.column for each in self]
        columns["term"] = [each.term or None for each in self]
        columns["value"] = [each.value for each in self]
        columns["standard_error"] = [each.standard_error for each in self]
        columns["lower"] = [None if (ends := each.shown_interval) is None else ends[0] for each in self]
        columns["upper"] = [None if (ends := each.shown_interval) is None else ends[1] for each in self]
        columns["confidence"] = [each.confidence for each in self]
        columns["sampling"] = [each.sampling for each in self]
        columns["reason"] = [None if each.reason is None else each.reason.value for each in self]
        return columns

    def _groups(self) -> tuple[str, ...]:
        """The group columns of all lines: the cells of a table have some that its test has not."""
        return tuple(dict.fromkeys(name for each in self for name, _ in each.group))

    def _table(self) -> TextTable:
        groups = self._groups()
        lines = self.shown.lines
        confidence = percent(lines[0].estimate.confidence) if lines else "95 %"
        terms = any(line.estimate.term for line in lines)
        rows = tuple(
            (
                *(cell_text(value_text(cells[name])) if name in cells else "" for name in groups),
                line.label,
                *((cell_text(_term(line.estimate)),) if terms else ()),
                *estimate_text(line.estimate.value, line.estimate.standard_error, line.estimate.shown_interval),
            )
            for line in lines
            for cells in (dict(line.estimate.group),)
        )
        headings = (*groups, "statistic", *(("term",) if terms else ()), "estimate", f"{confidence} interval")
        return TextTable(headings, rows, 2)

    def _paragraphs(self) -> list[str]:
        answer, privacy = self.answer, self.answer.privacy
        sites = [f"Answered: {listed(answer.answered) or 'no site'}."]
        if answer.refused:
            sites.append(f"Refused: {listed(refusal_texts(answer.refused))}.")
        if answer.missing:
            sites.append(f"Missing: {listed(answer.missing)}.")
        if answer.left_out:
            whose = "its" if len(answer.left_out) == 1 else "their"
            sites.append(
                f"Left out: {listed(answer.left_out)}; {whose} totals are such as no table gives, so this answer is "
                "about the sites that answered. Tell the consortium."
            )
        about = [*([self.note] if self.note else []), *self._left_out(), *self._unknown(), " ".join(sites)]
        if answer.noiseless:
            return [
                *about,
                "NO NOISE was added and nothing is private: a simulation, for checking against known answers.",
            ]
        charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
        rounds = f" over {len(self.plan_ids)} {plural(len(self.plan_ids), 'round')}" if self.plan_ids else ""
        cost = (
            f"This is the stored answer of a question that cost {charged}{rounds}; asking again cost nothing."
            if answer.replayed
            else f"This question cost {charged}{rounds}."
        )
        split = f" Split by need: {split_text(self.shares)}." if self.shares else ""
        return [
            *about,
            f"{protection_text(answer.unit, privacy)} {cost}{split} {_balance(privacy)}",
            answer_meaning(answer.unit, privacy),
            self._covered(),
        ]

    def _left_out(self) -> list[str]:
        """What the view left out, and how clear its cut is."""
        sentences: list[str] = []
        if number := self.shown.left_out:
            groups = f"{number} {plural(number, 'group')} more {'was' if number == 1 else 'were'} answered"
            sentences.append(f"{groups} and {'is' if number == 1 else 'are'} not shown.")
        if (gap := self.shown.gap) is not None:
            apart = with_error(gap.value, gap.standard_error)
            sentences.append(f"The last group shown and the next one differ by {apart}, the noise of both included.")
        return [" ".join(sentences)] if sentences else []

    def _unknown(self) -> list[str]:
        """For each reason, of what there is no estimate, why, and what to do."""
        found: dict[NoEstimate, dict[str, None]] = {}
        for line in self.shown.lines:
            if (reason := line.estimate.reason) is not None:
                found.setdefault(reason, {})[line.label] = None
        return [f"No estimate of {listed(list(labels))}: {reason.sentence}" for reason, labels in found.items()]

    def _covered(self) -> str:
        known = [line for line in self.shown.lines if line.estimate.reason is None]
        sampled = dict.fromkeys(line.label for line in known if line.estimate.sampling)
        noise = dict.fromkeys(line.label for line in known if not line.estimate.sampling)
        if not sampled:
            return "The error and the interval cover the noise, not sampling error."
        if not noise:
            return "The error and the interval cover the noise and sampling error."
        return f"The error and the interval cover the noise; those of {listed(list(sampled))} also sampling error."


@dataclass(frozen=True, slots=True, repr=False)
class PreviewResult(Readable):
    """A dry run: the charge and the expected errors. Nothing was asked of a site and nothing was spent.

    Of a question in several rounds it shows the first one, and `rounds` says how the charge is split over all.
    """

    preview: Preview
    query: Query | None = None
    rounds: tuple[tuple[str, Loss], ...] = ()

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround ask --dry-run --json`."""
        return preview_document(self.preview, self.rounds)

    def _table(self) -> TextTable:
        expected = self.preview.expected
        aggregates = () if self.query is None else self.query.aggregates
        known = len(aggregates) == len(expected)
        split = any(each.share < 1.0 for each in expected)
        rows = tuple(
            (
                label_text(aggregates[place]) if known else statistic_label(each.statistic, each.column),
                each.note,
                str(each.groups),
                *((percent(each.share),) if split else ()),
                f"± {each.standard_error:.3g}",
            )
            for place, each in enumerate(expected)
        )
        share = ("share of the charge",) if split else ()
        return TextTable(("statistic", "note", "groups", *share, "expected error"), rows, 2 + len(share))

    def _paragraphs(self) -> list[str]:
        preview, privacy = self.preview, self.preview.privacy
        charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
        cost = (
            "This question was answered before: asking it again would cost nothing."
            if preview.replayed
            else f"This question would cost {charged}.{too_much(preview.excess)}"
        )
        return [
            *self._split(),
            f"Sites to be asked: {listed(preview.sites) or 'none'}.",
            f"{protection_text(preview.unit, privacy)} {cost} {_balance(privacy)}",
            answer_meaning(preview.unit, privacy),
            "A dry run: nothing was asked of a site and nothing was spent.",
        ]

    def _split(self) -> list[str]:
        if not self.rounds:
            return []
        titles = dict.fromkeys(title for title, _ in self.rounds)
        each = "; ".join(
            f"{sum(1 for name, _ in self.rounds if name == title)} × {title} at ε = {loss.epsilon:.4g}"
            for title, loss in dict(self.rounds).items()
        )
        return [
            f"{len(self.rounds)} rounds, the first of which is shown: {each}."
            if len(titles) > 1
            else f"{len(self.rounds)} rounds like this one: {each}."
        ]


def split_text(shares: Sequence[tuple[str, float]]) -> str:
    """Who has which part of the charge."""
    return ", ".join(f"{label} {percent(share)}" for label, share in shares)


def _term(estimate: Estimate) -> str:
    """Which of several numbers: of a correlation both columns, because every pair has one."""
    paired = find(Statistic(estimate.statistic)).pairs
    return f"{estimate.column}, {estimate.term}" if paired else estimate.term


def protection_text(unit: str, privacy: PrivacyStatement) -> str:
    """Whom noise protects, at how many sites, and who adds it."""
    if privacy.mechanism == Choosing.PERMUTE_AND_FLIP:
        where = f"one vote of each site, drawn by permute-and-flip ({privacy.composition} composition)"
        sites = f"at up to {privacy.overlap} {plural(privacy.overlap, 'site')}"
        return f"Protected: {unit_text(unit)}, {sites}, by {where}."
    mechanism = _MECHANISMS.get(privacy.mechanism, privacy.mechanism)
    where = (
        "noise added once to the total, by whoever is trusted with it (a simulation)"
        if privacy.composition == "trusted_total"
        else f"noise added inside each site ({privacy.composition} composition)"
    )
    sites = f"at up to {privacy.overlap} {plural(privacy.overlap, 'site')}"
    return f"Protected: {unit_text(unit)}, {sites}, by {mechanism} {where}."


def _balance(privacy: PrivacyStatement) -> str:
    spent = f"ε = {privacy.spent.epsilon:.4g} at δ = {privacy.spent.delta:.3g}"
    return f"The study has spent {spent}; {next_text(privacy.remaining, delta=privacy.spent.delta)}"


def _absent(library: str) -> ConfigurationMistaken:
    return ConfigurationMistaken(f"{library} is not installed; install it with pip install 'wardround[analyst]'.")
