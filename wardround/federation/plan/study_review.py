"""What a study leaves out or makes dear, said before anyone signs it; from its text alone, never from a table.

None of it is a mistake: every study that can be read can be run. But nothing can be changed once a hospital has
signed, so what cannot be asked later is told now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.forms.grids import PLAIN_LEAVES, level_quantiser, tree_coding
from wardround.federation.question.query import MAX_MONTHS, month_range
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit

MANY_ROWS = 12
"""From so many rows a unit on, the noise of sums and of counts of events is told."""


class Kind(StrEnum):
    """What was found; the names a program may rely on."""

    NO_BOUNDS = "no_bounds"
    NO_STEP = "no_step"
    UNEVEN_STEP = "uneven_step"
    FINE_STEP = "fine_step"
    OPEN_CATEGORY = "open_category"
    NO_DAYS = "no_days"
    MANY_MONTHS = "many_months"
    NO_WINDOWS = "no_windows"
    MANY_ROWS = "many_rows"
    FEW_GROUPS = "few_groups"
    UNKNOWN_OVERLAP = "unknown_overlap"
    NO_DELTA = "no_delta"
    EVENT_UNIT = "event_unit"


@dataclass(frozen=True, slots=True)
class StudyFinding:
    """One thing to know about one place of the study, in one sentence."""

    place: str
    kind: Kind
    sentence: str


def findings(study: Study) -> tuple[StudyFinding, ...]:
    """Everything to know about the study before it is signed, in the order of its text."""
    return (*_of_the_whole(study), *(found for table in study.tables for found in _of_table(table, study)))


def _of_the_whole(study: Study) -> Iterator[StudyFinding]:
    if study.unit is Unit.EVENT:
        text = "this study protects one row, not one patient: a patient with m rows has up to m times the loss."
        yield StudyFinding("unit", Kind.EVENT_UNIT, text)
    if study.overlap is None:
        text = (
            "without overlap every patient is assumed to be at every site, so each site's noise grows with "
            "the square root of the number of sites; declare overlap if no patient is at all of them."
        )
        yield StudyFinding("overlap", Kind.UNKNOWN_OVERLAP, text)
    if study.cap.delta == 0.0:
        text = (
            "δ = 0 allows only Laplace noise: the ε of all questions add up, and a patient in k groups costs "
            "k times as much instead of √k times."
        )
        yield StudyFinding("budget.delta", Kind.NO_DELTA, text)


def _of_table(table: Table, study: Study) -> Iterator[StudyFinding]:
    rows = table.max_rows_per_unit
    if study.unit is Unit.PATIENT and rows >= MANY_ROWS:
        text = (
            f"sums and counts of rows carry {rows} times the noise of one row; a smaller number only loses the "
            "extra rows of the few patients who have more."
        )
        yield StudyFinding(f"{table.name}.max_rows_per_unit", Kind.MANY_ROWS, text)
    if study.unit is Unit.PATIENT and table.max_groups_per_unit < rows:
        text = (
            f"a patient counts in at most {table.max_groups_per_unit} groups of a GROUP BY, although {rows} "
            "rows count; this gives less noise, but loses rows of patients in more groups."
        )
        yield StudyFinding(f"{table.name}.max_groups_per_unit", Kind.FEW_GROUPS, text)
    for column in table.columns:
        yield from _of_column(column, table, study)


def _of_column(column: Column, table: Table, study: Study) -> Iterator[StudyFinding]:
    place = f"{table.name}.{column.name}"
    match column.type:
        case ColumnType.INTEGER | ColumnType.NUMBER if column.numeric_bounds is None:
            text = (
                "no lower and upper: the column can be used in WHERE, but not for a sum, mean, histogram or "
                "quantile; take bounds from medical knowledge, never from the tables."
            )
            yield StudyFinding(place, Kind.NO_BOUNDS, text)
        case ColumnType.INTEGER | ColumnType.NUMBER:
            yield from _of_step(column, place, rows=table.max_rows_per_unit)
        case ColumnType.CATEGORY if column.open:
            text = (
                "no values: they are not public. A GROUP BY first asks which values there are; that question has "
                "a charge of its own, uses some of δ, and never shows a value that only a few patients have. List "
                "the values where a code list exists."
            )
            yield StudyFinding(place, Kind.OPEN_CATEGORY, text)
        case ColumnType.DATE:
            yield from _of_days(column, place, table, study)
        case _:
            pass


def _of_step(column: Column, place: str, *, rows: int) -> Iterator[StudyFinding]:
    lower, upper = column.numeric_bounds or (0, 0)
    if column.step is None:
        quantiser = level_quantiser(column, rows=rows)
        text = (
            f"no step: values are rounded to {float(1 / quantiser.per_unit):.2g}, so no answer is exact even "
            f"without noise, and quantiles are given in steps of {float((upper - lower) / PLAIN_LEAVES):.3g}; "
            "add a step, the precision that matters."
        )
        yield StudyFinding(place, Kind.NO_STEP, text)
    elif ((upper - lower) / column.step).denominator != 1:
        text = (
            f"the bounds are not a whole number of steps of {float(column.step):g} apart, so means are rounded "
            f"and quantiles are given in steps of {float((upper - lower) / PLAIN_LEAVES):.3g}; move one "
            "bound."
        )
        yield StudyFinding(place, Kind.UNEVEN_STEP, text)
    else:
        quantiser, coding, _ = tree_coding(column, rows=rows)
        told = coding.width / quantiser.per_unit
        if told > column.step:
            text = (
                f"a step of {float(column.step):g} is finer than quantiles can be: they are given in steps of "
                f"{float(told):.3g}; sums and means keep the finer step."
            )
            yield StudyFinding(place, Kind.FINE_STEP, text)


def _of_days(column: Column, place: str, table: Table, study: Study) -> Iterator[StudyFinding]:
    months = month_range(column)[1]
    if months == 0:
        text = "no first and last day (lower, upper): the column can be used in WHERE, but not for a series by month."
        yield StudyFinding(place, Kind.NO_DAYS, text)
    elif months > MAX_MONTHS:
        text = f"its days span {months} months; a series by month has at most {MAX_MONTHS}."
        yield StudyFinding(place, Kind.MANY_MONTHS, text)
    elif study.unit is Unit.PATIENT and table.max_windows_per_unit is None and table.max_groups_per_unit < months:
        text = (
            f"a patient counts in at most {table.max_groups_per_unit} of its {months} months; "
            "max_windows_per_unit sets another number for months than for other groups."
        )
        yield StudyFinding(place, Kind.NO_WINDOWS, text)
