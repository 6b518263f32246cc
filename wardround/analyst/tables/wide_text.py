"""Wide tables as text: a number and its error in a cell, in as many pieces as a screen needs.

A row is never broken over two lines of a terminal: columns that do not fit stand in a further piece below, under the
same keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from wardround.analyst.tables.text_tables import MAX_LINES, TextTable, cell_text, estimate_text, percent, value_text
from wardround.analyst.tables.wide_tables import Key, KeyColumn, Month, NumberColumn, ValueRange, WideTable
from wardround.federation.plain_text import fitted, width_of
from wardround.federation.question.answer import Estimate

_ABSENT = "–"
_BETWEEN = 2
_LEAST = 8
"""How narrow a key may become so that the numbers beside it stay in sight."""

_COLUMNS = 80


def screen_width() -> int | None:
    """How many columns the terminal has on which a program prints; None where it is no terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        # The last one stays free: some terminals go to the next row as soon as it is used.
        return (os.get_terminal_size(sys.stdout.fileno()).columns or _COLUMNS) - 1
    except OSError:
        return _COLUMNS - 1


def text_tables(table: WideTable, *, intervals: bool = False, width: int | None = None) -> list[TextTable]:
    """The table as text, in pieces that fit the width."""
    shown = _across(table) if table.crossed and len(table.numbers) == 1 else table
    keys = [(each.name, *(cell_text(key_text(cell)) for cell in each.cells)) for each in shown.keys]
    blocks = [_block(each, intervals=intervals) for each in shown.numbers]
    if width is None:
        return [_joined(keys, blocks)]
    # The first column has no gap before it.
    room = width + _BETWEEN
    narrow = _narrowed(keys, room - max((_width(block) for block in blocks), default=0))
    return [_joined(narrow, piece) for piece in _pieces(blocks, room - _width(narrow))]


def key_text(cell: Key) -> str:
    """A key as it is read."""
    match cell:
        case None:
            return ""
        case ValueRange(text) | Month(text):
            return text
        case float():
            return f"{cell:.12g}"
        case _:
            return value_text(cell)


def _across(table: WideTable) -> WideTable:
    """The second key across: a column for each of its values."""
    (down, over), (numbers,) = table.keys, table.numbers
    rows = list(dict.fromkeys(down.cells))
    cells = dict(zip(zip(down.cells, over.cells, strict=True), numbers.cells, strict=True))
    columns = tuple(
        NumberColumn(numbers.name, key_text(value), tuple(cells.get((row, value)) for row in rows))
        for value in dict.fromkeys(over.cells)
    )
    return WideTable(table.name, table.title, (KeyColumn(down.name, tuple(rows)),), columns)


_Column = tuple[str, ...]


def _block(column: NumberColumn, *, intervals: bool) -> list[_Column]:
    """The columns of one aggregate, which stay together."""
    known = [each for each in column.cells if each is not None]
    texts = [_cell(each) for each in column.cells]
    estimates = (cell_text(column.heading), *(text for text, _ in texts))
    if not intervals:
        return [estimates]
    confidence = percent(known[0].confidence) if known else "95 %"
    return [estimates, (f"{confidence} interval", *(text for _, text in texts))]


def _cell(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return _ABSENT, _ABSENT
    return estimate_text(estimate.value, estimate.standard_error, estimate.shown_interval)


def _width(columns: Sequence[_Column]) -> int:
    """How wide columns are on a screen, each with the gap before it; rows that are cut off take no room."""
    return sum(_BETWEEN + max(map(width_of, column[: MAX_LINES + 1])) for column in columns)


def _narrowed(keys: list[_Column], width: int) -> list[_Column]:
    """Keys that leave room for a number beside them; to_pandas() has the whole of each."""
    if _width(keys) <= width or not keys:
        return keys
    most = max(width // len(keys) - _BETWEEN, _LEAST)
    return [tuple(fitted(cell, most) for cell in column) for column in keys]


def _pieces(blocks: list[list[_Column]], width: int) -> Iterator[list[list[_Column]]]:
    piece: list[list[_Column]] = []
    for block in blocks:
        if piece and sum(map(_width, [*piece, block])) > width:
            yield piece
            piece = []
        piece.append(block)
    yield piece


def _joined(keys: list[_Column], blocks: Sequence[list[_Column]]) -> TextTable:
    numbers = [column for block in blocks for column in block]
    headings, *rows = zip(*keys, *numbers, strict=True) if keys or numbers else ((),)
    return TextTable(tuple(headings), tuple(map(tuple, rows)), len(numbers))
