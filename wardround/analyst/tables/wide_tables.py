"""An answer as tables: a row for each group and a column for each aggregate.

A statistic with several numbers a group has a table of its own, with a row for each of its terms. Every number that is
shown is in exactly one cell: where two would fall into the same one, the second gets a column of its own.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from wardround.analyst.tables.presentation import BoundQuestion, Group, ShownLine
from wardround.federation.forms.definition import Definition, TermKind
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import GroupBy, Grouping, Statistic, interval_names
from wardround.federation.statistics import find
from wardround.federation.study.study import Value

ESTIMATE = "estimate"
_MONTH = re.compile(r"(?!0000)([0-9]{4})-(0[1-9]|1[0-2])")
_INTERVAL = re.compile(r"\[(\S+), (\S+)[\])]")
_A_PAIR = 2


@dataclass(frozen=True, slots=True)
class ValueRange:
    """From `lower` to below `upper`, and what the question or the answer calls it."""

    text: str
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Month:
    """A month by its first day."""

    text: str
    first: datetime.date


Key = Value | ValueRange | Month | None


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """What tells rows apart; None where a row has no such key."""

    name: str
    cells: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """Numbers under one heading, and the name by which a program finds them; None where a row has none."""

    name: str
    heading: str
    cells: tuple[Estimate | None, ...]


@dataclass(frozen=True, slots=True)
class WideTable:
    """Keys, then numbers; of a `crossed` table the second key may stand across.

    `title` stands over it, and `name` is what a program calls it.
    """

    name: str
    title: str
    keys: tuple[KeyColumn, ...]
    numbers: tuple[NumberColumn, ...]
    crossed: bool = False


def wide_tables(lines: Sequence[ShownLine], asked: BoundQuestion | None) -> tuple[WideTable, ...]:
    """The tables of an answer, in the order in which the question asks for their numbers."""
    places = _Places(lines, asked)
    sheets: dict[_SheetName, _Sheet] = {}
    for line in lines:
        where = places.of(line)
        sheets.setdefault(where.sheet, _Sheet(where.title)).add(where, line.estimate)
    titled: set[Hashable] = set()
    found: list[WideTable] = []
    for (owner, part), sheet in _merged(sheets).items():
        # The second table of a statistic goes on under the title of the first.
        found.append(sheet.table(part, "" if owner in titled else sheet.title))
        titled.update(() if owner is None else (owner,))
    return tuple(found)


class _Part(StrEnum):
    """Which table of an aggregate; those of several aggregates together have no owner."""

    GROUPS = "groups"
    CROSSED = "crossed"
    ROWS = "rows"
    SUMMARY = "summary"


_SheetName = tuple[Hashable, _Part]
_Keys = tuple[tuple[str, Key], ...]
_Row = tuple[Group, _Keys]
_GROUPS, _CROSSED = (None, _Part.GROUPS), (None, _Part.CROSSED)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a number goes: its sheet, its row with the keys of it, its column."""

    sheet: _SheetName
    title: str
    group: Group
    keys: _Keys
    terms: _Keys
    column: Hashable
    name: str
    heading: str


class _Places:
    """Where each line goes, in the order of the lines."""

    def __init__(self, lines: Sequence[ShownLine], asked: BoundQuestion | None) -> None:
        self._groups = {} if asked is None else {each.column: _typed(each) for each in asked.query.group_by}
        self._crossing = any(_definition(line).terms.crossed for line in lines)
        self._repeated = Counter(_term_key(line) for line in lines)
        pairs = Counter((_owner(line), line.group) for line in lines if _definition(line).pairs)
        self._several = {owner for (owner, _), number in pairs.items() if number > 1}

    def of(self, line: ShownLine) -> _Place:
        owner, definition, label = _owner(line), _definition(line), line.label
        keys = self._keys(line)
        if self._crossing and not definition.terms.crossed and len(keys) == _A_PAIR:
            return _Place(_CROSSED, f"{label}: {keys[0][0]} by {keys[1][0]}", line.group, keys, (), owner, label, label)
        if definition.one_number or (definition.pairs and owner not in self._several):
            return _Place(_GROUPS, "", line.group, keys, (), owner, label, label)
        if self._of_the_summary(line, definition):
            term = line.estimate.term
            summary = (owner, _Part.SUMMARY)
            return _Place(summary, label, line.group, keys, (), (owner, term), f"{label}_{term}", term)
        row, further = definition.terms.parted(line.estimate.term)
        terms, rows = _terms(line.estimate, row, definition), (owner, _Part.ROWS)
        if further:
            name = f"{label}_{further.replace(' ', '_')}"
            return _Place(rows, label, line.group, keys, terms, (owner, further), name, further)
        return _Place(rows, label, line.group, keys, terms, owner, label, ESTIMATE)

    def _of_the_summary(self, line: ShownLine, definition: Definition) -> bool:
        """A term that stands twice is first one of the rows: a predictor may be called `r_squared`."""
        if line.estimate.term not in definition.terms.summary:
            return False
        self._repeated[_term_key(line)] -= 1
        return self._repeated[_term_key(line)] == 0

    def _keys(self, line: ShownLine) -> _Keys:
        pairs = zip(line.group, line.estimate.group, strict=True)
        return tuple(
            (name, self._groups[column](value, str(raw)) if column in self._groups else value)
            for (column, raw), (name, value) in pairs
        )


@dataclass(slots=True)
class _Sheet:
    """A table while its cells are filled."""

    title: str
    rows: dict[_Row, _Keys] = field(default_factory=dict)
    columns: dict[Hashable, tuple[str, str]] = field(default_factory=dict)
    cells: dict[tuple[_Row, Hashable], Estimate] = field(default_factory=dict)

    def add(self, place: _Place, estimate: Estimate) -> None:
        row = (place.group, place.terms)
        self.rows.setdefault(row, place.keys)
        number = 0
        while (row, (place.column, number)) in self.cells:
            number += 1
        column = (place.column, number)
        self.columns.setdefault(column, (place.name, place.heading))
        self.cells[row, column] = estimate

    def table(self, part: _Part, title: str) -> WideTable:
        keys = [dict(each) for each in self.rows.values()]
        names = dict.fromkeys(name for each in keys for name in each)
        columns = [KeyColumn(name, tuple(each.get(name) for each in keys)) for name in names]
        terms = next(iter(self.rows))[1]
        columns += [
            KeyColumn(name, tuple(own[place][1] for _, own in self.rows)) for place, (name, _) in enumerate(terms)
        ]
        numbers = tuple(
            NumberColumn(name, heading, tuple(self.cells.get((row, column)) for row in self.rows))
            for column, (name, heading) in self.columns.items()
        )
        name = f"{self.title}_{part}" if part is _Part.SUMMARY else self.title or part.value
        return WideTable(name, title, tuple(columns), numbers, crossed=part is _Part.CROSSED)


def _merged(sheets: dict[_SheetName, _Sheet]) -> dict[_SheetName, _Sheet]:
    """Where every group has a single row, its summary stands in it."""
    found = dict(sheets)
    for (owner, part), rows in sheets.items():
        summary = found.get((owner, _Part.SUMMARY))
        if part is not _Part.ROWS or summary is None:
            continue
        row_of = {row[0]: row for row in rows.rows}
        if len(row_of) == len(rows.rows) and all(group in row_of for group, _ in summary.rows):
            rows.columns.update(summary.columns)
            rows.cells.update({(row_of[row[0]], column): cell for (row, column), cell in summary.cells.items()})
            del found[owner, _Part.SUMMARY]
    return found


def _definition(line: ShownLine) -> Definition:
    return find(Statistic(line.estimate.statistic))


def _owner(line: ShownLine) -> Hashable:
    """Which aggregate a line belongs to; without a question, as its label says."""
    return line.label if line.place is None else line.place


def _term_key(line: ShownLine) -> Hashable:
    return _owner(line), line.group, line.estimate.term


def _typed(grouping: Grouping) -> Callable[[Value, str], Key]:
    """How a group's value gets its own type, from how it is shown and how it was released."""
    match grouping.by:
        case GroupBy.VALUE:
            return lambda value, _: value
        case GroupBy.MONTH:
            return _month
        case GroupBy.BINS:
            ends = itertools.pairwise((-math.inf, *grouping.edges, math.inf))
            edges = dict(zip(interval_names(grouping.edges), ends, strict=True))
            return lambda value, raw: ValueRange(str(value), *edges[raw]) if raw in edges else value


def _month(value: Value, raw: str) -> Key:
    found = _MONTH.fullmatch(raw)
    return value if found is None else Month(str(value), datetime.date(int(found[1]), int(found[2]), 1))


def _terms(estimate: Estimate, row: str, definition: Definition) -> tuple[tuple[str, Key], ...]:
    """What tells the numbers of a group apart, with its own type."""
    if definition.pairs:
        return ("column", estimate.column), ("with", estimate.term)
    heading = definition.terms.heading or estimate.column or "term"
    return ((heading, _term(row, definition.terms.kind)),)


def _term(text: str, kind: TermKind) -> Key:
    match kind:
        case TermKind.NUMBER:
            number = _number(text)
            return text if number is None else number
        case TermKind.INTERVAL:
            ends = () if (found := _INTERVAL.fullmatch(text)) is None else tuple(map(_number, found.groups()))
            match ends:
                case (float(lower), float(upper)):
                    return ValueRange(text, lower, upper)
                case _:
                    return text
        case TermKind.NAME:
            return text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
