"""The few strokes that pictures are made of: a frame, a line of text, round numbers for an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from wardround.federation.plain_text import escaped

WIDTH, LABELS, MARGIN, ROW, HEAD, FOOT = 760, 190, 30, 22, 34, 30
TICKS = 5


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
