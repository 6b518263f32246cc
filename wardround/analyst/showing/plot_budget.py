"""The budget over time as a picture: the filter's ε in steps, one for each charge, under the cap."""

from __future__ import annotations

from wardround.analyst.showing.interpretation import date_text, plural
from wardround.analyst.showing.svg import MARGIN, WIDTH, framed, label, ticks_around
from wardround.federation.question.answer import BudgetReport

LEFT, TOP, PLOT, FOOT = 70, 60, 260, 60
DATES = 4
_SHORTEST_SECONDS = 60.0
_DAY_SECONDS = 86_400.0


def budget_picture(report: BudgetReport) -> str:
    """The SVG text of a budget's history."""
    dates = [point.date for point in report.history] or [0.0]
    first, last = dates[0], max(dates[-1], dates[0] + _SHORTEST_SECONDS)
    ticks = ticks_around(0.0, max([report.cap.epsilon, *(point.epsilon for point in report.history)]))
    left, right, foot = LEFT, WIDTH - MARGIN, TOP + PLOT

    def x(date: float) -> float:
        return left + (date - first) / (last - first) * (right - left)

    def y(epsilon: float) -> float:
        return foot - epsilon / ticks[-1] * PLOT

    parts = [label(MARGIN, MARGIN, f"Study {report.study}: ε spent at δ = {report.cap.delta:.3g}", bold=True)]
    for tick in ticks:
        parts.append(f'<line x1="{left}" y1="{y(tick):.1f}" x2="{right}" y2="{y(tick):.1f}" stroke="#ddd"/>')
        parts.append(label(left - 8, y(tick) + 4, f"{tick:g}", small=True, end=True))
    for number in range(DATES if report.history else 0):
        date = first + (last - first) * number / (DATES - 1)
        # The outer dates lean inwards, where the picture is.
        inner, ends = 0 < number < DATES - 1, number == DATES - 1
        parts.append(label(x(date), foot + 16, _short(date, last - first), small=True, middle=inner, end=ends))
    cap = y(report.cap.epsilon)
    parts.append(
        f'<line x1="{left}" y1="{cap:.1f}" x2="{right}" y2="{cap:.1f}" stroke="#b23a48" stroke-dasharray="6 4"/>'
    )
    parts.append(label(right, cap - 6, f"cap {report.cap.epsilon:.4g}", small=True, end=True))
    # Every charge is a step up at its date, and nothing happens between two charges.
    path = f"M{left} {foot}" + "".join(f" H{x(point.date):.1f} V{y(point.epsilon):.1f}" for point in report.history)
    parts.append(f'<path d="{path} H{right}" fill="none" stroke="#1f6f8b" stroke-width="2"/>')
    charges = f"{report.events} {plural(report.events, 'charge')}; the filter's ε = {report.spent.epsilon:.4g}"
    parts.append(label(MARGIN, foot + 40, f"{charges} for the {report.unit} it costs most", small=True))
    return framed(parts, height=foot + FOOT)


def _short(date: float, span_seconds: float) -> str:
    day, time = date_text(date).removesuffix("Z").split("T")
    return day if span_seconds > DATES * _DAY_SECONDS else f"{day} {time[:5]}"
