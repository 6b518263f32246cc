"""The sums of every part once more, in plain Python, one row after another, without a database or an array."""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from site_agent.reading.bounding.tally import finish, tally_width
from wardround.federation.forms.grids import Quantiser
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import GroupBy, Grouping, Statistic, month_number, month_range
from wardround.federation.study.study import Column, ColumnType, Unit

Cell = str | int | float | bool | datetime.date | None
Row = Mapping[str, Cell]
Record = tuple[int, tuple[int, ...]]

OWN_CELLS = (Statistic.CHI_SQUARE, Statistic.CHOICE)


def reference_totals(form: AnswerLayout, rows: Sequence[Row]) -> list[list[int]]:
    """What a source must answer where no unit has too many records."""
    return [finish(part, np.array(reference_tally(form, part, rows))).total.tolist() for part in form.parts]


def reference_keys(form: AnswerLayout, rows: Sequence[Row]) -> dict[str, int]:
    """The texts of the open column, each with the number of its units, or of its rows where these are units."""
    column = form.table.column(form.parts[0].columns[0])
    held = [
        (row.get(form.table.unit_key), held_value(row, column))
        for row in rows
        if row.get(form.table.unit_key) not in (None, "") and selects(form, row)
    ]
    found = [(unit, str(key)) for unit, key in held if key is not None and is_short(str(key))]
    return dict(Counter(key for _, key in (found if form.unit is Unit.EVENT else set(found))))


def is_short(key: str) -> bool:
    hidden = (range(32), range(127, 160), [0x61C], range(0x200E, 0x2010), range(0x2028, 0x202F), range(0x2066, 0x206A))
    return 0 < len(key) <= 256 and not any(ord(letter) in places for letter in key for places in hidden)


def reference_tally(form: AnswerLayout, part: Part, rows: Sequence[Row]) -> list[list[int]]:
    records = _records(form, part, rows)
    tally = [[0] * tally_width(part) for _ in range(part.groups)]
    for cell, values in records:
        line = tally[cell]
        match part.sums:
            case Sums.CODES:
                line[values[0]] += 1
            case Sums.LEVELS:
                line[0] += values[0]
            case Sums.COUNT:
                line[0] += 1
            case _:
                sums = [1, *values]
                if part.sums is Sums.PRODUCTS:
                    sums += [a * b for a, b in itertools.combinations_with_replacement(values, 2)]
                for place, value in enumerate(sums):
                    line[place] += value
    return tally


def _records(form: AnswerLayout, part: Part, rows: Sequence[Row]) -> list[Record]:
    by_unit: dict[tuple[Cell, int], list[tuple[int, ...]]] = defaultdict(list)
    every: list[Record] = []
    for row in rows:
        unit = row.get(form.table.unit_key)
        cell = _cell(form, part, row)
        pairs = zip(part.columns, part.quantisers, strict=False)
        levels = [_level(form.table.column(name), quantiser, row) for name, quantiser in pairs]
        if unit in (None, "") or cell is None or None in levels or not selects(form, row):
            continue
        values = tuple(level for level in levels if level is not None)
        by_unit[unit, cell].append(values)
        every.append((cell, values))
    if part.records is Records.ROWS:
        return every
    if form.unit is Unit.EVENT and part.aggregates[0].statistic is not Statistic.COUNT:
        return [(cell, _collapsed(part, [values])) for cell, values in every]
    return [(cell, _collapsed(part, mine)) for (_, cell), mine in by_unit.items()]


def _collapsed(part: Part, mine: list[tuple[int, ...]]) -> tuple[int, ...]:
    """One record from the rows of a unit in a cell."""
    if part.records is Records.LAST:
        return (max(2 * _code(part, time) + event for time, event in mine),)
    number = len(mine)
    means = tuple((2 * sum(column) + number) // (2 * number) for column in zip(*mine, strict=True))
    return (_code(part, means[0]),) if part.sums is Sums.CODES else means


def _code(part: Part, level: int) -> int:
    coding = part.coding
    assert coding is not None
    return min((level + coding.offset) // coding.width, coding.codes - 1)


def _level(column: Column, quantiser: Quantiser, row: Row) -> int | None:
    value = held_value(row, column)
    if value is None:
        return None
    assert isinstance(value, int | float)
    scaled = (float(value) - float(quantiser.origin)) * float(quantiser.per_unit) + 0.5
    return math.floor(min(max(scaled, float(quantiser.low)), float(quantiser.high)))


def _cell(form: AnswerLayout, part: Part, row: Row) -> int | None:
    own = part.aggregates[0].statistic in OWN_CELLS
    groupings = tuple(Grouping(name) for name in part.columns) if own else form.query.group_by
    cell = 0
    for grouping in groupings:
        column = form.table.column(grouping.column)
        value = held_value(row, column)
        if value is None:
            return None
        place, size = _place(grouping, column, value)
        if not 0 <= place < size:
            return None
        cell = cell * size + place
    return cell


def _place(grouping: Grouping, column: Column, value: Cell) -> tuple[int, int]:
    match grouping.by:
        case GroupBy.MONTH:
            assert isinstance(value, datetime.date)
            first, months = month_range(column)
            return month_number(value) - first, months
        case GroupBy.BINS:
            assert isinstance(value, int | float)
            return sum(edge <= float(value) for edge in grouping.edges), len(grouping.edges) + 1
        case GroupBy.VALUE:
            keys = list(grouping.keys or column.domain)
            return keys.index(value) if value in keys else -1, len(keys)


# --- Rows ---------------------------------------------------------------------------------------------------


def held_value(row: Row, column: Column) -> Cell:
    """What the row holds in the study's type, or the default."""
    value = row.get(column.name)
    fits = {
        ColumnType.INTEGER: isinstance(value, int) and not isinstance(value, bool),
        ColumnType.NUMBER: isinstance(value, int | float) and math.isfinite(value),
        ColumnType.CATEGORY: isinstance(value, str) and value != "",
        ColumnType.BOOLEAN: isinstance(value, bool),
        ColumnType.DATE: isinstance(value, datetime.date),
    }[column.type]
    return value if fits else column.default


def selects(form: AnswerLayout, row: Row) -> bool:
    return form.query.cohort is None or three_valued(form.query.cohort, row, form) is True


def three_valued(term: Expression, row: Row, form: AnswerLayout) -> bool | None:
    """SQL's logic, written down again."""
    match term:
        case Comparison(name, operator, value):
            held = held_value(row, form.table.column(name))
            if held is None:
                return None
            return {
                Operator.EQUAL: held == value,
                Operator.UNEQUAL: held != value,
                Operator.LESS: isinstance(held, str) or held < value,
                Operator.LESS_OR_EQUAL: isinstance(held, str) or held <= value,
                Operator.GREATER: isinstance(held, str) or held > value,
                Operator.GREATER_OR_EQUAL: isinstance(held, str) or held >= value,
            }[operator]
        case Within(name, values):
            held = held_value(row, form.table.column(name))
            return None if held is None else held in values
        case Between(name, lower, upper):
            held = held_value(row, form.table.column(name))
            return None if held is None else lower <= held <= upper
        case IsNull(name):
            return held_value(row, form.table.column(name)) is None
        case Not(inner):
            decided = three_valued(inner, row, form)
            return None if decided is None else not decided
        case And(terms):
            outcomes = [three_valued(inner, row, form) for inner in terms]
            return False if False in outcomes else None if None in outcomes else True
        case Or(terms):
            outcomes = [three_valued(inner, row, form) for inner in terms]
            return True if True in outcomes else None if None in outcomes else False
