"""A histogram: a bar from edge to edge for each interval, with its interval of error; groups as outlines."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from matplotlib.axes import Axes

from wardround.analyst.pictures.lettering import (
    Size,
    across,
    name_ticks,
    number_text,
    number_ticks,
    upwards,
    width_of,
)
from wardround.analyst.pictures.marks import STYLES, PlacedNumber, key, key_of, mark_upwards
from wardround.analyst.pictures.picture_words import AxisTitles, Cell, keys_of

HEIGHT = 3.2
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_INTERVAL = re.compile(rf"\[{_NUMBER}, {_NUMBER}[)\]]")
_SPREAD = 0.4


def edges_of(row: str) -> tuple[float, float] | None:
    """Where an interval begins and ends; None where its name does not say so."""
    found = _INTERVAL.fullmatch(row)
    return None if found is None else (float(found[1]), float(found[2]))


def draw_bars(ax: Axes, size: Size, cells: Sequence[Cell], axis: AxisTitles) -> None:
    """Bars that stand on nought, below it too: what is below is noise, and is shown."""
    keys = keys_of(cells)
    for number, (name, style) in enumerate(zip(keys, STYLES, strict=False)):
        own = [(ends, cell.estimate) for cell in cells if cell.key == name and (ends := edges_of(cell.row)) is not None]
        shift = 0.0 if len(keys) == 1 else _SPREAD * (number / (len(keys) - 1) - 0.5)
        if len(keys) == 1:
            known = [(ends, each.value) for ends, each in own if each.value is not None]
            ax.bar(
                [low for (low, _), _ in known],
                [value for _, value in known],
                [high - low for (low, high), _ in known],
                align="edge",
                color="#9fc3d6",
                edgecolor="white",
            )
        else:
            heights = [math.nan if each.value is None else each.value for _, each in own]
            edges = [*(low for (low, _), _ in own), own[-1][0][1]]
            ax.stairs(heights, edges, color=style.colour, linestyle=style.line, baseline=None)
        marks = [PlacedNumber((low + high) / 2 + shift * (high - low), each) for (low, high), each in own]
        mark_upwards(ax, marks, style)
    ax.axhline(0.0, color="0.3", linewidth=0.8)
    width, height = size
    ax.margins(x=0.01)
    number_ticks(ax.yaxis, height * 2.0)
    _name_edges(ax, cells, width * 0.75)
    across(ax, axis.rows, width)
    upwards(ax, axis.numbers, height)
    if len(keys) > 1:
        key(ax, [key_of(style, lined=True) for style in STYLES[: len(keys)]], keys, axis.keys)


def _name_edges(ax: Axes, cells: Sequence[Cell], inches: float) -> None:
    """The edges themselves, as many as find room."""
    edges = sorted(set(itertools.chain.from_iterable(ends for cell in cells if (ends := edges_of(cell.row)))))
    widest = max(map(width_of, map(number_text, edges))) + 0.15
    step = max(1, -(-round(widest * len(edges) * 100) // round(inches * 100)))
    shown = edges[::step]
    name_ticks(ax.xaxis, shown, list(map(number_text, shown)))
