"""Numbers as a person reads them: rounded to what the error supports, in columns, as text or HTML."""

from __future__ import annotations

import datetime
import html
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from wardround.federation.plain_text import escaped, fitted, width_of
from wardround.federation.study.study import Value

MAX_LINES = 200
MAX_LISTED = 8
# How wide a text of other people may make a column: the number beside it must stay in sight.
_MAX_COLUMNS = 100
_MAX_DECIMALS = 12
_GAP = "  "
# Above it noughts are harder to count than an exponent is to read.
_TOO_LONG = 1e12
_INHERITED = "color: inherit; background: transparent; border-color: currentColor"
_LEFT = ' style="text-align: left"'
_RIGHT = ' style="text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums"'


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows of text; the last `numeric` columns are numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: int


def decimals_for(standard_error: float) -> int:
    """How many decimals show two digits of the error."""
    if not math.isfinite(standard_error) or standard_error <= 0.0:
        return 0
    return min(max(1 - math.floor(math.log10(standard_error)), 0), _MAX_DECIMALS)


NO_ESTIMATE = "no estimate"


def metric_text(value: float | None, standard_error: float | None) -> str:
    """The number with its error, or that there is none."""
    return NO_ESTIMATE if value is None or standard_error is None else with_error(value, standard_error)


def estimate_text(
    value: float | None, standard_error: float | None, interval: tuple[float, float] | None
) -> tuple[str, str]:
    """The number with its error, and the interval; without a number, that there is none and what is still possible."""
    if interval is None:
        return f"{value or 0.0:.4g}", "none"
    if value is None or standard_error is None:
        return NO_ESTIMATE, interval_text(interval, 0.0)
    exact = interval[0] == interval[1]
    return with_error(value, standard_error, exact=exact), interval_text(interval, standard_error)


def with_error(value: float, standard_error: float, *, exact: bool = True) -> str:
    """`value ± error`, both to two digits of the error; an exact value, or a mere bound, has none to round by."""
    if standard_error == 0.0:
        return f"{value:.12g}" if exact else f"{value:.4g}"
    decimals = decimals_for(standard_error)
    return f"{value:.{decimals}f} ± {standard_error:.{decimals}f}"


def number_text(number: float, *, digits: int = 4) -> str:
    """A few digits of a number that has no error to round by; `20000`, not `2e+04`."""
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:.0f}" if 10.0**digits <= abs(rounded) < _TOO_LONG else f"{rounded:.{digits}g}"


def interval_text(interval: tuple[float, float], standard_error: float) -> str:
    """The interval, to the same digits as its value."""
    if standard_error == 0.0:
        low, high = (f"{end:.12g}" if interval[0] == interval[1] else f"{end:.4g}" for end in interval)
        return f"[{low}, {high}]"
    decimals = decimals_for(standard_error)
    return f"[{interval[0]:.{decimals}f}, {interval[1]:.{decimals}f}]"


NOISE_NAMES = {"discrete_gaussian": "Gaussian", "discrete_laplace": "Laplace"}
"""What a reader calls the noise of a mechanism."""


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.3g} %"


def value_text(value: Value) -> str:
    """A group's value as it is shown."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime.date():
            return value.isoformat()
        case _:
            return str(value)


def cell_text(text: str) -> str:
    """A text of somebody else as a cell; `to_pandas` and `document` have the whole of it."""
    return fitted(text, _MAX_COLUMNS)


def listed(names: Sequence[str]) -> str:
    """Names in a row; of many, the first few."""
    more = len(names) - MAX_LISTED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MAX_LISTED])} and {more} more"


def as_text(table: TextTable) -> str:
    """The table in columns, numbers to the right; a long table is cut and says so."""
    lines = [table.headings, *table.rows[:MAX_LINES]]
    widths = [max(width_of(line[index]) for line in lines) for index in range(len(table.headings))]
    texts = [_line(line, widths, table.numeric) for line in lines]
    texts.insert(1, "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    return "\n".join([*texts, *_more(table)])


def as_html(table: TextTable, paragraphs: Sequence[str], *, title: str = "") -> str:
    """The table and what is said about it, with everything escaped: names come from other people's files.

    Each cell is isolated, so that letters of a language written from the right move nothing in the cells beside it. No
    colour is named, so it is read on dark and on light: all are the notebook's own.
    """
    first_number = len(table.headings) - table.numeric
    sides = [_RIGHT if index >= first_number else _LEFT for index in range(len(table.headings))]
    parts = [f'<table style="{_INHERITED}">', f"<caption{_LEFT}>{isolated(title)}</caption>" if title else ""]
    parts.append("<thead><tr>")
    parts.extend(f"<th{side}>{isolated(heading)}</th>" for side, heading in zip(sides, table.headings, strict=True))
    parts.append("</tr></thead><tbody>")
    for row in table.rows[:MAX_LINES]:
        cells = (f"<td{side}>{isolated(cell)}</td>" for side, cell in zip(sides, row, strict=True))
        parts.extend(("<tr>", *cells, "</tr>"))
    parts.append("</tbody></table>")
    parts.extend(f"<p>{isolated(paragraph)}</p>" for paragraph in (*_more(table), *paragraphs))
    return "".join(parts)


def isolated(text: str) -> str:
    """A text of somebody else inside a page: escaped, and kept from turning what is around it."""
    return f"<bdi>{html.escape(escaped(text))}</bdi>"


def _line(cells: tuple[str, ...], widths: Sequence[int], numeric: int) -> str:
    first_number = len(cells) - numeric
    # Letters that take two places on a screen take two here.
    blanks = [" " * (width - width_of(cell)) for cell, width in zip(cells, widths, strict=True)]
    aligned = [
        blank + escaped(cell) if index >= first_number else escaped(cell) + blank
        for index, (cell, blank) in enumerate(zip(cells, blanks, strict=True))
    ]
    return _GAP.join(aligned).rstrip()


def _more(table: TextTable) -> list[str]:
    more = len(table.rows) - MAX_LINES
    return [f"… and {more} more rows; to_pandas() and document() have them all."] if more > 0 else []


class Readable(ABC):
    """A table and what is said about it, in a terminal and in a notebook."""

    __slots__ = ()

    @abstractmethod
    def _table(self) -> TextTable: ...

    @abstractmethod
    def _paragraphs(self) -> list[str]: ...

    def __str__(self) -> str:
        return "\n".join([as_text(self._table()), "", *map(escaped, self._paragraphs())])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self._table(), self._paragraphs())
