"""Texts of a picture. Names are other people's: none is read as a formula, steers anything, or runs off the figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from wardround.federation.plain_text import escaped

Size = tuple[float, float]
"""Width and height of axes, in inches."""

NO_ESTIMATE = "no estimate"
NORMAL, SMALL, LARGE = 9.0, 8.0, 10.5
LINE_INCHES = 0.165
"""From one line of a name to the next."""

_POINTS_AN_INCH = 72.0
_WIDEST = 5.0
_MOST_TICKS, _FEWEST_TICKS = 7, 1


def number_text(number: float) -> str:
    """A number of an axis."""
    return f"{number:,.15g}" if abs(number) >= 1.0 or number == 0.0 else f"{number:.6g}"


def error_text(value: float, error: float | None) -> str:
    """A number with its error, to the digits that the error supports."""
    if not error:
        return f"{value:.4g}"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 12)
    return f"{value:,.{decimals}f} ± {error:,.{decimals}f}"


def width_of(text: str, points: float = NORMAL) -> float:
    """How many inches a line of text takes."""
    return sum(map(_advance, text)) * points / _POINTS_AN_INCH


@cache
def _advance(character: str) -> float:
    """How wide a letter is, in its own size; where the font lacks it a wide box is drawn."""
    font = get_font(findfont(FontProperties()))
    if ord(character) not in _letters():
        return 1.0
    font.set_size(_POINTS_AN_INCH, _POINTS_AN_INCH)
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / _POINTS_AN_INCH


@cache
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def wrapped(text: str, inches: float, points: float = NORMAL, *, most: int = 3) -> str:
    """The text escaped, in at most so many lines of this width, broken at blanks where there are some.

    Of a longer text the last line is its end: names of one list often differ there alone.
    """
    found: list[str] = []
    rest = escaped(text)
    while (end := _fitting(rest, inches, points)) < len(rest):
        if len(found) == most - 1:
            kept = _fitting(rest[::-1], inches - width_of("…", points), points)
            return "\n".join([*found, "…" + rest[len(rest) - kept :]])
        blank = rest.rfind(" ", end // 2, end + 1)
        cut = end if blank < 0 else blank + 1
        found.append(rest[:cut].rstrip())
        rest = rest[cut:]
    return "\n".join([*found, rest])


def _fitting(text: str, inches: float, points: float) -> int:
    """How many letters fit into a line, one at least."""
    left = inches
    for place, character in enumerate(text):
        left -= _advance(character) * points / _POINTS_AN_INCH
        if left < 0.0:
            return max(place, 1)
    return len(text)


def plain(text: Text) -> None:
    """Nothing in this text is a formula, whatever the reader's settings say."""
    text.set_parse_math(False)
    text.set_usetex(False)


def title(ax: Axes, inches: float, *lines: str) -> None:
    """What the picture is about, and below it what else must be known."""
    text = "\n".join(wrapped(line, inches, LARGE, most=4) for line in lines if line)
    plain(ax.set_title(text, loc="left", fontsize=LARGE))


def across(ax: Axes, text: str, inches: float) -> None:
    """The title of the axis from left to right, which is so many inches long."""
    plain(ax.set_xlabel(wrapped(text, min(_WIDEST, inches), most=4), fontsize=NORMAL))


def upwards(ax: Axes, text: str, inches: float) -> None:
    """The title of the axis upwards, which is so many inches long."""
    plain(ax.set_ylabel(wrapped(text, inches, most=4), fontsize=NORMAL))


def name_ticks(axis: Axis, places: Sequence[float], names: Sequence[str]) -> None:
    """Names, which are wrapped already, at places of an axis."""
    axis.set_ticks(list(places), list(names), fontsize=NORMAL)
    for tick in axis.get_major_ticks(len(places)):
        plain(tick.label1)


def number_ticks(axis: Axis, inches: float, *, known: bool = True) -> None:
    """Round numbers, as many as find room beside each other; none where no number is known."""
    if not known:
        axis.set_ticks([])
        return
    axis.set_major_formatter(FuncFormatter(lambda number, _: number_text(number)))
    axis.set_tick_params(labelsize=NORMAL)
    low, high = sorted(axis.get_view_interval())
    fitting = (each for each in range(_MOST_TICKS, _FEWEST_TICKS, -1) if _fit(_locator(each), low, high, inches))
    axis.set_major_locator(_locator(next(fitting, _FEWEST_TICKS)))


def number_ticks_at(axis: Axis, inches: float, places: Sequence[float]) -> None:
    """Round numbers where all of them are among these places, which ascend; else each second, third or later place."""
    number_ticks(axis, inches)
    low, high = sorted(axis.get_view_interval())
    if not {float(tick) for tick in axis.get_majorticklocs() if low <= tick <= high} <= set(places):
        fitting = (step for step in range(1, len(places)) if _are_apart(places[::step], high - low, inches))
        axis.set_ticks(list(places[:: next(fitting, len(places))]))


def _locator(number: int) -> MaxNLocator:
    return MaxNLocator(number, steps=[1, 2, 2.5, 5, 10])


def _fit(locator: MaxNLocator, low: float, high: float, inches: float) -> bool:
    """Whether the numbers that it chooses between two ends do not touch."""
    return _are_apart(
        [float(place) for place in locator.tick_values(low, high) if low <= place <= high], high - low, inches
    )


def _are_apart(places: Sequence[float], span: float, inches: float) -> bool:
    """Whether numbers at these places do not touch where so many inches are as long as `span`."""
    widest = max((width_of(number_text(place)) for place in places), default=0.0)
    gap = min((right - left for left, right in itertools.pairwise(places)), default=math.inf)
    return (widest + 0.15) * span <= inches * gap
