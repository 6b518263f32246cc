"""The long form of an answer: one estimate a line, with its term and its interval."""

from __future__ import annotations

from collections.abc import Sequence

from wardround.analyst.tables.presentation import ShownLine
from wardround.analyst.tables.text_tables import TextTable, cell_text, estimate_text, percent, value_text
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Statistic
from wardround.federation.statistics import find


def long_table(lines: Sequence[ShownLine]) -> TextTable:
    """A row for each line; the cells of a table have group columns that its test has not."""
    groups = tuple(dict.fromkeys(name for line in lines for name, _ in line.estimate.group))
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


def _term(estimate: Estimate) -> str:
    """Which of several numbers: of a correlation both columns, because every pair has one."""
    paired = find(Statistic(estimate.statistic)).pairs
    return f"{estimate.column}, {estimate.term}" if paired else estimate.term
