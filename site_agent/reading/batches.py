"""How a source hands out typed rows for preparation: column by column, some rows at a time; and what state it is in.

A batch holds what typed rows hold (the study's types, defaults in place, nothing that is not finite) and no row
without a unit key. It is secret like the rows themselves. The order of rows means nothing to whoever reads it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.plan.layout import whole_table
from wardround.federation.study.study import Column, ColumnType, Table, Unit

ABSENT, OTHER = -1, -2
"""A category's place where there is no value, and where the value is none of the public ones."""

NO_DAY = -(2**31)
EPOCH = datetime.date(1970, 1, 1).toordinal()
BATCH_ROWS = 2**18
_VALUES_AT_ONCE = 2**21


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A number column: doubles, NaN where absent."""

    values: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """An integer column; what stands where nothing is present does not matter."""

    values: NDArray[np.int64] = field(repr=False)
    present: NDArray[np.bool_] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """A category with public values: the place among them, `ABSENT` or `OTHER`."""

    values: NDArray[np.int32] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class TextCodes:
    """A category as text: the place in `texts`, which are all different, or `ABSENT`."""

    values: NDArray[np.int32] = field(repr=False)
    texts: Sequence[str] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Booleans:
    """0, 1, or `ABSENT`."""

    values: NDArray[np.int8] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Days:
    """A date column: days since 1970-01-01, `NO_DAY` where absent."""

    values: NDArray[np.int32] = field(repr=False)


Values = Numbers | Integers | Places | TextCodes | Booleans | Days


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows: their unit keys (all whole numbers, or all text or bytes) and every column of the table. Secret."""

    units: NDArray[np.int64] | NDArray[np.object_] = field(repr=False)
    columns: Mapping[str, Values] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells one state of a source from another, without reading a row.

    `sees_changes` is False where a change of rows may leave it the same: a snapshot is then good for the
    hours that the hospital declares, and no longer.
    """

    text: str
    sees_changes: bool


@runtime_checkable
class Fingerprinted(Protocol):
    """What can be looked at without reading a row."""

    def fingerprint(self, table: Table) -> Fingerprint:
        """The state of the table's source now; cheap.

        Raises:
            SchemaRefused: one sentence; the source is not as the study says.
        """


@runtime_checkable
class Preparable(Fingerprinted, Protocol):
    """A source that rows can be prepared from."""

    def batches(self, table: Table) -> Iterator[Batch]:
        """Every row with a unit key once, from one state of the source; memory stays bounded.

        Raises:
            SchemaRefused: one sentence; the source is not as the study says.
            SourceFailed: always the same words, whatever went wrong.
        """


def rows_at_once(table: Table) -> int:
    """How many rows of a table come at a time where they come as Python's own values."""
    return max(min(_VALUES_AT_ONCE // (len(table.columns) + 1), BATCH_ROWS), 1)


def batch_of_rows(table: Table, rows: Sequence[Sequence[object]]) -> Batch:
    """A batch from Python's own values: the unit key first, then the table's columns in the study's order.

    None where absent; dates as dates or as days since 1970-01-01. Rows without a unit key are left out.
    """
    kept = [row for row in rows if row[0] is not None]
    keys = [row[0] for row in kept]
    whole = bool(keys) and all(isinstance(key, int) for key in keys)
    units = np.array(keys, dtype=np.int64) if whole else _objects(keys)
    columns = {
        column.name: values_of(column, [row[place] for row in kept])
        for place, column in enumerate(table.columns, start=1)
    }
    return Batch(units, columns)


def values_of(column: Column, found: Sequence[object]) -> Values:
    """One column of a batch from Python's own values, None where absent."""
    match column.type:
        case ColumnType.NUMBER:
            # numpy makes NaN of None.
            return Numbers(np.array(found, dtype=np.float64))
        case ColumnType.INTEGER:
            present = np.array([value is not None for value in found], dtype=np.bool_)
            return Integers(np.array([value or 0 for value in found], dtype=np.int64), present)
        case ColumnType.CATEGORY:
            return texts_of(None if value is None else str(value) for value in found)
        case ColumnType.BOOLEAN:
            signs = [ABSENT if value is None else int(bool(value)) for value in found]
            return Booleans(np.array(signs, dtype=np.int8))
        case ColumnType.DATE:
            return Days(np.array([_day(value) for value in found], dtype=np.int32))


def texts_of(found: Iterable[str | None]) -> TextCodes:
    """A dictionary of the texts, and each row's place in it."""
    places: dict[str | None, int] = {None: ABSENT}
    values = np.array([places.setdefault(text, len(places) - 1) for text in found], dtype=np.int32)
    return TextCodes(values, tuple(text for text in places if text is not None))


def _day(value: object) -> int:
    match value:
        case datetime.date():
            return value.toordinal() - EPOCH
        case int():
            return min(max(value, NO_DAY + 1), -NO_DAY - 1)
        case _:
            return NO_DAY


def _objects(keys: Sequence[object]) -> NDArray[np.object_]:
    found = np.empty(len(keys), dtype=np.object_)
    found[:] = keys
    return found


def every_column(table: Table) -> AnswerLayout:
    """The form of a question that touches every column of a table; it is never asked."""
    return AnswerLayout(whole_table(table), table, Unit.PATIENT, ((),), ())


def stat_text(paths: Iterable[str | Path], *, inode_times: bool = True) -> str:
    """A digest of the paths and the state of the file at each; OSError where one cannot be looked at.

    The time of the last change of the inode is in it too, because a copy can keep every other time; it is left out
    only for files that a reader itself touches.
    """
    states: list[tuple[str, int, int, int, int, int]] = []
    for path in sorted(str(each) for each in paths):
        found = Path(path).stat()
        changed = found.st_ctime_ns if inode_times else 0
        states.append((path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, changed))
    return digest_text(states)


def digest_text(words: object) -> str:
    """A digest of words that JSON can write down: a source may be named by a path that is nobody else's business."""
    return hashlib.sha256(json.dumps(words, ensure_ascii=True).encode()).hexdigest()
