"""How numbers are marked: a sign with its interval, and groups by shape and line too, so that they differ in grey."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from wardround.analyst.pictures.lettering import LINE_INCHES, NO_ESTIMATE, NORMAL, SMALL, plain, wrapped
from wardround.analyst.pictures.picture_words import Interval

LineStyle = Literal["-", "--", ":", "-."] | tuple[float, tuple[float, ...]]

MOST_KEYS = 6
"""How many groups one picture tells apart."""

LEGEND_INCHES = 1.5
_GREY = "0.45"
_UNKNOWN = "x"


@dataclass(frozen=True, slots=True)
class Style:
    """How the marks of one group look."""

    colour: str
    marker: str
    line: LineStyle
    hatch: str
    filled: bool = True

    @property
    def face(self) -> str:
        """The inside of a mark."""
        return self.colour if self.filled else "white"


STYLES = (
    Style("#1b4f72", "o", "-", ""),
    Style("#c0561a", "s", "--", "///", filled=False),
    Style("#3c7a2b", "^", ":", "..."),
    Style("#76448a", "D", "-.", "xxx", filled=False),
    Style("#3d3d3d", "v", (0.0, (6.0, 1.5, 1.0, 1.5, 1.0, 1.5)), "\\\\\\"),
    Style("#a67c00", "P", (0.0, (1.0, 3.0)), "+++", filled=False),
)


@dataclass(frozen=True, slots=True)
class PlacedNumber:
    """One number and its place on the other axis."""

    place: float
    estimate: Interval


def mark_across(ax: Axes, marks: Sequence[PlacedNumber], style: Style) -> None:
    """Numbers from left to right, each at its height; a word where there is none."""
    known = _known(marks)
    heights = [place for place, _, _ in known]
    ax.hlines(heights, [low for _, _, (low, _) in known], [high for _, _, (_, high) in known], colors=style.colour)
    _draw_signs(ax, [value for _, value, _ in known], heights, style)
    for place in _lost(marks):
        told = ax.text(0.01, place, f"× {NO_ESTIMATE}", transform=ax.get_yaxis_transform(), va="center")
        told.set(fontsize=SMALL, color=_GREY)


def mark_upwards(ax: Axes, marks: Sequence[PlacedNumber], style: Style) -> None:
    """Numbers upwards, each at its place; a cross at the foot where there is none."""
    known = _known(marks)
    places = [place for place, _, _ in known]
    ax.vlines(places, [low for _, _, (low, _) in known], [high for _, _, (_, high) in known], colors=style.colour)
    _draw_signs(ax, places, [value for _, value, _ in known], style)
    if lost := _lost(marks):
        ax.plot(lost, [0.03] * len(lost), _UNKNOWN, color=style.colour, transform=ax.get_xaxis_transform())


def join(ax: Axes, marks: Sequence[PlacedNumber], style: Style) -> None:
    """Lines between marks that follow each other, none over a place of which nothing is shown."""
    for (before, left, _), (after, right, _) in itertools.pairwise(_known(marks)):
        if round(after - before) == 1:
            ax.plot((before, after), (left, right), color=style.colour, linestyle=style.line, linewidth=1.3)


def _known(marks: Sequence[PlacedNumber]) -> list[tuple[float, float, tuple[float, float]]]:
    return [(m.place, m.estimate.value, m.estimate.interval) for m in marks if m.estimate.value is not None]


def _lost(marks: Sequence[PlacedNumber]) -> list[float]:
    return [mark.place for mark in marks if mark.estimate.value is None]


def _draw_signs(ax: Axes, across: Sequence[float], upwards: Sequence[float], style: Style) -> None:
    ax.plot(
        across,
        upwards,
        linestyle="none",
        marker=style.marker,
        color=style.colour,
        markerfacecolor=style.face,
        markersize=5.5,
    )


def key_of(style: Style, *, lined: bool) -> Line2D:
    """What stands for a group in the key."""
    found = Line2D([], [], color=style.colour, marker=style.marker, markerfacecolor=style.face)
    found.set_linestyle(style.line if lined else "none")
    return found


def unknown_key() -> Line2D:
    """What stands for no estimate in the key."""
    return Line2D([], [], color=_GREY, marker=_UNKNOWN, linestyle="none")


def key(ax: Axes, signs: Sequence[Artist], names: Sequence[str], heading: str = "") -> None:
    """The key: beside the picture where the figure is laid out anew, else inside where there is most room."""
    texts = [wrapped(name, LEGEND_INCHES, SMALL) for name in names]
    figure = ax.get_figure(root=True)
    beside = figure is not None and isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if beside else {"loc": "best"}
    found = ax.legend(list(signs), texts, fontsize=SMALL, frameon=False, handlelength=2.6, **place)
    found.set_title(wrapped(heading, LEGEND_INCHES, SMALL))
    for text in (*found.get_texts(), found.get_title()):
        plain(text)
        text.set_fontsize(SMALL)


def key_height(names: Sequence[str]) -> float:
    """How many inches a key with these names is high, its heading included."""
    lines = sum(1 + wrapped(name, LEGEND_INCHES, SMALL).count("\n") for name in names)
    return 0.4 + lines * LINE_INCHES * SMALL / NORMAL + 0.06 * len(names)
