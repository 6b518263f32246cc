"""The tally of each part from rows that SQLite hands out and `site_agent.reading.bounding.gathering` adds up.

SQLite would sort all rows to bring a unit's together, and sorts in memory; handing them out takes as long and holds
none. Units are told apart by their whole key, never by a hash of it. All statements of a question see one state.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from site_agent.reading.bounding.contribution_bounding import counted_tally, numbered, record_number
from site_agent.reading.bounding.gathering import gathering, most_rows
from site_agent.reading.bounding.giants import Beginnings, Numbers
from site_agent.reading.bounding.tally import added, finish, is_collapsed, record_cap
from site_agent.reading.bounding.unit_shares import GIANT, Crammed, Key, UnitShare, pieces
from site_agent.reading.sources.sqlite.connection import seed_of
from site_agent.reading.sources.sqlite.dialect import SHARE, SqliteDialect, written
from site_agent.reading.statements.records import CELL, SELECTED, UNIT, TypedRows, level_names, selected
from site_agent.reading.statements.sql_trees import call, cast, integer, joined, paren, ref, relation, text
from wardround.federation.forms.parts import AnswerLayout, Part, Tally
from wardround.privacy.noise.vectors import Bounded, IntVector

_AT_ONCE = 2**16
_COUNTED = 2**21
_MINE = "mine"
_UNIT_BYTES = 256
"""A unit's key, its number and their place in a dictionary."""

Lines = list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class SqliteTallies:
    """Typed rows behind a connection, and the memory for what is made of them."""

    connection: sqlite3.Connection
    rows: TypedRows
    key: bytes = field(repr=False)
    room_bytes: int
    dialect: SqliteDialect

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        """The bounded totals of every part."""
        return tuple(finish(part, self._tally(form, part)) for part in form.parts)

    def _tally(self, form: AnswerLayout, part: Part) -> Tally:
        return functools.reduce(added, pieces(_Gathered(self, form, part)))

    def among(self, share: UnitShare) -> tuple[TypedRows, dict[str, object]]:
        """The rows of a share's units, and the parameters of a statement over them."""
        wanted: list[exp.Expression] = []
        if share.of > 1:
            place = call(SHARE, cast(ref(UNIT), "BLOB"), integer(share.of))
            wanted.append(exp.EQ(this=place, expression=integer(share.place)))
        given: dict[str, object] = {}
        for number, unit in enumerate(share.without):
            wanted.append(exp.Not(this=paren(same_unit(unit, f"without{number}"))))
            given[f"without{number}"] = unit
        if not wanted:
            return self.rows, {}
        found = exp.select("*").from_(self.rows.query.subquery("every")).where(*wanted, copy=False)
        return TypedRows(found), given

    def some(self, statement: exp.Query, given: Mapping[str, object]) -> Iterator[Lines]:
        """Some lines of a statement at a time."""
        cursor = self.connection.execute(written(statement), given)
        while lines := cursor.fetchmany(_AT_ONCE):
            yield lines


def same_unit(unit: Key, name: str) -> exp.Expression:
    """Whether a row is the unit's that the parameter `name` is: a text only if its bytes are the same."""
    given = exp.Placeholder(this=name)
    if not isinstance(unit, bytes):
        return exp.EQ(this=ref(UNIT), expression=given)
    is_text = exp.EQ(this=call("TYPEOF", ref(UNIT)), expression=text("text"))
    return joined(exp.And, (is_text, exp.EQ(this=cast(ref(UNIT), "BLOB"), expression=given)))


class UnitNumbers:
    """Units numbered 0, 1, … in the order in which they first come."""

    def __init__(self, room_bytes: int) -> None:
        self._most = room_bytes // _UNIT_BYTES
        self._numbers: dict[Key, int] = {}

    def of(self, units: Sequence[object]) -> IntVector:
        """The numbers of some rows' units; `Crammed` where there are too many units."""
        numbers = self._numbers
        found = (numbers.setdefault(unit, len(numbers)) for unit in units)  # type: ignore[arg-type]
        every = np.fromiter(found, dtype=np.int64, count=len(units))
        if len(numbers) > self._most:
            raise Crammed
        return every

    def units(self) -> list[Key]:
        """Every unit, in the order of the numbers."""
        return list(self._numbers)

    def seeds(self, key: bytes) -> NDArray[np.uint64]:
        """What decides where the choice of each begins."""
        return np.array([unit_seed(unit, key) for unit in self._numbers], dtype=np.uint64)


def unit_seed(unit: object, key: bytes) -> int:
    """64 bits of a unit's key."""
    return seed_of(unit if isinstance(unit, bytes) else repr(unit).encode(), key)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The tally of one part. See `Reading`."""

    source: SqliteTallies
    form: AnswerLayout
    part: Part

    def at_once(self, share: UnitShare) -> Tally:
        units = UnitNumbers(self.source.room_bytes // 4)
        found = gathering(self.form, self.part, self.source.room_bytes // 2)
        for lines in self._rows(share, (UNIT, CELL, *level_names(self.part))):
            keys, cells, *levels = zip(*lines, strict=True)
            numbers = units.of(keys) if found.by_unit else np.zeros(len(lines), dtype=np.int64)
            found.add(numbers, _whole(cells), [_whole(level) for level in levels])
        return found.tally(units.seeds(self.source.key), self.source.key)

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], Tally]]:
        """Units with too many rows; records that are one for each cell are never more than the question's cells."""
        cap = record_cap(self.form, self.part)
        if cap is None or is_collapsed(self.form, self.part):
            return {}
        units = UnitNumbers(self.source.room_bytes // 4)
        sizes = np.zeros(0, dtype=np.int64)
        for lines in self._rows(share, (UNIT,)):
            more = np.bincount(units.of([line[0] for line in lines]), minlength=sizes.size)
            more[: sizes.size] += sizes
            sizes = more
        most = most_rows(self.part, self.source.room_bytes // 2) // GIANT
        keys = units.units()
        return {keys[n]: functools.partial(self._alone, keys[n], cap) for n in np.flatnonzero(sizes > most).tolist()}

    def _alone(self, unit: Key, cap: int) -> Tally:
        counts = functools.partial(self._counts, unit)
        seed = unit_seed(unit, self.source.key)
        return counted_tally(counts, self.part, cap=cap, seed=seed, key=self.source.key)

    def _counts(self, unit: Key, within: Beginnings, moved: int) -> tuple[Numbers, IntVector]:
        mine = exp.select("*").from_(self.source.rows.query.subquery("every")).where(same_unit(unit, _MINE))
        statement = self._statement(TypedRows(mine), (CELL, *level_names(self.part)))
        found = _Counted(within, moved)
        for lines in self.source.some(statement, {_MINE: unit}):
            cells, *levels = map(_whole, zip(*lines, strict=True))
            found.add(numbered(cells, levels, record_number(self.part)))
        return found.counts()

    def _rows(self, share: UnitShare, names: Sequence[str]) -> Iterator[Lines]:
        rows, given = self.source.among(share)
        return self.source.some(self._statement(rows, names), given)

    def _statement(self, rows: TypedRows, names: Sequence[str]) -> exp.Select:
        statement = exp.select(*(ref(name) for name in names)).from_(relation(SELECTED))
        return statement.with_(SELECTED, as_=selected(self.form, self.part, rows, self.source.dialect), copy=False)


class _Counted:
    """How many numbers have each beginning; see `Counts`."""

    def __init__(self, within: Beginnings, moved: int) -> None:
        self._within, self._moved = within, np.uint64(moved)
        self._numbers, self._copies = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        self._pending: list[Numbers] = []
        self._waiting = 0

    def add(self, numbers: Numbers) -> None:
        inside = np.isin(numbers >> np.uint64(self._within.moved), self._within.first)
        self._pending.append(numbers[inside] >> self._moved)
        self._waiting += numbers.size
        if self._waiting > _COUNTED:
            self._join()

    def counts(self) -> tuple[Numbers, IntVector]:
        self._join()
        return self._numbers, self._copies

    def _join(self) -> None:
        fresh, copies = np.unique(np.concatenate([self._numbers[:0], *self._pending]), return_counts=True)
        every, place = np.unique(np.concatenate((self._numbers, fresh)), return_inverse=True)
        total = np.zeros(every.size, dtype=np.int64)
        np.add.at(total, place, np.concatenate((self._copies, copies)))
        self._numbers, self._copies, self._pending, self._waiting = every, total, [], 0


def _whole(values: Sequence[object]) -> IntVector:
    return np.array(values, dtype=np.int64)
