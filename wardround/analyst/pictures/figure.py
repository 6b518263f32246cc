"""A picture: panels below each other, what must be known first above them, and the small print below."""

from __future__ import annotations

import bisect
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from wardround.analyst.pictures.lettering import SMALL, Size, plain, title, wrapped
from wardround.federation.errors import Mistaken

WIDTH = 8.0
TALLEST = 150.0
"""A longer picture could not be written as PNG."""

_AXES_WIDTH, _TEXT_WIDTH = 6.2, 5.0
"""About, of a figure of our own: names beside the axes take up to a third of it."""

_AROUND, _TITLE_LINE, _NOTE_LINE = 0.85, 0.19, 0.15


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: its title, what is told below it, how high it is in inches, and who draws it."""

    title: str
    height: float
    draw: Callable[[Axes, Size], None]
    told: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels; `first` is a line above them, `note` the small print."""

    panels: tuple[Panel, ...]
    first: str
    note: str

    def draw(self, ax: object = None, *, of: str = "") -> Axes:
        """Draw one panel into axes of somebody's, or all of them into a figure of their own; returns the first axes."""
        chosen = self._chosen(of)
        if ax is None:
            return self._figure(chosen)
        if not isinstance(ax, Axes):
            raise Mistaken(
                "plot draws into matplotlib's Axes; to write a file, use plot().figure.savefig('picture.svg')."
            )
        if len(chosen) != 1:
            raise Mistaken(f"one Axes holds one picture; choose it by of=, which is {self._titles()}.")
        figure, extent = ax.get_figure(root=True), ax.get_window_extent()
        dpi = 100.0 if figure is None else figure.dpi
        # Names beside the axes may still take some of their width.
        self._draw(ax, (0.75 * extent.width / dpi, extent.height / dpi), chosen[0], first=True)
        return ax

    def _chosen(self, of: str) -> tuple[Panel, ...]:
        if not of:
            return self.panels
        chosen = tuple(panel for panel in self.panels if panel.title == of)
        if not chosen:
            raise Mistaken(f"there is no picture of {of!r}; of= is {self._titles()}.")
        return chosen

    def _titles(self) -> str:
        return " or ".join(repr(panel.title) for panel in self.panels)

    def _figure(self, panels: tuple[Panel, ...]) -> Axes:
        heights = list(itertools.accumulate(panel.height + _AROUND for panel in panels))
        drawn = panels[: max(bisect.bisect_right(heights, TALLEST), 1)]
        cut = f" The first {len(drawn)} of {len(panels)} pictures." if len(drawn) < len(panels) else ""
        note = wrapped(self.note + cut, WIDTH - 0.5, SMALL, most=8)
        lines = sum(2 + (wrapped(each.told, _TEXT_WIDTH).count("\n") + 1 if each.told else 0) for each in drawn)
        above = 0.0 if not self.first else _TITLE_LINE * (1 + wrapped(self.first, _TEXT_WIDTH).count("\n"))
        whole = heights[len(drawn) - 1] + _TITLE_LINE * lines + above + _NOTE_LINE * (note.count("\n") + 2)
        figure = _new_figure(whole)
        found = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=[panel.height for panel in drawn])
        for number, (ax, panel) in enumerate(zip(found[:, 0], drawn, strict=True)):
            self._draw(ax, (_AXES_WIDTH, panel.height), panel, first=number == 0)
        plain(figure.supxlabel(note, fontsize=SMALL, color="0.35", x=0.02, ha="left"))
        beginning: Axes = found[0, 0]
        return beginning

    def _draw(self, ax: Axes, size: Size, panel: Panel, *, first: bool) -> None:
        panel.draw(ax, size)
        ax.spines[["top", "right"]].set_visible(False)
        title(ax, min(_TEXT_WIDTH, size[0]), *([self.first] if first and self.first else []), panel.title, panel.told)


def _new_figure(height: float) -> Figure:
    """A figure that needs no display; by pyplot where that is in use, because a notebook shows what pyplot made."""
    size = (WIDTH, height)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    if "matplotlib.pyplot" in sys.modules or "inline" in os.environ.get("MPLBACKEND", ""):
        import matplotlib.pyplot as plt  # noqa: PLC0415 - chooses a backend when it is loaded

        return plt.figure(figsize=size, layout=layout)
    return Figure(figsize=size, layout=layout)
