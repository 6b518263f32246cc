"""The budget as a picture: what was spent over time, at each hospital, and by each way of adding it up."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from wardround.analyst.pictures.figure import Panel, Picture
from wardround.analyst.pictures.lettering import (
    SMALL,
    Size,
    across,
    name_ticks,
    number_ticks,
    upwards,
    wrapped,
)
from wardround.analyst.pictures.marks import STYLES, key
from wardround.analyst.pictures.picture_words import cut_text
from wardround.analyst.pictures.points import MOST_ROWS, NAME_INCHES
from wardround.federation.question.study_budget import BudgetReport, SiteBudget, Statement

_OVER_TIME, _ROW, _LOWEST = 2.8, 0.28, 1.0
_SHORTEST_SECONDS, _HOUR_SECONDS = 0.5, 3600.0
_BAR = 0.6
_MOST_DATES = 5


def budget_picture(report: BudgetReport) -> Picture:
    """Over time; by hospital; and by the accountants that the report has."""
    spent = f"ε spent [at δ = {report.cap.delta:.2g}]"
    panels = [Panel("Budget over time", _OVER_TIME, partial(_draw_history, report=report, spent=spent))]
    if sites := report.sites[:MOST_ROWS]:
        draw = partial(_draw_sites, sites=sites, spent=spent)
        told = cut_text(len(sites), len(report.sites), "hospitals")
        panels.append(Panel("Budget by hospital", max(_ROW * len(sites), _LOWEST), draw, told))
    if report.statements:
        height = max(_ROW * len(report.statements), _LOWEST)
        draw = partial(_draw_statements, statements=report.statements, spent=spent)
        panels.append(Panel("The same charges by each way of adding them up", height, draw))
    charges = "charge" if report.events == 1 else "charges"
    share = f"ε = {report.spent.epsilon:.4g} of {report.cap.epsilon:.4g} at δ = {report.cap.delta:.2g}"
    return Picture(tuple(panels), "", f"Study {report.study}: {share} is spent, over {report.events} {charges}.")


def _draw_history(ax: Axes, size: Size, report: BudgetReport, spent: str) -> None:
    """A step up at each charge, below the cap."""
    dates = [point.date for point in report.history]
    style = STYLES[0]
    (line,) = ax.plot(
        dates,
        [point.epsilon for point in report.history],
        drawstyle="steps-post",
        marker=style.marker,
        markersize=4.0,
        color=style.colour,
    )
    cap = ax.axhline(report.cap.epsilon, color="0.3", linestyle="--", linewidth=1.2)
    width, height = size
    ax.set_ylim(0.0, report.cap.epsilon * 1.08)
    number_ticks(ax.yaxis, height * 2.0)
    across(ax, "date [UTC]", width)
    upwards(ax, spent, height)
    key(ax, [line, cap], ["after each charge", f"cap: {report.cap.epsilon:.4g}"])
    if not dates:
        ax.set_xticks([])
        across(ax, "date [UTC]: nothing was charged yet", width)
        return
    span = dates[-1] - dates[0]
    margin = max(span * 0.05, _SHORTEST_SECONDS)
    ax.set_xlim(dates[0] - margin, dates[-1] + margin)
    number = min(_MOST_DATES, max(2, int(width))) if span > _SHORTEST_SECONDS else 1
    places = [dates[0] + span * place / max(number - 1, 1) for place in range(number)]
    time = "%H:%M" if span > _HOUR_SECONDS else "%H:%M:%S"
    name_ticks(ax.xaxis, places, [f"{_moment(place):%Y-%m-%d}\n{_moment(place):{time}}" for place in places])


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _draw_sites(ax: Axes, size: Size, sites: Sequence[SiteBudget], spent: str) -> None:
    """A bar for each hospital; one that is frozen is hatched."""
    for place, site in enumerate(sites):
        hatch = "///" if site.frozen else None
        ax.barh(place, site.spent.epsilon, _BAR, color="#9fc3d6", edgecolor="#1b4f72", hatch=hatch)
    names = [f"{site.name} (frozen)" if site.frozen else site.name for site in sites]
    _finish(ax, size, names, spent, "hospital")


def _draw_statements(ax: Axes, size: Size, statements: Sequence[Statement], spent: str) -> None:
    """A sign for each way of adding up; those that are guarantees are filled."""
    for place, each in enumerate(statements):
        if not math.isfinite(each.epsilon):
            ax.text(
                0.01, place, "× none", transform=ax.get_yaxis_transform(), va="center", fontsize=SMALL, color="0.45"
            )
            continue
        face = "#1b4f72" if each.guarantee else "white"
        ax.plot([each.epsilon], [place], "o" if each.guarantee else "s", color="#1b4f72", markerfacecolor=face)
    names = [f"{each.name} ({'guarantee' if each.guarantee else 'description'})" for each in statements]
    _finish(ax, size, names, spent, "way of adding up")


def _finish(ax: Axes, size: Size, names: Sequence[str], spent: str, rows: str) -> None:
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(left=0.0)
    ax.margins(x=0.06)
    width, height = size
    number_ticks(ax.xaxis, width * 0.75)
    name_ticks(ax.yaxis, range(len(names)), [wrapped(name, NAME_INCHES, most=1) for name in names])
    across(ax, spent, width)
    upwards(ax, rows, height)
