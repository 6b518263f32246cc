"""Numbers in rows below the axis of a picture, each under its tick: who is still at risk at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.text import Annotation

from wardround.analyst.pictures.lettering import LINE_INCHES, NORMAL, SMALL, plain, width_of, wrapped
from wardround.analyst.pictures.marks import STYLES
from wardround.analyst.pictures.picture_words import Interval

NumbersBelow = Mapping[str, Sequence[tuple[float, Interval]]]
"""By group the number at each place of the axis, from left to right."""

_LINE = LINE_INCHES * SMALL / NORMAL
_ABOVE, _GAP = 0.06, 0.15
_NAME_INCHES = 1.0
_UNKNOWN = "×"
_POINTS_AN_INCH = 72.0


def below_height(groups: int) -> float:
    """How many inches the rows of so many groups need, and the line over them."""
    return _ABOVE + _LINE * (groups + 1) if groups else 0.0


def draw_below(ax: Axes, heading: str, numbers: NumbersBelow, inches: float) -> None:
    """A row for each group below the axis's title, at as many ticks of `inches` of axis as leave room between numbers.

    Between two places the number is the later one's. A figure that nobody lays out has no room below its axes.
    """
    figure = ax.get_figure(root=True)
    if not numbers or figure is None or figure.get_layout_engine() is None:
        return
    low, high = ax.get_xlim()
    ticks = [float(tick) for tick in ax.get_xticks() if low <= tick <= high]
    rows = {name: [_text(own, tick) for tick in ticks] for name, own in numbers.items()}
    widest = max((width_of(text, SMALL) for row in rows.values() for text in row), default=0.0)
    apart = min((right - left for left, right in itertools.pairwise(ticks)), default=high - low)
    step = max(1, math.ceil((widest + _GAP) * (high - low) / (inches * apart)))
    _place(ax, f"{heading}{_error_text(numbers)}", (low, 0), 0, "left")
    for line, ((name, row), style) in enumerate(zip(rows.items(), STYLES, strict=False), 1):
        called = wrapped(name, _NAME_INCHES, SMALL, most=1)
        _place(ax, called, (low, -widest / 2 - _GAP), line, "right").set_color(style.colour)
        for tick, text in list(zip(ticks, row, strict=True))[::step]:
            _place(ax, text, (tick, 0), line, "center")


def _text(own: Sequence[tuple[float, Interval]], tick: float) -> str:
    """The number of the first place that is not before the tick."""
    found = next((each for place, each in own if place >= tick), None)
    if found is None:
        return ""
    return _UNKNOWN if found.value is None else f"{found.value:,.0f}"


def _error_text(numbers: NumbersBelow) -> str:
    """How large the error is anywhere, rounded upwards: numbers below each other have no room for one each."""
    largest = max((each.standard_error or 0.0 for own in numbers.values() for _, each in own), default=0.0)
    return f" (± {math.ceil(largest):,} at most)" if largest else ""


def _place(ax: Axes, text: str, place: tuple[float, float], line: int, side: str) -> Annotation:
    """A text below the title of the axis, at a place along it and so many inches beside."""
    along, beside = place
    down = _ABOVE + _LINE * line
    found = ax.annotate(
        text,
        (along, 0.0),
        (beside * _POINTS_AN_INCH, -down * _POINTS_AN_INCH),
        xycoords=("data", ax.xaxis.label),
        textcoords="offset points",
        ha=side,
        va="top",
        fontsize=SMALL,
        annotation_clip=False,
    )
    plain(found)
    return found
