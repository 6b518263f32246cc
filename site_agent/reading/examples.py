"""The rows a model learns from, unit by unit, and who of them is held out.

What one unit gives to a step depends on its own rows and on public numbers, never on other units or on where
its rows stood: so a unit's rows are in an order of their own, and its fold is a keyed hash of its own key.

The examples of the training that is under way stay in memory, so that its rounds read rows once. They are read again
when the source says that it changed, when it cannot say and they are some minutes old, when another training asks, or
when a question had need of the memory. After the last round nothing is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import Fingerprint, Preparable
from wardround.federation.errors import FederationError
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import RATE_UNIT, Matrix, Vector
from wardround.federation.question.cohort import leaves
from wardround.federation.study.study import Table

UnitKey = int | str | bytes
MOST_ROWS = 4096
"""Of a patient with more rows a keyed choice of so many stands for all of them, so that memory is bounded."""

_HASH_BYTES = 4
_INPUT_BYTES, _ROW_BYTES = 16, 64
KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Complete rows within their public bounds; unit u has those from starts[u] to starts[u + 1]. Secret."""

    inputs: Matrix = field(repr=False)
    target: Vector = field(repr=False)
    starts: NDArray[np.intp] = field(repr=False)

    @property
    def units(self) -> int:
        return self.starts.size - 1


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Complete rows within their public bounds, unit by unit, and which units are held out. Secret.

    Every unit has at least one row.
    """

    inputs: Matrix = field(repr=False)
    target: Vector = field(repr=False)
    starts: NDArray[np.intp] = field(repr=False)
    held_out: NDArray[np.bool_] = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse rows that are nobody's, and units without rows."""
        ends = (self.starts[0], self.starts[-1]) == (0, self.target.size)
        if not ends or self.held_out.size != self.starts.size - 1 or not (self.starts[1:] > self.starts[:-1]).all():
            raise ValueError("the rows of examples do not belong to their units")

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + self.target.nbytes + self.starts.nbytes + self.held_out.nbytes

    def fold(self, *, held_out: bool) -> Rows:
        """The units of one fold; nothing is copied where they stand together, as they do when read."""
        mine = self.held_out if held_out else ~self.held_out
        if not mine.any():
            return Rows(self.inputs[:0], self.target[:0], np.zeros(1, dtype=np.intp))
        first = int(mine.argmax())
        end = first + int(np.count_nonzero(mine))
        if mine[first:end].all():
            low, high = int(self.starts[first]), int(self.starts[end])
            starts = self.starts[first : end + 1]
            return Rows(self.inputs[low:high], self.target[low:high], starts - low if low else starts)
        return picked(Rows(self.inputs, self.target, self.starts), np.flatnonzero(mine))


def picked(rows: Rows, units: NDArray[np.intp]) -> Rows:
    """A copy of the rows of some units."""
    if rows.units == rows.target.size:
        return Rows(rows.inputs.take(units, axis=0), rows.target.take(units), np.arange(units.size + 1))
    firsts = rows.starts[units]
    sizes = rows.starts[units + 1] - firsts
    starts = np.concatenate((np.zeros(1, dtype=np.intp), np.cumsum(sizes)))
    places = np.repeat(firsts - starts[:-1], sizes) + np.arange(starts[-1])
    return Rows(rows.inputs.take(places, axis=0), rows.target.take(places), starts)


class Folds:
    """Who is held out: a keyed hash of a unit's own key, so that nobody ever moves and nobody can choose."""

    def __init__(self, key: bytes, share: Fraction) -> None:
        self._key = hashlib.blake2b(b"units", key=key, digest_size=32, person=b"wardround folds").digest()
        # A whole number of 2^-32, as a hash of 32 bits is.
        self._below = int(share * RATE_UNIT)

    def held_out(self, keys: Iterable[UnitKey], count: int) -> NDArray[np.bool_]:
        """Whether each key is held out."""
        if self._below == 0:
            return np.zeros(count, dtype=np.bool_)
        return np.fromiter((self._hash(key) < self._below for key in keys), dtype=np.bool_, count=count)

    def _hash(self, key: UnitKey) -> int:
        found = hashlib.blake2b(key_text(key), key=self._key, digest_size=_HASH_BYTES).digest()
        return int.from_bytes(found, "little")


def key_text(key: UnitKey) -> bytes:
    """A unit's key as the same bytes from every kind of source: a whole number and its text are one key.

    SQLite hands out bytes that begin with the key's kind.
    """
    match key:
        case int():
            return str(key).encode()
        case str():
            return key.encode("utf-8", "surrogatepass")
        case bytes() if key[:1] == b"r":
            return repr(struct.unpack("<d", key[1:])[0]).encode()
        case bytes():
            return key[1:]


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    asked: object
    state: Fingerprint
    read_at_seconds: float
    examples: Examples


class LastExamples:
    """The examples of one training at a time. Secret."""

    def __init__(self, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._now_seconds = now_seconds
        self._kept: _Kept | None = None

    def of(self, form: StepLayout, source: object, read: Callable[[StepLayout], Examples]) -> Examples:
        """What `read` gives, or gave for the same training and the same state of its source."""
        asked, state, now = _asked(form), _state(form, source), self._now_seconds()
        kept = self._kept
        if kept is None or state is None or not self._is_good(kept, asked, state, now):
            # Let go first: two of them need not fit into memory.
            self._kept = kept = None
            examples = read(form)
        else:
            examples = kept.examples
        training = form.step.training
        if state is None or form.step.place == training.rounds - 1:
            self._kept = None
        elif kept is None:
            self._kept = _Kept(asked, state, now, examples)
        return examples

    def make_room(self, most_bytes: int) -> None:
        """Let go of examples that take more than so much: a question may need the memory."""
        if self._kept is not None and self._kept.examples.nbytes > most_bytes:
            self._kept = None

    def _is_good(self, kept: _Kept, asked: object, state: Fingerprint, now: float) -> bool:
        fresh = state.sees_changes or now - kept.read_at_seconds <= KEPT_SECONDS
        return kept.asked == asked and kept.state == state and fresh


def _asked(form: StepLayout) -> object:
    model = form.step.training.model
    return form.table, form.unit, form.inputs, form.target, model.cohort, form.step.training.held_out


def _state(form: StepLayout, source: object) -> Fingerprint | None:
    """The state of the source, looked at before it is read; None where it cannot be told."""
    if not isinstance(source, Preparable):
        return None
    try:
        return source.fingerprint(form.table)
    except FederationError:
        return None


def row_bytes(inputs: int) -> int:
    """What a row of a training takes at most: its numbers as they came and in order, and what orders them."""
    return _INPUT_BYTES * (inputs + 1) + _ROW_BYTES


def step_table(form: StepLayout) -> Table:
    """The table with the columns that a step looks at, and no other."""
    model = form.step.training.model
    wanted = {model.target, *model.features}
    if model.cohort is not None:
        wanted |= {leaf.column for leaf in leaves(model.cohort)}
    return dataclasses.replace(form.table, columns=tuple(each for each in form.table.columns if each.name in wanted))
