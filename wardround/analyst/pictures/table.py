"""A table of two columns: each cell's number with its error, darker where there are more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from wardround.analyst.pictures.lettering import (
    LINE_INCHES,
    NO_ESTIMATE,
    SMALL,
    Size,
    across,
    error_text,
    name_ticks,
    upwards,
    width_of,
    wrapped,
)
from wardround.analyst.pictures.picture_words import AxisTitles, Cell, keys_of, rows_of
from wardround.analyst.pictures.points import MOST_ROWS, NAME_INCHES

_ROW = 0.34
_DARK = 0.55
_NARROWEST = 0.5


def table_height(cells: Sequence[Cell], axis: AxisTitles) -> float:
    """How many inches the rows need."""
    rows = rows_of(cells)[:MOST_ROWS]
    lines = max((wrapped(row, NAME_INCHES).count("\n") + 1 for row in rows), default=1)
    return max(max(_ROW, LINE_INCHES * lines + 0.1) * len(rows), 1.0, width_of(axis.rows) / 3.0 + 0.3)


def draw_table(ax: Axes, size: Size, cells: Sequence[Cell], axis: AxisTitles) -> None:
    """The first column downwards, the second one across; the numbers themselves where they find room."""
    rows, keys = rows_of(cells)[:MOST_ROWS], keys_of(cells)[:MOST_ROWS]
    places = {name: place for place, name in enumerate(rows)}, {name: place for place, name in enumerate(keys)}
    numbers = np.full((len(rows), len(keys)), np.nan)
    errors = np.zeros_like(numbers)
    for cell in cells:
        if cell.row not in places[0] or cell.key not in places[1]:
            continue
        place = places[0][cell.row], places[1][cell.key]
        if cell.estimate.value is not None:
            numbers[place] = cell.estimate.value
            errors[place] = cell.estimate.standard_error or 0.0
    shown = np.ma.masked_invalid(numbers)
    low, high = min(float(shown.min()), 0.0), max(float(shown.max()), 1.0)
    # Half of the greys, so that black letters are read on all of them.
    mesh = ax.pcolormesh(shown, cmap="Greys", vmin=low, vmax=low + (high - low) / _DARK, edgecolors="white")
    ax.invert_yaxis()
    width, height = size
    told = {place: _told(float(numbers[place]), float(errors[place])) for place in np.ndindex(*numbers.shape)}
    room = width * 0.75 / len(keys) - 0.08
    if max(width_of(text, SMALL) for text in told.values()) <= room:
        for (row, column), text in told.items():
            ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=SMALL)
    else:
        figure = ax.get_figure(root=True)
        if figure is not None:
            bar = figure.colorbar(mesh, ax=ax)
            upwards(bar.ax, axis.numbers, height)
    _name_rows(ax, rows, height)
    _name_columns(ax, keys, width * 0.75)
    across(ax, axis.keys, width)
    upwards(ax, axis.rows, height)


def _told(value: float, error: float) -> str:
    return NO_ESTIMATE if np.isnan(value) else error_text(value, error)


def _name_rows(ax: Axes, rows: Sequence[str], height: float) -> None:
    names = [wrapped(row, NAME_INCHES) for row in rows]
    lines = max(name.count("\n") + 1 for name in names)
    step = max(1, -(-round(lines * LINE_INCHES * len(rows) * 100) // round(height * 100)))
    name_ticks(ax.yaxis, [place + 0.5 for place in range(0, len(rows), step)], names[::step])


def _name_columns(ax: Axes, keys: Sequence[str], inches: float) -> None:
    """Names in lines as wide as their column; of many columns, upwards and as many as find room."""
    each = inches / len(keys) - 0.1
    if each >= _NARROWEST:
        name_ticks(ax.xaxis, [place + 0.5 for place in range(len(keys))], [wrapped(name, each) for name in keys])
        return
    step = max(1, -(-round((LINE_INCHES + 0.03) * len(keys) * 100) // round(inches * 100)))
    places = range(0, len(keys), step)
    name_ticks(ax.xaxis, [place + 0.5 for place in places], [wrapped(keys[place], 1.5, most=1) for place in places])
    ax.tick_params(axis="x", labelrotation=90)
