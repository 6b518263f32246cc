"""An answer as a picture: one panel for each aggregate, one line for each group, with its interval.

Plain SVG text, so that it needs no library and can be read, searched and diffed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from wardround.federation.answer import Answer, Estimate
from wardround.federation.errors import ConfigurationMistaken, Mistaken
from wardround.federation.query import Aggregate, Statistic
from wardround.federation.wording import aggregate_text

WIDTH, LABELS, MARGIN, ROW, HEAD, FOOT = 760, 190, 30, 22, 34, 30
MOST_ROWS = 500
TICKS = 5


def write_picture(svg: str, path: Path) -> None:
    """Write a picture to an .svg file."""
    if path.suffix.lower() != ".svg":
        msg = f"--plot writes SVG; name a file ending in .svg instead of {path.name!r}."
        raise Mistaken(msg)
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError:
        msg = f"{path} cannot be written; name a file in a folder that exists and is yours."
        raise ConfigurationMistaken(msg) from None


def picture(answer: Answer) -> str:
    """The SVG text of an answer."""
    panels: dict[str, list[Estimate]] = {}
    for estimate in answer.estimates[:MOST_ROWS]:
        name = aggregate_text(Aggregate(Statistic(estimate.statistic), estimate.column))
        panels.setdefault(name, []).append(estimate)
    parts: list[str] = []
    top = MARGIN
    for name, estimates in panels.items():
        parts.extend(_panel(name, estimates, top))
        top += HEAD + ROW * len(estimates) + FOOT
    sites = (
        f"{len(answer.answered)} site(s) answered; bars are {answer.estimates[0].confidence:.0%} intervals of the noise"
    )
    parts.append(label(MARGIN, top, sites if not answer.noiseless else "no noise: a simulation", small=True))
    return framed(parts, height=top + MARGIN)


def framed(parts: Sequence[str], *, height: int) -> str:
    """The parts as one picture on white."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _panel(name: str, estimates: Sequence[Estimate], top: int) -> list[str]:
    low = min(estimate.interval[0] for estimate in estimates)
    high = max(estimate.interval[1] for estimate in estimates)
    ticks = ticks_around(low, high)
    left, right = LABELS, WIDTH - MARGIN

    def x(value: float) -> float:
        return left + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (right - left)

    foot = top + HEAD + ROW * len(estimates)
    parts = [label(MARGIN, top + 12, name, bold=True)]
    for tick in ticks:
        parts.append(f'<line x1="{x(tick):.1f}" y1="{top + HEAD - 8}" x2="{x(tick):.1f}" y2="{foot}" stroke="#ddd"/>')
        parts.append(label(x(tick), foot + 14, f"{tick:g}", small=True, middle=True))
    for number, estimate in enumerate(estimates):
        y = top + HEAD + ROW * number + ROW / 2
        group = ", ".join(str(value) for _, value in estimate.group) or "all"
        begins, ends = (x(end) for end in estimate.interval)
        parts.append(label(left - 10, y + 4, group[:28], end=True))
        parts.append(f'<line x1="{begins:.1f}" y1="{y}" x2="{ends:.1f}" y2="{y}" stroke="#1f6f8b" stroke-width="2"/>')
        parts.append(f'<circle cx="{x(estimate.value):.1f}" cy="{y}" r="4" fill="#1f6f8b"/>')
    return parts


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
    """A line of text, anchored at its start unless told otherwise."""
    weight = ' font-weight="bold"' if bold else ""
    size = ' font-size="11" fill="#555"' if small else ""
    anchor = ' text-anchor="middle"' if middle else ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{weight}{size}{anchor}>{escape(text)}</text>'
