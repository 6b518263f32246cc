"""A model as a picture: its coefficients, and how it does on held-out patients, from the table that was released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from wardround.analyst.estimation.fitted import Coefficient, Fitted, Metric, ScoreTable
from wardround.analyst.estimation.inference import INTERCEPT
from wardround.analyst.estimation.score_curves import CurvePoint, calibration, receiver_operating
from wardround.analyst.pictures.figure import Panel, Picture
from wardround.analyst.pictures.lettering import NO_ESTIMATE, SMALL, Size, across, error_text, number_ticks, upwards
from wardround.analyst.pictures.marks import STYLES
from wardround.analyst.pictures.picture_words import AxisTitles, Cell, ColumnWords
from wardround.analyst.pictures.points import draw_points, points_height

_SQUARE = 3.6
_SURE = 1.959963984540054


@dataclass(frozen=True, slots=True)
class ModelWords:
    """What is said around a model's numbers: its target, units, who is missing, and the price."""

    target: str
    columns: ColumnWords
    first: str
    note: str


def model_picture(fitted: Fitted, words: ModelWords) -> Picture:
    """Coefficients, and for an outcome of yes or no calibration and the ROC curve."""
    told = "; ".join(_metric_text(each) for each in fitted.metrics)
    panels: list[Panel] = []
    if any(each.name != INTERCEPT for each in fitted.coefficients):
        panels.append(_coefficients(fitted.coefficients, words, told))
    if fitted.scores is not None:
        panels.append(_scores("Calibration", fitted.scores, words.target, fitted.metrics))
        panels.append(_scores("ROC", fitted.scores, words.target, fitted.metrics))
    if not panels:
        panels.append(_measures(fitted.metrics))
    return Picture(tuple(panels), words.first, words.note)


def _coefficients(found: Sequence[Coefficient], words: ModelWords, told: str) -> Panel:
    """What one more unit of each column adds; the intercept stands elsewhere and would hide the others."""
    cells = [Cell(words.columns.titled(each.name), "", each) for each in found if each.name != INTERCEPT]
    axis = AxisTitles(f"added to the score of {words.target} by one more unit", "column")
    draw = partial(draw_points, cells=cells, axis=axis, nought=True)
    return Panel("Coefficients", points_height(cells, axis), draw, told)


def _measures(metrics: Sequence[Metric]) -> Panel:
    """A model that has nothing else to draw."""
    cells = [Cell(each.name, "", _measured(each)) for each in metrics]
    axis = AxisTitles("value", "measure")
    return Panel("On held-out patients", points_height(cells, axis), partial(draw_points, cells=cells, axis=axis))


def _scores(name: str, table: ScoreTable, target: str, metrics: Sequence[Metric]) -> Panel:
    told = "; ".join(_metric_text(each) for each in metrics if each.name == {"ROC": "auc"}.get(name, "calibration"))
    draw = _draw_roc if name == "ROC" else _draw_calibration
    return Panel(name, _SQUARE, partial(draw, table=table, target=target), told)


def _draw_calibration(ax: Axes, size: Size, table: ScoreTable, target: str) -> None:
    """Points on the diagonal are predictions that come true as often as they say."""
    _draw_points(ax, calibration(table))
    _finish(ax, size, f"predicted chance of {target}", f"share of held-out patients with {target}")


def _draw_roc(ax: Axes, size: Size, table: ScoreTable, target: str) -> None:
    """The farther above the diagonal, the better patients are told apart."""
    found = receiver_operating(table)
    if not found:
        ax.text(0.5, 0.5, f"× {NO_ESTIMATE}", ha="center", va="center", fontsize=SMALL, color="0.45")
    style = STYLES[0]
    ax.plot([each.across for each in found], [each.value or 0.0 for each in found], color=style.colour)
    _draw_points(ax, found[4:-1:4])
    _finish(ax, size, f"share above a cut, of those without {target}", f"share above it, of those with {target}")


def _draw_points(ax: Axes, points: Sequence[CurvePoint]) -> None:
    style = STYLES[0]
    known = [(each, each.value) for each in points if each.value is not None]
    places = [each.across for each, _ in known]
    ax.vlines(places, [each.ends[0] for each, _ in known], [each.ends[1] for each, _ in known], colors=style.colour)
    ax.hlines(
        [value for _, value in known],
        [each.across_ends[0] for each, _ in known],
        [each.across_ends[1] for each, _ in known],
        colors=style.colour,
        linewidth=0.8,
    )
    ax.plot(places, [value for _, value in known], style.marker, color=style.colour, markersize=5.0)
    lost = [each.across for each in points if each.value is None]
    if lost:
        ax.plot(lost, [0.03] * len(lost), "x", color="0.45")


def _finish(ax: Axes, size: Size, across_title: str, upwards_title: str) -> None:
    ax.plot((0.0, 1.0), (0.0, 1.0), color="0.6", linestyle="--", linewidth=0.8, zorder=0)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    width, height = size
    number_ticks(ax.xaxis, width * 0.7)
    number_ticks(ax.yaxis, height * 2.0)
    across(ax, across_title, width)
    upwards(ax, upwards_title, height)


def _metric_text(metric: Metric) -> str:
    known = metric.value is not None
    return f"{metric.name} {error_text(metric.value or 0.0, metric.standard_error) if known else NO_ESTIMATE}"


@dataclass(frozen=True, slots=True)
class _Measured:
    value: float | None
    standard_error: float | None
    interval: tuple[float, float]


def _measured(metric: Metric) -> _Measured:
    value, error = metric.value or 0.0, metric.standard_error or 0.0
    return _Measured(metric.value, metric.standard_error, (value - _SURE * error, value + _SURE * error))
