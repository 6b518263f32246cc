"""An answer as a picture: which of its numbers stand together, and which kind of picture they are.

What a statistic looks like stands in its own definition; nothing here knows one by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from matplotlib.axes import Axes

from wardround.analyst.pictures import bars, series
from wardround.analyst.pictures.bars import draw_bars, edges_of
from wardround.analyst.pictures.figure import Panel, Picture
from wardround.analyst.pictures.lettering import NO_ESTIMATE, Size, error_text
from wardround.analyst.pictures.marks import MOST_KEYS
from wardround.analyst.pictures.picture_words import (
    AxisTitles,
    Cell,
    ColumnWords,
    ShownEstimate,
    cut_text,
    keys_of,
    price_text,
    rows_of,
    without_text,
)
from wardround.analyst.pictures.points import MOST_ROWS, draw_points, points_height
from wardround.analyst.pictures.series import draw_series, is_series
from wardround.analyst.pictures.step_curves import RowsBelow, draw_steps, steps_height
from wardround.analyst.pictures.table import draw_table, table_height
from wardround.analyst.tables.text_tables import value_text
from wardround.federation.forms.definition import Definition, Drawing, MeasuredIn
from wardround.federation.question.answer import Answer, Estimate
from wardround.federation.question.query import Statistic
from wardround.federation.statistics import find
from wardround.federation.study.study import Unit
from wardround.privacy.mechanisms.private_selection import Choosing

WHOLE = "whole cohort"
_RECORDS = {Unit.PATIENT: "patients", Unit.EVENT: "events"}


def answer_picture(answer: Answer, lines: Sequence[ShownEstimate], columns: ColumnWords) -> Picture:
    """The lines that are shown, aggregate by aggregate."""
    panels = tuple(panel for name, found in _together(lines) for panel in _panels(name, found, answer, columns))
    first = without_text(missing=answer.missing, refused=dict(answer.refused), left_out=answer.left_out)
    if answer.lacking_patients is not None:
        first += f": {answer.lacking_patients} of {answer.asked_patients} declared patients are missing"
    return Picture(panels or (Panel("nothing to show", 1.0, _draw_nothing),), first, _note(answer, lines))


def _together(lines: Sequence[ShownEstimate]) -> list[tuple[str, list[ShownEstimate]]]:
    """Lines of one panel: those of an aggregate, or of all that are seen best beside each other."""
    if lines and _definition(lines[0]).drawing is Drawing.TABLE:
        return [(lines[0].label, list(lines))]
    found: dict[str, list[ShownEstimate]] = {}
    for line in lines:
        beside = "" if line.name else _definition(line).beside
        found.setdefault(f"{beside} of {line.estimate.column}" if beside else line.label, []).append(line)
    # A single one keeps the name that its aggregate has.
    return [(some[0].label if len({line.label for line in some}) == 1 else name, some) for name, some in found.items()]


def _panels(name: str, lines: Sequence[ShownEstimate], answer: Answer, columns: ColumnWords) -> list[Panel]:
    definition, first = _definition(lines[0]), lines[0].estimate
    numbers = _numbers_title(name, definition, first, answer, columns)
    match definition.drawing:
        case Drawing.TABLE:
            return [_table(name, lines, answer)]
        case Drawing.STEPS:
            axis = AxisTitles(
                numbers, columns.titled(first.column or ""), _columns_title(lines, columns), definition.limits
            )
            return _steps(name, lines, axis)
        case Drawing.BARS if all(edges_of(line.estimate.term) for line in lines):
            axis = AxisTitles(numbers, columns.titled(first.column or ""), _columns_title(lines, columns))
            cells, _ = _by_group(lines, definition)
            return [
                Panel(each, bars.HEIGHT, partial(draw_bars, cells=some, axis=axis))
                for each, some in _parted(name, cells)
            ]
        case Drawing.BARS | Drawing.POINTS:
            return _points(name, lines, numbers, columns)
        case _:
            assert_never(definition.drawing)


def _steps(name: str, lines: Sequence[ShownEstimate], axis: AxisTitles) -> list[Panel]:
    definition = _definition(lines[0])
    cells, told = _by_group([line for line in lines if not _further(line)], definition)
    others, _ = _by_group([line for line in lines if _further(line)], definition)
    heading = next((_further(line) for line in lines if _further(line)), "")
    found: list[Panel] = []
    for title, some in _parted(name, cells):
        keys = set(keys_of(some))
        below = RowsBelow(heading, [cell for cell in others if cell.key in keys])
        draw = partial(draw_steps, cells=some, axis=axis, told=told, below=below)
        found.append(Panel(title, steps_height(below), draw, told.get("", "")))
    return found


def _points(name: str, lines: Sequence[ShownEstimate], numbers: str, columns: ColumnWords) -> list[Panel]:
    definition = _definition(lines[0])
    termed = any(line.estimate.term for line in lines) and not _is_level_alone(lines, definition)
    if not termed or (definition.beside and lines[0].estimate.group):
        cells, axis = _of_groups(lines, numbers, columns, levels=termed)
        told: dict[str, str] = {}
    else:
        cells, told = _by_group(lines, definition)
        rows = definition.term_axis or (lines[0].estimate.column or "")
        axis = AxisTitles(numbers, rows, _columns_title(lines, columns))
    axis = AxisTitles(axis.numbers, axis.rows, axis.keys, definition.limits)
    found: list[Panel] = []
    for title, some in _parted(name, cells):
        if is_series(some):
            found.append(Panel(title, series.HEIGHT, partial(draw_series, cells=some, axis=axis), told.get("", "")))
            continue
        more = cut_text(MOST_ROWS, len(rows_of(some)), "rows")
        draw = partial(draw_points, cells=some, axis=axis, nought=termed and not definition.beside)
        found.append(Panel(title, points_height(some, axis), draw, more or told.get("", "")))
    return found


def _is_level_alone(lines: Sequence[ShownEstimate], definition: Definition) -> bool:
    """Whether terms say the same for all, such as the one level that was asked for."""
    return bool(definition.beside or definition.one_number) and len({line.estimate.term for line in lines}) == 1


def _of_groups(
    lines: Sequence[ShownEstimate], numbers: str, columns: ColumnWords, *, levels: bool
) -> tuple[list[Cell], AxisTitles]:
    """Groups in rows: by the first columns, and told apart by the last one or by levels."""
    names = [name for name, _ in lines[0].estimate.group]
    last = {line.estimate.group[-1][1] for line in lines if line.estimate.group}
    ranks = {columns.rank(*line.estimate.group[0]) for line in lines if line.estimate.group}
    ordered = len(ranks) > 1 and None not in ranks
    apart = (
        1 if ordered else len(names) - 1 if 1 < len(last) <= MOST_KEYS and len(names) > 1 and not levels else len(names)
    )
    found = []
    for line in lines:
        group = line.estimate.group
        rank = columns.rank(*group[0]) if ordered else None
        key = [value_text(value) for _, value in group[apart:]]
        key += [line.estimate.term] if levels else []
        found.append(
            Cell(", ".join(value_text(value) for _, value in group[:apart]), ", ".join(key), line.estimate, rank)
        )
    titles = [columns.titled(name) for name in names]
    keys = [*titles[apart:], *(["level"] if levels else [])]
    return found, AxisTitles(numbers, ", ".join(titles[:apart]) or WHOLE, ", ".join(keys))


def _by_group(lines: Sequence[ShownEstimate], definition: Definition) -> tuple[list[Cell], dict[str, str]]:
    """Terms in rows, told apart by groups; and for each group what is told of it and not drawn."""
    groups: dict[str, list[Estimate]] = {}
    for line in lines:
        name = ", ".join(value_text(value) for _, value in line.estimate.group)
        groups.setdefault(name, []).append(line.estimate)
    cells: list[Cell] = []
    told: dict[str, str] = {}
    for name, found in groups.items():
        aside: list[Estimate] = []
        while found and len(aside) < len(definition.aside) and found[-1].term in dict(definition.aside):
            aside.insert(0, found.pop())
        told[name] = "; ".join(_told(each) for each in aside)
        cells += [Cell(_row(each, definition), name, each) for each in found]
    return cells, told


def _row(estimate: Estimate, definition: Definition) -> str:
    return f"{estimate.column} and {estimate.term}" if definition.pairs else definition.terms.parted(estimate.term)[0]


def _further(line: ShownEstimate) -> str:
    """Which number beside that of its row it is, if any."""
    return _definition(line).terms.parted(line.estimate.term)[1]


def _told(estimate: Estimate) -> str:
    name = dict(find(Statistic(estimate.statistic)).aside).get(estimate.term, estimate.term)
    number = NO_ESTIMATE if estimate.value is None else error_text(estimate.value, estimate.standard_error)
    return f"{name} {number}"


def _parted(name: str, cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """As many groups in one panel as can be told apart."""
    keys = keys_of(cells)
    if len(keys) <= MOST_KEYS:
        return [(name, list(cells))]
    own: dict[str, list[Cell]] = {key: [] for key in keys}
    for cell in cells:
        own[cell.key].append(cell)
    found = []
    for begin in range(0, len(keys), MOST_KEYS):
        some = keys[begin : begin + MOST_KEYS]
        title = f"{name}, groups {begin + 1} to {begin + len(some)} of {len(keys)}"
        found.append((title, [cell for key in some for cell in own[key]]))
    return found


def _table(name: str, lines: Sequence[ShownEstimate], answer: Answer) -> Panel:
    inside = [line.estimate for line in lines if line.estimate.group]
    told = "; ".join(_told(line.estimate) for line in lines if not line.estimate.group)
    cells = [Cell(value_text(each.group[0][1]), value_text(each.group[-1][1]), each) for each in inside]
    first, last = (inside[0].group[0][0], inside[0].group[-1][0]) if inside else ("", "")
    axis = AxisTitles(f"number of {_RECORDS[Unit(answer.unit)]}", first, last)
    cut = [cut_text(MOST_ROWS, len(rows_of(cells)), "rows"), cut_text(MOST_ROWS, len(keys_of(cells)), "columns")]
    told = "; ".join(filter(None, [told, *cut]))
    return Panel(name, table_height(cells, axis), partial(draw_table, cells=cells, axis=axis), told)


def _numbers_title(name: str, definition: Definition, first: Estimate, answer: Answer, columns: ColumnWords) -> str:
    column = first.column or ""
    if "{column}" in definition.axis:
        return definition.axis.replace("{column}", columns.titled(column))
    unit = _unit(definition, first, answer, columns.units.get(column, ""))
    title = definition.axis or name
    return f"{title} [{unit}]" if unit else title


def _unit(definition: Definition, first: Estimate, answer: Answer, unit: str) -> str:
    match definition.measure:
        case MeasuredIn.COLUMN:
            return unit
        case MeasuredIn.SQUARE:
            return f"({unit})²" if unit else ""
        case MeasuredIn.RECORDS if answer.privacy.mechanism == Choosing.PERMUTE_AND_FLIP:
            return "votes of hospitals"
        case MeasuredIn.RECORDS:
            return "rows" if first.column is None else _RECORDS[Unit(answer.unit)]
        case MeasuredIn.NOTHING:
            return ""
        case _:
            assert_never(definition.measure)


def _columns_title(lines: Sequence[ShownEstimate], columns: ColumnWords) -> str:
    return ", ".join(columns.titled(name) for name, _ in lines[0].estimate.group)


def _definition(line: ShownEstimate) -> Definition:
    return find(Statistic(line.estimate.statistic))


def _note(answer: Answer, lines: Sequence[ShownEstimate]) -> str:
    sites = len(answer.answered)
    told = [f"{sites} {'hospital' if sites == 1 else 'hospitals'} answered."]
    known = [line.estimate for line in lines if line.estimate.value is not None]
    if len(known) < len(lines):
        told.append(f"No estimate for {len(lines) - len(known)} of {len(lines)} numbers.")
    if answer.noiseless:
        return " ".join([*told, "No noise was added: a simulation, and nothing is private."])
    if known:
        sampled = {line.estimate.sampling for line in lines if line.estimate.value is not None and not _further(line)}
        of = (
            "noise"
            if sampled == {False}
            else "noise and sample"
            if sampled == {True}
            else "noise, some of the sample too"
        )
        told.append(f"Bars and bands: {known[0].confidence:.0%} intervals of the {of}.")
    full = {line.label for line in lines if _further(line)}
    told += dict.fromkeys(
        lacking for line in lines if (lacking := _definition(line).lacking) and line.label not in full
    )
    return " ".join([*told, price_text(answer.privacy)])


def _draw_nothing(ax: Axes, size: Size) -> None:  # noqa: ARG001
    ax.set_axis_off()
