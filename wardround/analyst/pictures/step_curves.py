"""Survival curves: shares that fall in steps inside their bands, all groups over each other, numbers at risk below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from wardround.analyst.pictures.lettering import NO_ESTIMATE, Size, across, number_ticks, number_ticks_at, upwards
from wardround.analyst.pictures.marks import STYLES, Style, key, key_of, unknown_key
from wardround.analyst.pictures.numbers_below import below_height, draw_below
from wardround.analyst.pictures.picture_words import AxisTitles, Cell, Interval, keys_of

_HEIGHT, _LOWEST = 3.6, 1.0
_ABOVE = 0.03

Point = tuple[float, Interval]


def time_of(row: str) -> float | None:
    """The time that a name says, or None."""
    try:
        return float(row)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class RowsBelow:
    """Numbers for the rows below a curve, and what they are."""

    heading: str = ""
    cells: Sequence[Cell] = ()


def steps_height(below: RowsBelow) -> float:
    """How many inches curves need, with the numbers below them."""
    return _HEIGHT + below_height(len(keys_of(below.cells)))


def draw_steps(
    ax: Axes, size: Size, cells: Sequence[Cell], axis: AxisTitles, told: dict[str, str], below: RowsBelow
) -> None:
    """A curve for each group; it ends, with a cross, where nothing is known any more. `told` is said in the key."""
    keys, lost = keys_of(cells), False
    for name, style in zip(keys, STYLES, strict=False):
        found = _points(cells, name)
        _draw_curve(ax, [point for point in found if point[1].value is not None], style)
        lost = _mark_end(ax, found, style) or lost
    times = [time for cell in cells if (time := time_of(cell.row)) is not None]
    low, high = axis.limits or (0.0, 1.0)
    ax.set_ylim(low, high + _ABOVE)
    ax.set_xlim(min(times, default=0.0), max(times, default=0.0) + (0.0 if len(set(times)) > 1 else 1.0))
    width, height = size[0], max(size[1] - below_height(len(keys_of(below.cells))), _LOWEST)
    number_ticks_at(ax.xaxis, width * 0.7, sorted(set(times)))
    number_ticks(ax.yaxis, height * 2.0)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    across(ax, axis.rows, width)
    upwards(ax, axis.numbers, height)
    draw_below(ax, below.heading, {name: _points(below.cells, name) for name in keys_of(below.cells)}, width * 0.7)
    names = [f"{name}: {told[name]}" if told.get(name) else name for name in keys]
    if len(keys) > 1 or lost:
        signs = [key_of(style, lined=True) for style in STYLES[: len(keys)]] if len(keys) > 1 else []
        shown = [*(names if len(keys) > 1 else []), *([f"{NO_ESTIMATE} from here on"] if lost else [])]
        key(ax, [*signs, *([unknown_key()] if lost else [])], shown, axis.keys if len(keys) > 1 else "")


def _points(cells: Sequence[Cell], name: str) -> list[Point]:
    """The numbers of a group, in the order of time."""
    found = [(time, cell.estimate) for cell in cells if cell.key == name and (time := time_of(cell.row)) is not None]
    return sorted(found, key=lambda point: point[0])


def _draw_curve(ax: Axes, points: Sequence[Point], style: Style) -> None:
    times = [time for time, _ in points]
    ax.plot(
        times,
        [each.value or 0.0 for _, each in points],
        drawstyle="steps-post",
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markerfacecolor=style.face,
        markersize=3.5,
        markevery=max(1, len(points) // 8),
        # The first and the last mark stand on the edge.
        clip_on=False,
    )
    ax.fill_between(
        times,
        [each.interval[0] for _, each in points],
        [each.interval[1] for _, each in points],
        step="post",
        color=style.colour,
        alpha=0.15,
        linewidth=0.0,
    )


def _mark_end(ax: Axes, found: Sequence[Point], style: Style) -> bool:
    """A cross at the first time of which nothing is known; whether there is one."""
    for number, (time, each) in enumerate(found):
        if each.value is None:
            last = found[number - 1][1].value if number else 0.0
            ax.plot([time], [last or 0.0], "x", color=style.colour, clip_on=False)
            return True
    return False
