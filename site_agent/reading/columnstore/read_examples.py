"""From the typed rows of any source to examples: the cohort's complete rows, each unit's together.

Of a patient with more rows than `MOST_ROWS` those that come first in a keyed order of what they hold stand for all:
which they are depends on the patient's own rows and the site's key alone, and they are known without holding others.

A row that lacks a feature or the target, or whose category is none of the public values, is left out. Snapshots
cannot be read here: they number patients anew, and a fold belongs to the patient's own key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import (
    ABSENT,
    BATCH_ROWS,
    OTHER,
    Batch,
    Booleans,
    Days,
    Integers,
    Numbers,
    Places,
    Preparable,
    TextCodes,
    Values,
)
from site_agent.reading.columnstore.array_cells import present, selected
from site_agent.reading.columnstore.clustering import KeyedOrder, clustered
from site_agent.reading.columnstore.column_encoding import NO_INTEGER, CodeRange, KeptColumn, encoded
from site_agent.reading.examples import MOST_ROWS, Examples, Folds, UnitKey, row_bytes, step_table
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import SchemaRefused, SourceFailed
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import Input, Matrix, Vector
from wardround.federation.study.study import Column, Unit

_PENDING = 2**20
_FAILURES = (SchemaRefused, OSError, MemoryError, LookupError, ValueError, ArithmeticError)


def read_examples(form: StepLayout, source: Preparable, *, key: bytes, limits: Limits | None = None) -> Examples:
    """The examples of a step, from one state of the source; `key` is the site's own secret.

    Raises:
        SourceFailed: always the same words, whatever went wrong.
    """
    try:
        return _read(_Reading(form, key, limits or Limits()), source).examples()
    except _FAILURES:
        # Raised below, outside: an error raised here would carry what failed as its context.
        pass
    raise SourceFailed


def _read(reading: _Reading, source: Preparable) -> _Reading:
    """A function of its own, so that the last batch is gone before rows are put in order."""
    for batch in source.batches(reading.table):
        reading.add(batch)
    return reading


class _Reading:
    """Rows as they come, batch by batch."""

    def __init__(self, form: StepLayout, key: bytes, limits: Limits) -> None:
        self.table = step_table(form)
        self._form, self._key = form, key
        self._most = limits.training_bytes // row_bytes(len(form.inputs))
        self._units = _Units()
        self._inputs: list[Matrix] = []
        self._target: list[Vector] = []
        self._waiting = self._kept = 0

    def add(self, batch: Batch) -> None:
        """Keep the complete rows of the cohort."""
        if batch.units.size == 0:
            return
        kept = np.flatnonzero(self._mask(batch))
        block = np.empty((kept.size, len(self._form.inputs)))
        for place, each in enumerate(self._form.inputs):
            block[:, place] = self._values(batch, each)[kept]
        self._inputs.append(block)
        self._target.append(self._values(batch, self._form.target)[kept])
        self._units.add(batch.units[kept])
        self._waiting += kept.size
        if self._waiting > max(_PENDING, self._kept):
            self._narrow()

    def examples(self) -> Examples:
        """All of them: the fold that is learnt from first, the rows of a unit together."""
        inputs, target = self._narrow()
        self._inputs.clear()
        keys, unit = self._units.numbered()
        held_out = Folds(self._key, self._form.step.training.held_out).held_out(keys, len(keys))
        if self._form.unit is Unit.EVENT:
            held_out, unit = held_out[unit], np.arange(unit.size)
        # Held-out units last, so that each fold is a slice.
        numbers = np.empty(held_out.size, dtype=np.int64)
        numbers[np.argsort(held_out, kind="stable")] = np.arange(held_out.size)
        places, starts = self._together(numbers[unit], inputs, target)
        last = np.arange(held_out.size) >= held_out.size - np.count_nonzero(held_out)
        return Examples(inputs[places], target[places], starts, last)

    def _narrow(self) -> tuple[Matrix, Vector]:
        """The rows so far, without those of a patient that no longer can be among its first."""
        inputs = np.concatenate(self._inputs or [np.empty((0, len(self._form.inputs)))])
        self._inputs.clear()
        target = np.concatenate([np.empty(0), *self._target])
        if self._form.unit is Unit.PATIENT and (crowded := self._units.crowded(MOST_ROWS)).size:
            order = self._order(inputs[crowded], target[crowded])
            kept = np.ones(target.size, dtype=np.bool_)
            kept[crowded] = self._units.first(crowded, order, MOST_ROWS)
            inputs, target = inputs[kept], target[kept]
            self._units.keep(kept)
        if target.size > self._most:
            raise MemoryError
        self._inputs, self._target, self._waiting, self._kept = [inputs], [target], 0, target.size
        return inputs, target

    def _together(
        self, unit: NDArray[np.int64], inputs: Matrix, target: Vector
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        if unit.size == 0 or int(unit.max()) == unit.size - 1:
            # Every unit has one row.
            return np.argsort(unit), np.arange(unit.size + 1)
        places, begins = clustered(unit, self._order(inputs, target))
        return places, np.append(np.flatnonzero(begins), unit.size)

    def _order(self, inputs: Matrix, target: Vector) -> NDArray[np.uint64]:
        """Where a row stands among its unit's: by what it holds, not by where it stood."""
        order, some = KeyedOrder(self._key), [np.empty(0, dtype=np.uint64)]
        for start in range(0, target.size, BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            # Adding zero takes the sign off a zero: rows that are equal stand anywhere among themselves.
            some.append(order.of_rows([(column + 0.0).view(np.uint64) for column in (*inputs[part].T, target[part])]))
        return np.concatenate(some)

    def _mask(self, batch: Batch) -> NDArray[np.bool_]:
        cohort = self._form.step.training.model.cohort
        mask = np.ones(batch.units.size, dtype=np.bool_)
        if cohort is not None:
            mask &= selected(cohort, lambda name: _kept(self.table.column(name), batch))(slice(0, batch.units.size))
        for name in {each.column for each in (*self._form.inputs, self._form.target)}:
            mask &= _usable(_public(self.table.column(name), batch.columns[name]))
        return mask

    def _values(self, batch: Batch, wanted: Input) -> Vector:
        column = self.table.column(wanted.column)
        found = _public(column, batch.columns[column.name])
        match found:
            case Places(place) if wanted.value is not None:
                return np.equal(place, column.values.index(wanted.value)).astype(np.float64)
            case Numbers(values) | Integers(values, _) | Booleans(values):
                return np.clip(np.nan_to_num(values.astype(np.float64)), wanted.low, wanted.high)
            case _:
                raise SourceFailed(private="a source handed out a column in another type than the study's")


class _Units:
    """The unit keys of all rows: whole numbers as they are, others by the number of their first coming."""

    def __init__(self) -> None:
        self._places: dict[UnitKey, int] = {}
        self._found: list[NDArray[np.int64]] = []
        self._whole: bool | None = None

    def add(self, keys: NDArray[np.int64] | NDArray[np.object_]) -> None:
        if keys.size == 0:
            return
        whole = keys.dtype != np.object_
        if self._whole not in (None, whole):
            raise SourceFailed(private="a source handed out unit keys of two kinds")
        self._whole = whole
        if whole:
            self._found.append(keys.astype(np.int64))
            return
        places = self._places
        numbers = (places.setdefault(each, len(places)) for each in keys.tolist())
        self._found.append(np.fromiter(numbers, dtype=np.int64, count=keys.size))

    def crowded(self, most: int) -> NDArray[np.intp]:
        """The places of rows whose unit has more than so many."""
        _, place, sizes = np.unique(self._every(), return_inverse=True, return_counts=True)
        return np.flatnonzero(sizes[place] > most)

    def first(self, places: NDArray[np.intp], order: NDArray[np.uint64], most: int) -> NDArray[np.bool_]:
        """Whether each of some rows is among the first of its unit's, which all are among them."""
        units = self._every()[places]
        line = np.lexsort((order, units))
        begins = np.flatnonzero(np.diff(units[line], prepend=units[line[:1]] - 1))
        rank = np.arange(line.size) - np.repeat(begins, np.diff(begins, append=line.size))
        found = np.zeros(places.size, dtype=np.bool_)
        found[line] = rank < most
        return found

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Forget all rows but some."""
        self._found = [self._every()[rows]]

    def _every(self) -> NDArray[np.int64]:
        self._found = [np.concatenate([np.empty(0, dtype=np.int64), *self._found])]
        return self._found[0]

    def numbered(self) -> tuple[list[UnitKey], NDArray[np.int64]]:
        """Every key, and the place of each row's among them."""
        found = self._every()
        if self._whole is False:
            return list(self._places), found
        keys, places = np.unique(found, return_inverse=True)
        return keys.tolist(), places.astype(np.int64)


def _public(column: Column, values: Values) -> Values:
    """A category with public values by its places among them, however it came."""
    if not isinstance(values, TextCodes) or column.open:
        return values
    places = {text: place for place, text in enumerate(column.values)}
    table = np.array([*(places.get(text, OTHER) for text in values.texts), ABSENT], dtype=np.int32)
    return Places(table[values.values])


def _usable(values: Values) -> NDArray[np.bool_]:
    match values:
        case Numbers(number):
            return np.isfinite(number)
        case Places(place):
            return np.greater_equal(place, 0)
        case _:
            return present(values)


def _kept(column: Column, batch: Batch) -> KeptColumn:
    """A column of a batch as one of a snapshot, which is what a cohort is asked of."""
    values = _public(column, batch.columns[column.name])
    texts: tuple[str, ...] = ()
    raw: NDArray[np.generic]
    match values:
        case Integers(whole, known):
            raw = np.where(known, np.maximum(whole, NO_INTEGER + 1), NO_INTEGER)
        case TextCodes(place, found):
            raw, texts = place, tuple(found)
        case Numbers(found) | Places(found) | Booleans(found) | Days(found):
            raw = found
    extent = CodeRange(column)
    extent.see(raw)
    layout = extent.layout()
    return KeptColumn(column, layout, encoded(raw, column, layout), texts)  # type: ignore[arg-type]
