"""What `ask` and `preview` return: the answer, ready to read, to compute with and to keep.

A number is never shown without its error, nor an answer without what it cost and whom it protects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from wardround.analyst.pictures.picture_files import need_matplotlib
from wardround.analyst.showing.documents import AnswerExtras, Json, answer_document, preview_document
from wardround.analyst.showing.drawn_columns import drawn_columns
from wardround.analyst.showing.error_costs import dearer_document, dearer_text, error_documents, error_lines
from wardround.analyst.showing.foreseen import foreseen_lines
from wardround.analyst.showing.interpretation import answer_meaning, next_text, plural, too_much, unit_text
from wardround.analyst.showing.privacy_line import NO_NOISE, answer_line, preview_line
from wardround.analyst.showing.who_answered import lacking_line, sites_line
from wardround.analyst.tables import frames
from wardround.analyst.tables.long_table import long_table
from wardround.analyst.tables.presentation import BoundQuestion, Gap, Shown, shown, statistic_label
from wardround.analyst.tables.text_tables import (
    NOISE_NAMES,
    Readable,
    TextTable,
    as_html,
    as_text,
    isolated,
    listed,
    number_text,
    percent,
    with_error,
)
from wardround.analyst.tables.wide_tables import WideTable, wide_tables
from wardround.analyst.tables.wide_text import screen_width, text_tables
from wardround.federation.plain_text import escaped
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.answer import Answer, Estimate, Loss, NoEstimate, Preview, PrivacyStatement
from wardround.federation.question.query import Query
from wardround.federation.study.study import Table
from wardround.privacy.mechanisms.private_selection import Choosing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.axes import Axes


# Without slots, so that the view is applied once.
@dataclass(frozen=True, repr=False)
class Result(Readable):
    """The answer to one question, as the question wants it shown: a row a group and a column an aggregate.

    `answer` has everything that was released, whatever is shown. `plan_ids` are those of all rounds, when there
    were several; `shares` says how the aggregates shared the charge; `cap` is the ε of the study; `table` is the
    study's, for units.
    """

    answer: Answer
    asked: BoundQuestion | None = None
    plan_ids: tuple[str, ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    note: str = ""
    cap: float | None = None
    table: Table | None = None

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

    def plot(self, ax: Axes | None = None, *, of: str = "") -> Axes:
        """Draw the answer, with its intervals: into `ax`, or into a new figure, whose first Axes is returned.

        A new figure has a panel for each aggregate; `of` chooses one by its title.
        """
        need_matplotlib()
        from wardround.analyst.pictures.answers import answer_picture  # noqa: PLC0415 - an extra

        return answer_picture(self.answer, self.shown.lines, drawn_columns(self.asked, self.table)).draw(ax, of=of)

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround ask --json`."""
        lines = tuple((line.estimate, line.name) for line in self.shown.lines)
        document = answer_document(self.answer, AnswerExtras(lines, self.plan_ids, self.gap, self.shares))
        if (dearer := self.answer.dearer) is not None:
            document["dearer_noise"] = dearer_document(dearer, None if self.asked is None else self.asked.query)
        return document

    @cached_property
    def tables(self) -> tuple[WideTable, ...]:
        """What is shown as tables; several where a statistic has several numbers a group."""
        return wide_tables(self.shown.lines, self.asked)

    def to_pandas(self, *, long: bool = False) -> pd.DataFrame:
        """A data frame: a row for each group and columns for each aggregate: its number, error, interval and reason.

        Where there is no estimate its numbers are NaN (null in Arrow), and `…_reason` says why. With `long`, a row for
        each estimate. `attrs` (in Arrow the schema's metadata) says who answered.
        """
        if long:
            return frames.to_long_pandas(self.estimates, self.answer)
        return frames.to_pandas(self.tables, self.answer)

    def to_arrow(self, *, long: bool = False) -> pa.Table:
        """An Arrow table with the same columns as `to_pandas`."""
        if long:
            return frames.to_long_arrow(self.estimates, self.answer)
        return frames.to_arrow(self.tables, self.answer)

    def text(
        self, *, long: bool = False, intervals: bool = False, explain: bool = False, width: int | None = None
    ) -> str:
        """The answer for a screen that is `width` columns wide, or as wide as it needs.

        With `intervals` every number has its interval beside it; with `explain` all that is to be said about privacy
        follows; `long` has all of it, one estimate a line.
        """
        if long:
            return "\n".join([*self._first_line(), as_text(self._table()), "", *map(escaped, self._paragraphs())])
        parts = [
            "\n".join([*([escaped(title)] if title else []), as_text(table)])
            for title, table in self._pieces(intervals=intervals, width=width)
        ]
        told = [*self._short_paragraphs(), *(self._explained() if explain else [])]
        return "\n".join([*self._first_line(), "\n\n".join(parts), "", *map(escaped, told)])

    def explain(self) -> str:
        """Whom the answer protects and how, what it cost, what is left and what that means for one patient."""
        return "\n".join(map(escaped, self._explained()))

    def __str__(self) -> str:
        return self.text(width=screen_width())

    def _repr_html_(self) -> str:
        lead = [f"<p><strong>{isolated(line)}</strong></p>" for line in (lacking_line(self.answer),) if line]
        tables = [as_html(table, (), title=title) for title, table in self._pieces()]
        return "".join([*lead, *tables, *(f"<p>{isolated(line)}</p>" for line in self._short_paragraphs())])

    def _first_line(self) -> list[str]:
        """What must not be missed, and a line apart from the table."""
        line = lacking_line(self.answer)
        return [escaped(line), ""] if line else []

    def _pieces(self, *, intervals: bool = False, width: int | None = None) -> list[tuple[str, TextTable]]:
        """Every table as text under its title, in pieces where it is wider than the screen."""
        if not self.tables:
            return [("", self._table())]
        return [
            (table.title if number == 0 else "", piece)
            for table in self.tables
            for number, piece in enumerate(text_tables(table, intervals=intervals, width=width))
        ]

    def _table(self) -> TextTable:
        return long_table(self.shown.lines)

    def _short_paragraphs(self) -> list[str]:
        if self.answer.noiseless:
            return [*self._about(), NO_NOISE]
        cost = answer_line(self.answer, cap=self.cap, rounds=len(self.plan_ids) or 1)
        return [*self._about(), *self._errors(), cost]

    def _paragraphs(self) -> list[str]:
        return [*self._about(), *self._explained(), *([] if self.answer.noiseless else [self._covered()])]

    def _about(self) -> list[str]:
        dearer, query = self.answer.dearer, None if self.asked is None else self.asked.query
        return [
            *([self.note] if self.note else []),
            *self._left_out(),
            *self._unknown(),
            sites_line(self.answer),
            *([] if dearer is None else [dearer_text(dearer, query)]),
        ]

    def _explained(self) -> list[str]:
        answer, privacy = self.answer, self.answer.privacy
        if answer.noiseless:
            return [NO_NOISE]
        charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
        rounds = f" over {len(self.plan_ids)} {plural(len(self.plan_ids), 'round')}" if self.plan_ids else ""
        cost = (
            f"This is the stored answer of a question that cost {charged}{rounds}; asking again cost nothing."
            if answer.replayed
            else f"This question cost {charged}{rounds}."
        )
        split = f" Split by need: {split_text(self.shares)}." if self.shares else ""
        return [
            f"{protection_text(answer.unit, privacy)} {cost}{split} {_balance(privacy)}",
            answer_meaning(answer.unit, privacy),
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
        return f"The error and the interval cover {self._covers('those')}"

    def _errors(self) -> list[str]:
        """What stands behind ±, where there is one."""
        shown = any(estimate.standard_error for estimate in self)
        return [f"± is one standard error: it covers {self._covers('that')}"] if shown else []

    def _covers(self, those: str) -> str:
        known = [line for line in self.shown.lines if line.estimate.reason is None]
        sampled = dict.fromkeys(line.label for line in known if line.estimate.sampling)
        noise = [(line.label, line.further) for line in known if not line.estimate.sampling]
        if not sampled:
            return "the noise, not sampling error."
        # Of a curve that covers both, who is at risk is a count like any other.
        but = list(dict.fromkeys(further for label, further in noise if further and label in sampled))
        except_for = f" ({listed(but)}: the noise alone)" if but else ""
        if all(further and label in sampled for label, further in noise):
            return f"the noise and sampling error{except_for}."
        return f"the noise; {those} of {listed(list(sampled))} also sampling error{except_for}."


@dataclass(frozen=True, slots=True, repr=False)
class PreviewResult(Readable):
    """A dry run: the charge and the expected errors. Nothing was asked of a site and nothing was spent.

    Of a question in several rounds it shows the first one, and `rounds` says how the charge is split over all. `cap` is
    the ε of the study.
    """

    preview: Preview
    query: Query | None = None
    rounds: tuple[tuple[str, Loss], ...] = ()
    cap: float | None = None

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround ask --dry-run --json`."""
        document = preview_document(self.preview, self.rounds)
        if (dearer := self.preview.dearer) is not None:
            document["dearer_noise"] = dearer_document(dearer, self.query)
        if self.preview.by_error:
            document["by_error"] = error_documents(self.preview.by_error)
        return document

    def _table(self) -> TextTable:
        expected = self.preview.expected
        split = any(each.share < 1.0 for each in expected)
        rows = tuple(
            (
                label,
                str(each.groups),
                *((percent(each.share),) if split else ()),
                f"± {number_text(each.standard_error, digits=3)}",
            )
            for label, each in zip(self._labels(), expected, strict=True)
        )
        share = ("share of the charge",) if split else ()
        return TextTable(("statistic", "groups", *share, "expected error"), rows, 2 + len(share))

    def _labels(self) -> list[str]:
        expected = self.preview.expected
        aggregates = () if self.query is None else self.query.aggregates
        if len(aggregates) == len(expected):
            return [label_text(aggregate) for aggregate in aggregates]
        return [statistic_label(each.statistic, each.column) for each in expected]

    def _errors(self) -> list[str]:
        """What ± means, and under which assumption; what several share is said once."""
        assumed: dict[str, list[str]] = {}
        for label, each in zip(self._labels(), self.preview.expected, strict=True):
            if each.note:
                assumed.setdefault(each.note, []).append(label)
        return [
            "± is one standard error; half of a 95 % interval is about twice that.",
            *(f"± of {', '.join(labels)} is {note}." for note, labels in assumed.items()),
        ]

    def explain(self) -> str:
        """Whom the answer would protect and how, what is left and what that means for one patient."""
        preview, privacy = self.preview, self.preview.privacy
        charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
        cost = (
            "This question was answered before: asking it again would cost nothing."
            if preview.replayed
            else f"This question would cost {charged}."
        )
        whole = f"{protection_text(preview.unit, privacy)} {cost} {_balance(privacy)}"
        return "\n".join(map(escaped, [whole, answer_meaning(preview.unit, privacy)]))

    def _paragraphs(self) -> list[str]:
        return [
            *self._errors(),
            *([""] if self.preview.by_error else []),
            *error_lines(self.preview.by_error, self.query),
            *([""] if self.preview.by_error else []),
            *self._split(),
            *([] if self.preview.dearer is None else [dearer_text(self.preview.dearer, self.query)]),
            f"Sites to be asked: {listed(self.preview.sites) or 'none'}.",
            *foreseen_lines(self.preview),
            *self._refusal(),
            preview_line(self.preview, cap=self.cap),
            "A dry run: nothing was asked of a site and nothing was spent.",
        ]

    def _refusal(self) -> list[str]:
        """That the budget would refuse it as things stand, where it would."""
        return [] if self.preview.replayed or self.preview.excess is None else [too_much(self.preview.excess).strip()]

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


def protection_text(unit: str, privacy: PrivacyStatement) -> str:
    """Whom noise protects, at how many sites, and who adds it."""
    if privacy.mechanism == Choosing.PERMUTE_AND_FLIP:
        where = f"one vote of each site, drawn by permute-and-flip ({privacy.composition} composition)"
        sites = f"at up to {privacy.overlap} {plural(privacy.overlap, 'site')}"
        return f"Protected: {unit_text(unit)}, {sites}, by {where}."
    noise = NOISE_NAMES.get(privacy.mechanism)
    mechanism = privacy.mechanism if noise is None else f"discrete {noise}"
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
