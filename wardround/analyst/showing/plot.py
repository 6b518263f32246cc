"""An answer as a picture: one panel for each aggregate, with its intervals.

Numbers of groups are rows; a histogram is bars, a survival curve steps with a band, a series by month a line with a
band. Plain SVG text, so that it needs no library and can be read, searched and diffed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from wardround.analyst.showing.plot_series import (
    FOOT,
    HEAD,
    LABELS,
    MARGIN,
    ROW,
    WIDTH,
    bars,
    framed,
    is_series,
    label,
    series,
    steps,
    ticks_around,
)
from wardround.analyst.showing.presentation import ShownLine, statistic_label
from wardround.analyst.showing.text_tables import NO_ESTIMATE, value_text
from wardround.federation.errors import ConfigurationMistaken, Mistaken
from wardround.federation.forms.definition import Definition, Drawing
from wardround.federation.question.answer import Answer
from wardround.federation.question.query import Statistic
from wardround.federation.statistics import find

MOST_ROWS = 500


def check_place(path: Path) -> None:
    """Refuse where no picture can be written; asked before a question is paid for."""
    if path.suffix.lower() != ".svg":
        raise Mistaken(f"--plot writes SVG; name a file ending in .svg instead of {path.name!r}.")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(path)


def write_picture(svg: str, path: Path) -> None:
    """Write a picture to an .svg file."""
    check_place(path)
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError:
        raise _unwritable(path) from None


def _unwritable(path: Path) -> ConfigurationMistaken:
    return ConfigurationMistaken(f"{path} cannot be written; name a file in a folder that exists and is yours.")


def picture(answer: Answer, lines: Sequence[ShownLine] | None = None) -> str:
    """The SVG text of an answer, or of those of its lines that are shown."""
    if lines is None:
        lines = [ShownLine(statistic_label(each.statistic, each.column), "", each) for each in answer.estimates]
    panels: dict[str, list[ShownLine]] = {}
    for line in lines[:MOST_ROWS]:
        panels.setdefault(_title(line), []).append(line)
    parts: list[str] = []
    top = MARGIN
    for name, found in panels.items():
        for title, group in _panels(name, found):
            drawn, height = _panel(title, group, top)
            parts.extend(drawn)
            top += height
    parts.append(label(MARGIN, top, _foot(answer, lines), small=True))
    return framed(parts, height=top + MARGIN)


def _title(line: ShownLine) -> str:
    """What a panel is about; some numbers of a column are seen best beside each other."""
    beside = "" if line.name else _definition(line).beside
    return f"{beside} of {line.estimate.column}" if beside else line.label


def _definition(line: ShownLine) -> Definition:
    return find(Statistic(line.estimate.statistic))


def _foot(answer: Answer, lines: Sequence[ShownLine]) -> str:
    if answer.noiseless:
        return "no noise: a simulation"
    if not lines:
        return "nothing to show"
    of = "the noise and the sample" if all(line.estimate.sampling for line in lines) else "the noise"
    cut = f"; the first {MOST_ROWS} of {len(lines)} numbers" if len(lines) > MOST_ROWS else ""
    confidence = f"{lines[0].estimate.confidence:.0%}"
    sites = "1 site" if len(answer.answered) == 1 else f"{len(answer.answered)} sites"
    unknown = sum(line.estimate.value is None for line in lines)
    gaps = f"; {unknown} of {len(lines)} have no estimate" if unknown else ""
    return f"{sites} answered; bars and bands are {confidence} intervals of {of}{cut}{gaps}"


def _panels(name: str, lines: Sequence[ShownLine]) -> list[tuple[str, list[ShownLine]]]:
    """A curve for each group, and for each group beside the months of a series; all other numbers in one panel."""
    curve = _definition(lines[0]).drawing is not Drawing.ROWS
    months = is_series(lines)
    if not curve and not months:
        return [(name, list(lines))]
    found: dict[str, list[ShownLine]] = {}
    for line in lines:
        own = line.estimate.group if curve else line.estimate.group[1:]
        title = ", ".join([name, *(value_text(value) for _, value in own)])
        found.setdefault(title, []).append(line)
    return list(found.items())


def _panel(title: str, lines: Sequence[ShownLine], top: int) -> tuple[list[str], int]:
    drawing = _definition(lines[0]).drawing
    match drawing:
        case Drawing.BARS:
            return bars(title, lines, top)
        case Drawing.STEPS:
            return steps(title, lines, top)
        case Drawing.ROWS:
            return series(title, lines, top) if is_series(lines) else _rows(title, lines, top)
        case _:
            assert_never(drawing)


def _rows(name: str, lines: Sequence[ShownLine], top: int) -> tuple[list[str], int]:
    known = [line.estimate for line in lines if line.estimate.value is not None]
    finite = [end for estimate in known for end in estimate.interval if math.isfinite(end)] or [0.0]
    ticks = ticks_around(min(finite), max(finite))
    left, right = LABELS, WIDTH - MARGIN

    def x(value: float) -> float:
        inside = min(max(value, ticks[0]), ticks[-1])
        return left + (inside - ticks[0]) / (ticks[-1] - ticks[0]) * (right - left)

    foot = top + HEAD + ROW * len(lines)
    parts = [label(MARGIN, top + 12, name, bold=True)]
    for tick in ticks:
        parts.append(f'<line x1="{x(tick):.1f}" y1="{top + HEAD - 8}" x2="{x(tick):.1f}" y2="{foot}" stroke="#ddd"/>')
        parts.append(label(x(tick), foot + 14, f"{tick:g}", small=True, middle=True))
    for number, line in enumerate(lines):
        estimate = line.estimate
        y = top + HEAD + ROW * number + ROW / 2
        paired = _definition(line).pairs
        names = [*(value_text(value) for _, value in estimate.group), *([estimate.column or ""] if paired else [])]
        names += [estimate.term] if estimate.term else []
        parts.append(label(left - 10, y + 4, (", ".join(names) or "all")[:28], end=True))
        if estimate.value is None:
            parts.append(label(left + 4, y + 4, NO_ESTIMATE, small=True))
            continue
        begins, ends = (x(end) for end in estimate.interval)
        parts.append(f'<line x1="{begins:.1f}" y1="{y}" x2="{ends:.1f}" y2="{y}" stroke="#1f6f8b" stroke-width="2"/>')
        parts.append(f'<circle cx="{x(estimate.value):.1f}" cy="{y}" r="4" fill="#1f6f8b"/>')
    return parts, HEAD + ROW * len(lines) + FOOT
