"""Numbers in rows: a sign with its interval for each, so that long names and many groups find room."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from wardround.analyst.pictures.lettering import (
    LINE_INCHES,
    Size,
    across,
    name_ticks,
    number_ticks,
    upwards,
    width_of,
    wrapped,
)
from wardround.analyst.pictures.marks import STYLES, PlacedNumber, key, key_height, key_of, mark_across
from wardround.analyst.pictures.picture_words import AxisTitles, Cell, any_known, keys_of, rows_of

NAME_INCHES = 2.1
MOST_ROWS = 150
_ROW, _LOWEST = 0.26, 1.0
_SPREAD, _APART = 0.75, 0.24
"""Of a row's height: for all groups in it, and at most from one group to the next."""


def points_height(cells: Sequence[Cell], axis: AxisTitles) -> float:
    """How many inches the rows need, and the titles beside them."""
    rows, keys = rows_of(cells)[:MOST_ROWS], keys_of(cells)
    lines = max((wrapped(row, NAME_INCHES).count("\n") + 1 for row in rows), default=1)
    each = max(_ROW, LINE_INCHES * lines + 0.08, 0.17 * len(keys) + 0.1)
    beside = key_height([axis.keys, *keys]) if len(keys) > 1 else 0.0
    return max(each * len(rows), _LOWEST, width_of(axis.rows) / 3.0 + 0.3, beside)


def draw_points(ax: Axes, size: Size, cells: Sequence[Cell], axis: AxisTitles, *, nought: bool = False) -> None:
    """A row for each name, from above, its groups beside each other; `nought` draws the line to compare with."""
    rows, keys = rows_of(cells)[:MOST_ROWS], keys_of(cells)
    places = {row: number for number, row in enumerate(rows)}
    for number, (name, style) in enumerate(zip(keys, STYLES, strict=False)):
        shift = min(_SPREAD / len(keys), _APART) * (number - (len(keys) - 1) / 2)
        mark_across(
            ax,
            [PlacedNumber(places[c.row] + shift, c.estimate) for c in cells if c.key == name and c.row in places],
            style,
        )
    if nought:
        ax.axvline(0.0, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    if axis.limits is not None:
        ax.set_xlim(*axis.limits)
    ax.margins(x=0.06)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    width, height = size
    number_ticks(ax.xaxis, width * 0.75, known=any_known(cells))
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    _name_rows(ax, rows, height)
    across(ax, axis.numbers, width)
    upwards(ax, axis.rows, height)
    if len(keys) > 1:
        key(ax, [key_of(style, lined=False) for style in STYLES[: len(keys)]], keys, axis.keys)


def _name_rows(ax: Axes, rows: Sequence[str], height: float) -> None:
    """Every name, or of rows that are closer than lines each second, third or later one."""
    names = [wrapped(row, NAME_INCHES) for row in rows]
    if rows == [""]:
        ax.set_yticks([])
        return
    lines = max(name.count("\n") + 1 for name in names)
    step = max(1, -(-round(lines * LINE_INCHES * len(rows) * 100) // round(height * 100)))
    name_ticks(ax.yaxis, range(0, len(rows), step), names[::step])
