"""Numbers along an axis: a histogram's bars, a survival curve's steps, a series by month, the budget over time.

Every number of an answer has its interval: whiskers on a bar, a band around a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from wardround.analyst.showing.interpretation import date_text, plural
from wardround.analyst.showing.presentation import ShownLine
from wardround.analyst.showing.text_tables import NO_ESTIMATE
from wardround.federation.plain_text import escaped
from wardround.federation.question.answer import BudgetReport

WIDTH, LABELS, MARGIN, ROW, HEAD, FOOT = 760, 190, 30, 22, 34, 30
TICKS = 5

LEFT, HEIGHT, TITLE, UNDER = 80, 220, 34, 46
MOST_NAMES = 8
FEWEST_MONTHS = 2
_MONTH = re.compile(r"\d{4}-\d{2}")
_FIRST_EDGE = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")

DATES = 4
_SHORTEST_SECONDS = 60.0
_DAY_SECONDS = 86_400.0


def framed(parts: Sequence[str], *, height: int) -> str:
    """The parts as one picture on white."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def ticks_around(low: float, high: float) -> list[float]:
    """Round numbers that enclose [low, high]; never fewer than two."""
    if not high > low:
        low, high = low - 1, high + 1
    raw = (high - low) / (TICKS - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def label(
    x: float, y: float, text: str, *, bold: bool = False, small: bool = False, middle: bool = False, end: bool = False
) -> str:
    """A line of text, escaped for people and for XML, anchored at its start unless told otherwise."""
    weight = ' font-weight="bold"' if bold else ""
    size = ' font-size="11" fill="#555"' if small else ""
    anchor = ' text-anchor="middle"' if middle else ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{weight}{size}{anchor}>{escape(escaped(text))}</text>'


def is_series(lines: Sequence[ShownLine]) -> bool:
    """Whether the first group column is the months of a series, none of them left out: a line would pass over it."""
    months = {str(line.estimate.group[0][1]) for line in lines if line.estimate.group}
    grouped = all(line.estimate.group for line in lines)
    if not grouped or len(months) < FEWEST_MONTHS or not all(_MONTH.fullmatch(month) for month in months):
        return False
    numbers = [12 * int(month[:4]) + int(month[5:]) for month in months]
    return max(numbers) - min(numbers) < len(months)


def bars(title: str, lines: Sequence[ShownLine], top: int) -> tuple[list[str], int]:
    """One bar for each interval."""
    frame = _Frame.around(lines, top, zero=True)
    width = (frame.right - LEFT) / len(lines)
    parts = frame.drawn(title)
    for number, line in enumerate(lines):
        estimate, x = line.estimate, LEFT + number * width
        if estimate.value is None:
            continue
        zero, high = frame.y(0.0), frame.y(estimate.value)
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{min(zero, high):.1f}" width="{max(width - 2, 0.5):.1f}" '
            f'height="{abs(zero - high):.1f}" fill="#9cc5d1"/>'
        )
        begins, ends = (frame.y(end) for end in estimate.interval)
        middle = x + width / 2
        parts.append(f'<line x1="{middle:.1f}" y1="{begins:.1f}" x2="{middle:.1f}" y2="{ends:.1f}" stroke="#1f6f8b"/>')
    names = [found[0] if (found := _FIRST_EDGE.search(line.estimate.term)) else line.estimate.term for line in lines]
    return [*parts, *frame.names(names, lambda number: LEFT + number * width)], frame.height


def steps(title: str, lines: Sequence[ShownLine], top: int) -> tuple[list[str], int]:
    """The share that is left after each time, falling in steps, with its band."""
    every = [(time, line) for line in lines if (time := _number(line.estimate.term)) is not None]
    times = ticks_around(min((time for time, _ in every), default=0.0), max((time for time, _ in every), default=1.0))
    # The curve ends where nothing is known any more.
    points = [(time, line) for time, line in every if line.estimate.value is not None]
    frame = _Frame.around([line for _, line in points], top, zero=True)

    def x(time: float) -> float:
        return LEFT + (time - times[0]) / (times[-1] - times[0]) * (frame.right - LEFT)

    def path(height: Callable[[ShownLine], float], *, back: bool = False) -> str:
        corners: list[str] = []
        before: float | None = None
        for time, line in points:
            if before is not None:
                corners.append(f"{x(time):.1f} {before:.1f}")
            before = frame.y(height(line))
            corners.append(f"{x(time):.1f} {before:.1f}")
        return " L".join(reversed(corners) if back else corners)

    parts = frame.drawn(title)
    if points:
        upper, lower = (
            path(lambda line: line.estimate.interval[1]),
            path(lambda line: line.estimate.interval[0], back=True),
        )
        parts.append(f'<path d="M{upper} L{lower} Z" fill="#d7e8ed"/>')
        curve = path(lambda line: line.estimate.value or 0.0)
        parts.append(f'<path d="M{curve}" fill="none" stroke="#1f6f8b" stroke-width="2"/>')
    if len(points) < len(every):
        begins = x(points[-1][0]) + 4 if points else LEFT + 4
        parts.append(label(begins, frame.foot - 6, NO_ESTIMATE, small=True))
    parts.extend(label(x(time), frame.foot + 16, f"{time:g}", small=True, middle=True) for time in times)
    return parts, frame.height


def series(title: str, lines: Sequence[ShownLine], top: int) -> tuple[list[str], int]:
    """A line through the months, with its band; broken where a month has no estimate."""
    ordered = sorted(lines, key=lambda line: str(line.estimate.group[0][1]))
    frame = _Frame.around(ordered, top, zero=False)
    width = (frame.right - LEFT) / max(len(ordered) - 1, 1)

    parts = frame.drawn(title)
    for piece in _unbroken(ordered):

        def points(height: Callable[[ShownLine], float], piece: Sequence[int] = piece) -> list[str]:
            return [f"{LEFT + number * width:.1f} {frame.y(height(ordered[number])):.1f}" for number in piece]

        upper, lower = points(lambda line: line.estimate.interval[1]), points(lambda line: line.estimate.interval[0])
        parts.append(f'<path d="M{" L".join([*upper, *reversed(lower)])} Z" fill="#d7e8ed"/>')
        curve = " L".join(points(lambda line: line.estimate.value or 0.0))
        parts.append(f'<path d="M{curve}" fill="none" stroke="#1f6f8b" stroke-width="2"/>')
    months = [str(line.estimate.group[0][1]) for line in ordered]
    return [*parts, *frame.names(months, lambda number: LEFT + number * width)], frame.height


def _unbroken(lines: Sequence[ShownLine]) -> list[list[int]]:
    """The places of numbers that are known, neighbours together."""
    pieces: list[list[int]] = []
    for number, line in enumerate(lines):
        if line.estimate.value is None:
            continue
        if pieces and pieces[-1][-1] == number - 1:
            pieces[-1].append(number)
        else:
            pieces.append([number])
    return pieces


@dataclass(frozen=True, slots=True)
class _Frame:
    """A panel with a vertical axis."""

    top: int
    ticks: tuple[float, ...]

    @classmethod
    def around(cls, lines: Sequence[ShownLine], top: int, *, zero: bool) -> _Frame:
        known = [(*each.interval, each.value) for line in lines if (each := line.estimate).value is not None]
        ends = [end for numbers in known for end in numbers if math.isfinite(end)]
        ends = [*ends, *([0.0] if zero or not ends else [])]
        return cls(top, tuple(ticks_around(min(ends), max(ends))))

    @property
    def right(self) -> int:
        return WIDTH - MARGIN

    @property
    def foot(self) -> int:
        return self.top + TITLE + HEIGHT

    @property
    def height(self) -> int:
        return TITLE + HEIGHT + UNDER

    def y(self, value: float) -> float:
        inside = min(max(value, self.ticks[0]), self.ticks[-1])
        return self.foot - (inside - self.ticks[0]) / (self.ticks[-1] - self.ticks[0]) * HEIGHT

    def drawn(self, title: str) -> list[str]:
        parts = [label(MARGIN, self.top + 12, title, bold=True)]
        for tick in self.ticks:
            y = self.y(tick)
            parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{self.right}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(label(LEFT - 8, y + 4, f"{tick:g}", small=True, end=True))
        return parts

    def names(self, names: Sequence[str], x: Callable[[int], float]) -> list[str]:
        """Some of the names under the axis, so many as fit."""
        every = max(1, -(-len(names) // MOST_NAMES))
        return [
            label(x(number), self.foot + 16, names[number][:16], small=True, middle=number > 0)
            for number in range(0, len(names), every)
        ]


def _number(term: str) -> float | None:
    try:
        return float(term)
    except ValueError:
        return None


def budget_picture(report: BudgetReport) -> str:
    """The SVG text of a budget's history."""
    dates = [point.date for point in report.history] or [0.0]
    first, last = dates[0], max(dates[-1], dates[0] + _SHORTEST_SECONDS)
    ticks = ticks_around(0.0, max([report.cap.epsilon, *(point.epsilon for point in report.history)]))
    left, right, foot, height = 70, WIDTH - MARGIN, 320, 260

    def x(date: float) -> float:
        return left + (date - first) / (last - first) * (right - left)

    def y(epsilon: float) -> float:
        return foot - epsilon / ticks[-1] * height

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
    return framed(parts, height=foot + 60)


def _short(date: float, span_seconds: float) -> str:
    day, time = date_text(date).removesuffix("Z").split("T")
    return day if span_seconds > DATES * _DAY_SECONDS else f"{day} {time[:5]}"
