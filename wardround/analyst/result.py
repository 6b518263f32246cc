"""What `ask` and `preview` return: the answer, ready to read, to compute with and to keep.

A number is never shown without its error, nor an answer without what it cost and whom it protects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wardround.analyst.documents import Json, answer_document, preview_document
from wardround.analyst.meaning import answer_meaning, next_text, plural, unit_text
from wardround.analyst.plot import picture, write_picture
from wardround.analyst.tables import (
    Table,
    as_html,
    as_text,
    interval_text,
    listed,
    percent,
    value_text,
    with_error,
)
from wardround.federation.answer import Answer, Estimate, Preview, PrivacyStatement
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.expressions import Value
from wardround.federation.query import Aggregate, Statistic
from wardround.federation.wording import aggregate_text

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MECHANISMS = {"discrete_gaussian": "discrete Gaussian", "discrete_laplace": "discrete Laplace"}
_NUMBERS = ("statistic", "column", "value", "standard_error", "lower", "upper", "confidence")


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The answer to one question, one estimate a line."""

    answer: Answer

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Every number with its error."""
        return self.answer.estimates

    @property
    def privacy(self) -> PrivacyStatement:
        """What the answer cost one unit, and what is left."""
        return self.answer.privacy

    def __len__(self) -> int:
        return len(self.answer.estimates)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.answer.estimates)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the answer, with its intervals, into an .svg file."""
        write_picture(picture(self.answer), Path(path))

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround ask --json`."""
        return answer_document(self.answer)

    def to_pandas(self) -> pd.DataFrame:
        """A data frame: a row for each estimate, a column for each group column."""
        try:
            import pandas as pd  # noqa: PLC0415 - an extra, loaded only when asked for
        except ImportError:
            raise _absent("pandas") from None
        return pd.DataFrame(self._columns())

    def to_arrow(self) -> pa.Table:
        """An Arrow table with the same columns as `to_pandas`."""
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra, loaded only when asked for
        except ImportError:
            raise _absent("pyarrow") from None
        texts, numbers = {"statistic", "column"}, set(_NUMBERS[2:])
        arrays = {
            name: pa.array(cells, type=pa.string() if name in texts else pa.float64() if name in numbers else None)
            for name, cells in self._columns().items()
        }
        return pa.table(arrays)

    def _columns(self) -> dict[str, list[Value | None]]:
        columns: dict[str, list[Value | None]] = {}
        for index, (name, _) in enumerate(self.estimates[0].group if self.estimates else ()):
            # A study may well have a column called "value".
            columns[f"group_{name}" if name in _NUMBERS else name] = [each.group[index][1] for each in self]
        columns["statistic"] = [each.statistic for each in self]
        columns["column"] = [each.column for each in self]
        columns["value"] = [each.value for each in self]
        columns["standard_error"] = [each.standard_error for each in self]
        columns["lower"] = [each.interval[0] for each in self]
        columns["upper"] = [each.interval[1] for each in self]
        columns["confidence"] = [each.confidence for each in self]
        return columns

    def __str__(self) -> str:
        return "\n".join([as_text(self._table()), "", *self._paragraphs()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self._table(), self._paragraphs())

    def _table(self) -> Table:
        groups = tuple(name for name, _ in self.estimates[0].group) if self.estimates else ()
        confidence = percent(self.estimates[0].confidence) if self.estimates else "95 %"
        rows = tuple(
            (
                *(value_text(value) for _, value in each.group),
                _label(each.statistic, each.column),
                with_error(each.value, each.standard_error),
                interval_text(each.interval, each.standard_error),
            )
            for each in self
        )
        return Table((*groups, "statistic", "estimate", f"{confidence} interval"), rows, 2)

    def _paragraphs(self) -> list[str]:
        answer, privacy = self.answer, self.answer.privacy
        sites = [f"Answered: {listed(answer.answered) or 'no site'}."]
        if answer.refused:
            sites.append(f"Refused: {listed([f'{site} ({code})' for site, code in answer.refused])}.")
        if answer.missing:
            sites.append(f"Missing: {listed(answer.missing)}.")
        if answer.noiseless:
            return [
                " ".join(sites),
                "NO NOISE was added and nothing is private: a simulation, for checking against known answers.",
            ]
        charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
        cost = (
            f"This is the stored answer of a question that cost {charged}; asking again cost nothing."
            if answer.replayed
            else f"This question cost {charged}."
        )
        return [
            " ".join(sites),
            f"{_protection(answer.unit, privacy)} {cost} {_balance(privacy)}",
            answer_meaning(answer.unit, privacy),
            "The error and the interval cover the noise, not sampling error.",
        ]


@dataclass(frozen=True, slots=True, repr=False)
class PreviewResult:
    """A dry run: the charge and the expected errors. Nothing was asked of a site and nothing was spent."""

    preview: Preview

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround ask --dry-run --json`."""
        return preview_document(self.preview)

    def __str__(self) -> str:
        return "\n".join([as_text(self._table()), "", *self._paragraphs()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self._table(), self._paragraphs())

    def _table(self) -> Table:
        rows = tuple(
            (_label(each.statistic, each.column), each.note, str(each.groups), f"± {each.standard_error:.3g}")
            for each in self.preview.expected
        )
        return Table(("statistic", "note", "groups", "expected error"), rows, 2)

    def _paragraphs(self) -> list[str]:
        preview, privacy = self.preview, self.preview.privacy
        charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
        cost = (
            "This question was answered before: asking it again would cost nothing."
            if preview.replayed
            else f"This question would cost {charged}."
        )
        return [
            f"Sites to be asked: {listed(preview.sites) or 'none'}.",
            f"{_protection(preview.unit, privacy)} {cost} {_balance(privacy)}",
            answer_meaning(preview.unit, privacy),
            "A dry run: nothing was asked of a site and nothing was spent.",
        ]


def _label(statistic: str, column: str | None) -> str:
    return aggregate_text(Aggregate(Statistic(statistic), column))


def _protection(unit: str, privacy: PrivacyStatement) -> str:
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
