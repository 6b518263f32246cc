"""Numbers along an order, such as months or intervals of a column: joined by lines, broken where nothing is known."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from wardround.analyst.pictures.lettering import (
    NO_ESTIMATE,
    Size,
    across,
    name_ticks,
    number_ticks,
    upwards,
    width_of,
)
from wardround.analyst.pictures.marks import STYLES, PlacedNumber, join, key, key_of, mark_upwards, unknown_key
from wardround.analyst.pictures.picture_words import AxisTitles, Cell, any_known, keys_of
from wardround.federation.plain_text import escaped

HEIGHT = 3.2
_WIDEST_NAME = 1.3
_FEWEST = 2
_SPREAD = 0.3


def is_series(cells: Sequence[Cell]) -> bool:
    """Whether rows follow each other in an order, and their names find room below an axis."""
    ranks = {cell.rank for cell in cells}
    return len(ranks) >= _FEWEST and None not in ranks and all(width_of(escaped(c.row)) <= _WIDEST_NAME for c in cells)


def draw_series(ax: Axes, size: Size, cells: Sequence[Cell], axis: AxisTitles) -> None:
    """A line for each group."""
    keys = keys_of(cells)
    ranked = sorted({(cell.rank or 0, cell.row) for cell in cells})
    first = ranked[0][0]
    for number, (name, style) in enumerate(zip(keys, STYLES, strict=False)):
        shift = 0.0 if len(keys) == 1 else _SPREAD * (number / (len(keys) - 1) - 0.5)
        own = sorted((cell for cell in cells if cell.key == name), key=lambda cell: cell.rank or 0)
        marks = [PlacedNumber((cell.rank or 0) - first + shift, cell.estimate) for cell in own]
        mark_upwards(ax, marks, style)
        join(ax, marks, style)
    ax.margins(y=0.08)
    ax.set_xlim(-0.6, ranked[-1][0] - first + 0.6)
    width, height = size
    number_ticks(ax.yaxis, height * 2.0, known=any_known(cells))
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    _name_places(ax, [(rank - first, escaped(row)) for rank, row in ranked], width * 0.7)
    across(ax, axis.rows, width)
    upwards(ax, axis.numbers, height)
    lost = any(cell.estimate.value is None for cell in cells)
    if len(keys) > 1 or lost:
        signs = [key_of(style, lined=True) for style in STYLES[: len(keys)]] if len(keys) > 1 else []
        names = [*(keys if len(keys) > 1 else []), *([NO_ESTIMATE] if lost else [])]
        key(ax, [*signs, *([unknown_key()] if lost else [])], names, axis.keys if len(keys) > 1 else "")


def _name_places(ax: Axes, names: Sequence[tuple[int, str]], inches: float) -> None:
    """As many names as find room beside each other."""
    widest = max(width_of(name) for _, name in names) + 0.15
    places = names[-1][0] + 1
    step = max(1, -(-round(widest * places * 100) // round(inches * 100)))
    shown = [(place, name) for place, name in names if place % step == 0]
    name_ticks(ax.xaxis, [place for place, _ in shown], [name for _, name in shown])
