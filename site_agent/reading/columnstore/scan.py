"""Whole patients at a time over sorted columns, with the order verified in every scan; a giant in several pieces.

The bound rests on the order: `patient[m:] != patient[:-m]` keeps at most m rows of a patient only where its
rows stand together. So codes that fall, or a patient on both sides of a border, are a failure of the source
and never a wrong bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.columnstore.array_cells import Vector

Patients = NDArray[np.int32]

CHUNK_ROWS = 2**16
"""Half a mebibyte for a vector: it stays in the cache, and in memory that is not given back after every use."""


class Disordered(Exception):
    """Rows of one patient do not stand together."""


@dataclass(frozen=True, slots=True)
class Span:
    """Some rows: of whole patients, or of one alone, whose first or last rows they need not be."""

    rows: slice
    begins: bool = True
    ends: bool = True

    @property
    def whole(self) -> bool:
        """Whether no patient is in another span too."""
        return self.begins and self.ends


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rows that make one record each: the rows in order, where a run of them begins, and how long it is.

    Without `order` the rows stand as they are.
    """

    starts: Vector = field(repr=False)
    sizes: Vector = field(repr=False)
    order: Vector | None = field(repr=False, default=None)


def chunks(patients: Patients, *, rows: int = CHUNK_ROWS) -> Iterator[Span]:
    """The whole table in spans of at most `rows` rows; none parts a patient but one that has more.

    Raises:
        Disordered: the codes are not in order.
    """
    start, last, end_of_all = 0, -1, patients.size
    while start < end_of_all:
        end = min(start + rows, end_of_all)
        if end < end_of_all:
            end = start + int(np.searchsorted(patients[start:end], patients[end], side="left"))
        if end > start:
            spans = [Span(slice(start, end))]
        else:
            end = start + int(np.searchsorted(patients[start:], patients[start], side="right"))
            spans = _parted(start, end, rows)
        for span in spans:
            part = patients[span.rows]
            _require_order(part, after=last if span.begins else last - 1, alone=not span.whole)
            last = int(part[-1])
            yield span
        start = end


def _parted(start: int, end: int, rows: int) -> list[Span]:
    """The rows of one patient, piece by piece."""
    firsts = range(start, end, rows)
    return [Span(slice(first, min(first + rows, end)), first == start, first + rows >= end) for first in firsts]


def _require_order(part: Patients, *, after: int, alone: bool) -> None:
    """Refuse codes that fall or begin too low, or that are several where there should be one patient alone."""
    if part.size == 0 or int(part[0]) <= after or not (part[1:] >= part[:-1]).all():
        raise Disordered
    if alone and part[0] != part[-1]:
        raise Disordered


def among_first(patients: Patients, most: int) -> NDArray[np.bool_]:
    """Whether a row is among the first `most` of its patient; patients stand together."""
    if most == 0:
        return np.zeros(patients.size, dtype=np.bool_)
    kept = np.ones(patients.size, dtype=np.bool_)
    if most < patients.size:
        np.not_equal(patients[most:], patients[:-most], out=kept[most:])
    return kept


def by_patient(patients: Patients) -> Runs:
    """One run for each patient."""
    begins = np.ones(patients.size, dtype=np.bool_)
    np.not_equal(patients[1:], patients[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    return Runs(starts, np.diff(starts, append=patients.size))


def by_patient_and_cell(patients: Patients, cell: Vector, groups: int) -> Runs:
    """One run for each patient and cell; the rows of a run stay in the order they had."""
    rows = patients.size
    bits = max((rows - 1).bit_length(), 1)
    # One number to sort: (patient, cell, row). A chunk with many rows of one patient has few patients.
    packed = (patients - patients[0]).astype(np.int64)
    packed *= groups
    packed += cell
    packed <<= bits
    packed |= np.arange(rows, dtype=np.int64)
    packed.sort()
    order = packed & ((1 << bits) - 1)
    packed >>= bits
    begins = np.ones(rows, dtype=np.bool_)
    np.not_equal(packed[1:], packed[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    return Runs(starts, np.diff(starts, append=rows), order)


def among_first_cells(patients: Patients, runs: Runs, most: int) -> NDArray[np.bool_]:
    """Which runs belong to the first `most` cells of their patient, in the order of the rows."""
    first = runs.starts if runs.order is None else runs.order[runs.starts]
    marked = np.zeros(patients.size, dtype=np.bool_)
    marked[first] = True
    places = np.flatnonzero(marked)
    marked[places] = among_first(patients[places], most)
    return marked[first]
