"""Wide tables as columns of one type each, ready for a data frame.

Numbers are floats, the edges of an interval two columns of numbers, months and days dates.
"""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from wardround.analyst.tables.wide_tables import Key, KeyColumn, Month, NumberColumn, ValueRange, WideTable
from wardround.analyst.tables.wide_text import key_text
from wardround.federation.study.study import Value

Cell = Value | None

_ENDINGS = ("", "_error", "_lower", "_upper", "_reason")


class CellType(Enum):
    """What all cells of a column are."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    TRUTH = "truth"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """Cells of one type under a name; None where a row has none."""

    name: str
    type: CellType
    cells: tuple[Cell, ...]


def typed_columns(tables: Sequence[WideTable]) -> list[TypedColumn]:
    """The tables under each other; where there are several, `table` says which, and cells of the others are empty."""
    numbers = [list(_numbers(table.numbers)) for table in tables]
    taken = {column.name for columns in numbers for column in columns}
    parts = [[*_keys(table.keys, taken), *own] for table, own in zip(tables, numbers, strict=True)]
    heights = [len(columns[0].cells) for columns in parts]
    found: list[TypedColumn] = []
    for name in dict.fromkeys(column.name for columns in parts for column in columns):
        cells: list[Cell] = []
        types: set[CellType] = set()
        for columns, height in zip(parts, heights, strict=True):
            own = next((each for each in columns if each.name == name), None)
            cells.extend((None,) * height if own is None else own.cells)
            types.update(() if own is None else (own.type,))
        found.append(_of_one_type(name, types, tuple(cells)))
    if len(parts) <= 1:
        return found
    which = tuple(table.name for table, height in zip(tables, heights, strict=True) for _ in range(height))
    return [TypedColumn(_free("table", [each.name for each in found]), CellType.TEXT, which), *found]


def _numbers(columns: Sequence[NumberColumn]) -> Iterator[TypedColumn]:
    """Of each aggregate its number, its error, the ends of its interval, and why there is none."""
    taken: set[str] = set()
    for column in columns:
        name = _distinct(column.name, taken)
        taken.update(f"{name}{ending}" for ending in _ENDINGS)
        cells = column.cells
        ends = [None if each is None else each.shown_interval for each in cells]
        values = (
            [None if each is None else each.value for each in cells],
            [None if each is None else each.standard_error for each in cells],
            [None if each is None else each[0] for each in ends],
            [None if each is None else each[1] for each in ends],
        )
        for ending, numbers in zip(_ENDINGS, values, strict=False):
            yield TypedColumn(f"{name}{ending}", CellType.NUMBER, tuple(numbers))
        reasons = tuple(None if each is None or each.reason is None else each.reason.value for each in cells)
        yield TypedColumn(f"{name}_reason", CellType.TEXT, reasons)


def _keys(keys: Sequence[KeyColumn], numbers: Container[str]) -> list[TypedColumn]:
    found: list[TypedColumn] = []
    for key in keys:
        for column in _key(key):
            # A study may well have a column that is called like a number here, or like another key.
            name = _free(_free(column.name, numbers), [each.name for each in found])
            found.append(TypedColumn(name, column.type, column.cells))
    return found


def _key(key: KeyColumn) -> Iterator[TypedColumn]:
    cells = [cell.first if isinstance(cell, Month) else cell for cell in key.cells]
    ends = [(cell.lower, cell.upper) if isinstance(cell, ValueRange) else (None, None) for cell in cells]
    values = tuple(cell.text if isinstance(cell, ValueRange) else cell for cell in cells)
    yield _of_one_type(key.name, {_type_of(cell) for cell in values if cell is not None}, values)
    if any(isinstance(cell, ValueRange) for cell in cells):
        yield TypedColumn(f"{key.name}_lower", CellType.NUMBER, tuple(lower for lower, _ in ends))
        yield TypedColumn(f"{key.name}_upper", CellType.NUMBER, tuple(upper for _, upper in ends))


def _of_one_type(name: str, types: set[CellType], cells: tuple[Cell, ...]) -> TypedColumn:
    """Whole numbers among others are numbers; whatever else is mixed is text."""
    if len(types) == 1:
        return TypedColumn(name, next(iter(types)), cells)
    if types == {CellType.WHOLE, CellType.NUMBER}:
        return TypedColumn(name, CellType.NUMBER, cells)
    return TypedColumn(name, CellType.TEXT, tuple(map(_text, cells)))


def _type_of(cell: Value) -> CellType:
    match cell:
        case bool():
            return CellType.TRUTH
        case int():
            return CellType.WHOLE
        case float():
            return CellType.NUMBER
        case datetime.date():
            return CellType.DATE
        case str():
            return CellType.TEXT


def _text(cell: Key) -> str | None:
    return None if cell is None else key_text(cell)


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name = f"group_{name}"
    return name


def _distinct(name: str, taken: Container[str]) -> str:
    """The name, with a number where another aggregate has it or one of its endings."""
    found, number = name, 1
    while any(f"{found}{ending}" in taken for ending in _ENDINGS):
        number += 1
        found = f"{name}_{number}"
    return found
