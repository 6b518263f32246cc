"""The sums of one part while a snapshot is read, some whole patients at a time, or some rows of a giant.

Rows count where the cohort selects them and their group and values are there; then, and only then, the cap: of each
patient the first rows in the snapshot's keyed order, or one record for each of its first groups. Of a patient in
several pieces it is remembered how many rows counted, or which groups came first and what their rows amount to.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.bounding.gathering import Joining, joined, own_values, record_values, row_numbers
from site_agent.reading.columnstore.array_cells import NO_LEVEL, Cells, Mask, Vector, Vectors
from site_agent.reading.columnstore.column_encoding import KeptColumn
from site_agent.reading.columnstore.scan import (
    Patients,
    Runs,
    Span,
    among_first,
    among_first_cells,
    by_patient,
    by_patient_and_cell,
)
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums, Tally
from wardround.federation.study.study import ColumnType, Unit

_EXACT_ROWS = 2**18
"""Sums of so many levels, squares or products, none above 2^34, are exact in the doubles that bincount adds in."""

Places = NDArray[np.intp]
_MANY = 2**20
_SAFE = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class PatientChunk:
    """Some patients in keyed order, and which of their rows the cohort selects. Secret."""

    span: Span
    patients: Patients = field(repr=False)
    chosen: Mask | None = field(repr=False)

    @property
    def rows(self) -> slice:
        """Where the rows are."""
        return self.span.rows


class Adding(Protocol):
    """What is added up for one part."""

    def add(self, chunk: PatientChunk) -> None:
        """Count the rows of some more patients, or some more rows of one."""

    def tally(self) -> Tally:
        """The sums so far: one line for each group."""


class _FirstRows:
    """The first rows of each patient, of one in several pieces over all of them."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def places(self, patients: Patients, span: Span) -> Places:
        """Those of some rows, of patients who stand together, that count."""
        most = self._most if span.begins else self._left
        found = np.flatnonzero(among_first(patients, most))
        if not span.whole:
            self._left = most - found.size
        return found


class CodeCounts:
    """Rows by group where the group follows from the code of one column, and every code that occurs has one."""

    def __init__(self, form: AnswerLayout, part: Part, column: KeptColumn, table: Vector) -> None:
        self._first = _first_rows(form)
        self._codes, self._table, self._groups = column.codes, table, part.groups
        self._counts = np.zeros(table.size, dtype=np.int64)

    @staticmethod
    def possible(column: KeptColumn, table: Vector) -> bool:
        """Whether no row has to be left out for its group."""
        gaps = 2 if column.column.type is ColumnType.CATEGORY else 1
        return not column.gaps and bool((table[gaps:] >= 0).all())

    def add(self, chunk: PatientChunk) -> None:
        patients, codes, places = chunk.patients, self._codes[chunk.rows], None
        if chunk.chosen is not None:
            places = np.flatnonzero(chunk.chosen)
            patients = patients.take(places)
        if self._first is not None:
            first = self._first.places(patients, chunk.span)
            places = first if places is None else places.take(first)
        if places is not None:
            codes = codes.take(places)
        self._counts += np.bincount(codes, minlength=self._counts.size)

    def tally(self) -> Tally:
        found = np.zeros((self._groups, 1), dtype=np.int64)
        inside = self._table >= 0
        np.add.at(found[:, 0], self._table[inside], self._counts[inside])
        return found


class RowSums:
    """Rows, or their levels, by group: of each unit the first few."""

    def __init__(self, form: AnswerLayout, part: Part, cells: Cells, levels: list[Vectors], *, rows: int) -> None:
        self._first = _first_rows(form)
        self._cells, self._levels = cells, levels
        largest = max((max(abs(q.low), abs(q.high)) for q in part.quantisers), default=1)
        self._total = _zeros(cells.groups, 1, rows * largest)

    def add(self, chunk: PatientChunk) -> None:
        patients, cell, levels = _narrowed(chunk, self._cells, self._levels)
        value = levels[0] if levels else None
        if self._first is not None:
            kept = self._first.places(patients, chunk.span)
            cell = None if cell is None else cell.take(kept)
            value = None if value is None else value.take(kept)
            _add(self._total[:, 0], cell, value, kept.size)
        else:
            _add(self._total[:, 0], cell, value, patients.size)

    def tally(self) -> Tally:
        return self._total


class _Piecewise:
    """One patient, some rows at a time: the groups that came first, and what the rows in each amount to."""

    def __init__(self, part: Part, groups: int, most: int) -> None:
        self._counting = np.zeros(groups, dtype=np.bool_)
        self._left = min(most, groups)
        self._rows = Joining(part, groups)

    def add(self, cell: Vector, levels: list[Vector]) -> None:
        fresh, first = np.unique(cell[~self._counting[cell]], return_index=True)
        chosen = fresh[np.argsort(first)][: self._left]
        self._left -= chosen.size
        self._counting[chosen] = True
        kept = np.flatnonzero(self._counting[cell])
        self._rows.add(cell.take(kept), [level.take(kept) for level in levels])

    def records(self) -> tuple[Vector, list[Vector]]:
        """The groups that count, and the values of the record in each."""
        cells, _, values = self._rows.records()
        return cells, values


class RecordSums:
    """One record for each unit and group: of each unit the first few groups."""

    def __init__(
        self, form: AnswerLayout, part: Part, cells: Cells, levels: list[Vectors], *, width: int, rows: int
    ) -> None:
        self._part, self._cells, self._levels = part, cells, levels
        # Where every event is a unit every row is a record; only units by themselves are still counted once.
        self._collapses = form.unit is Unit.PATIENT or part.records is Records.UNITS
        self._most = part.max_groups if form.unit is Unit.PATIENT else cells.groups
        largest = max((q.high for q in part.quantisers), default=1)
        squared = part.sums is Sums.PRODUCTS
        self._total = _zeros(cells.groups, width, rows * (largest**2 if squared else largest))
        self._piecewise = _Piecewise(part, 0, 0)

    def add(self, chunk: PatientChunk) -> None:
        patients, cell, levels = _narrowed(chunk, self._cells, self._levels)
        if not self._collapses:
            self._add_records(cell, own_values(self._part, levels), patients.size)
            return
        if not chunk.span.whole:
            self._add_piece(chunk.span, cell, levels, patients.size)
            return
        if patients.size == 0:
            return
        if cell is None:
            runs, kept = by_patient(patients), None
        else:
            runs = by_patient_and_cell(patients, cell, self._cells.groups)
            few = self._most < self._cells.groups
            kept = among_first_cells(patients, runs, self._most) if few else None
            cell = cell.take(_firsts(runs))
        values = self._collapsed(levels, runs)
        if kept is not None and cell is not None:
            cell, values = cell[kept], [value[kept] for value in values]
        self._add_records(cell, values, runs.starts.size if cell is None else cell.size)

    def tally(self) -> Tally:
        return self._total

    def _add_piece(self, span: Span, cell: Vector | None, levels: list[Vector], rows: int) -> None:
        """Some rows of one patient, who is added when the last of them were."""
        if span.begins:
            self._piecewise = _Piecewise(self._part, self._cells.groups, self._most)
        self._piecewise.add(np.zeros(rows, dtype=np.int64) if cell is None else cell, levels)
        if span.ends:
            cells, values = self._piecewise.records()
            self._add_records(None if self._cells.numbers is None else cells, values, cells.size)

    def _collapsed(self, levels: list[Vector], runs: Runs) -> list[Vector]:
        """What the rows of one unit in one group amount to."""
        if runs.order is not None:
            levels = [level.take(runs.order) for level in levels]
        together = joined(self._part, row_numbers(self._part, levels), runs.starts)
        return record_values(self._part, together, runs.sizes)

    def _add_records(self, cell: Vector | None, values: list[Vector], records: int) -> None:
        total, width = self._total, self._total.shape[1]
        match self._part.sums:
            case Sums.COUNT:
                _add(total[:, 0], cell, None, records)
            case Sums.CODES:
                place = values[0] if cell is None else cell * width + values[0]
                _add(total.reshape(-1), place, None, records)
            case Sums.COUNTED_LEVELS | Sums.PRODUCTS:
                _add(total[:, 0], cell, None, records)
                sums = [*values]
                if self._part.sums is Sums.PRODUCTS:
                    sums += [left * right for left, right in itertools.combinations_with_replacement(values, 2)]
                for offset, value in enumerate(sums, start=1):
                    _add(total[:, offset], cell, value, records)
            case Sums.LEVELS:
                raise InvariantBroken(private="rows were added up as records")
            case _:
                assert_never(self._part.sums)


def _first_rows(form: AnswerLayout) -> _FirstRows | None:
    """Which rows of a unit count; under event adjacency every row is its own unit."""
    return _FirstRows(form.table.max_rows_per_unit) if form.unit is Unit.PATIENT else None


def _narrowed(chunk: PatientChunk, cells: Cells, levels: list[Vectors]) -> tuple[Patients, Vector | None, list[Vector]]:
    """The rows that the cohort selects and that have a group and every value."""
    cell = None if cells.numbers is None else cells.numbers(chunk.rows)
    found = [level(chunk.rows) for level in levels]
    mask = chunk.chosen
    for known in [*([] if cell is None else [cell >= 0]), *(level != NO_LEVEL for level in found)]:
        mask = known if mask is None else mask & known
    if mask is None or mask.all():
        return chunk.patients, cell, found
    # Taking places is several times quicker than choosing by a mask that no branch predictor can follow.
    places = np.flatnonzero(mask)
    return (
        chunk.patients.take(places),
        None if cell is None else cell.take(places),
        [each.take(places) for each in found],
    )


def _firsts(runs: Runs) -> Vector:
    return runs.starts if runs.order is None else runs.order[runs.starts]


def _zeros(groups: int, width: int, largest: int) -> Tally:
    """Room for sums up to `largest`: 64 bits where they are enough, else Python's whole numbers."""
    if largest < _SAFE:
        return np.zeros((groups, width), dtype=np.int64)
    return np.zeros((groups, width), dtype=np.object_)


def _add(total: Tally, cell: Vector | None, value: Vector | None, records: int) -> None:
    """Add each value, or one for each record, to its cell's total, exactly."""
    if cell is None:
        total[0] += records if value is None else int(value.sum())
        return
    if total.size > _MANY:
        np.add.at(total, cell, 1 if value is None else value)
        return
    for start in range(0, cell.size, _EXACT_ROWS):
        part = slice(start, start + _EXACT_ROWS)
        weights = None if value is None else value[part]
        found: NDArray[np.int64] = np.bincount(cell[part], weights, minlength=total.size).astype(np.int64)
        np.add(total, found, out=total, casting="unsafe")
