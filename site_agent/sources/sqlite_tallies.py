"""The tally of each part read from SQLite.

Where no unit can have too many records SQLite adds them up itself. Where one may, it hands the records out as
whole numbers and `site_agent.bounding` chooses among them: its own windows would take twice as long, because
they sort every row. Units are told apart by their whole key, never by a hash of it.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlglot import exp

from site_agent.bounding import MOST_RECORDS, Coded, RecordNumber, coded_tally, record_number
from site_agent.sources.sqlite_connection import seed_of
from site_agent.sources.sqlite_dialect import SqliteDialect, read_total, written
from site_agent.statements.choosing import keys_statement, read_keys
from site_agent.statements.records import CELL, RECORDS, UNIT, TypedRows, record_cap, value_names, with_records
from site_agent.statements.tallying import read_tally, tally_statement
from site_agent.statements.trees import integer, minus, named, plus, ref, relation, times
from site_agent.tallies import Tally, finish
from wardround.federation.shape import Part, Shape
from wardround.privacy.bounded import Bounded

NUMBER = "number"
_AT_ONCE = 2**16


@dataclass(frozen=True, slots=True)
class SqliteTallies:
    """Typed rows behind a connection."""

    connection: sqlite3.Connection
    rows: TypedRows
    key: bytes = field(repr=False)
    dialect: SqliteDialect = field(default_factory=SqliteDialect)

    def bounded(self, form: Shape) -> tuple[Bounded, ...]:
        """The bounded totals of every part."""
        return tuple(finish(part, self._tally(form, part)) for part in form.parts)

    def open_keys(self, form: Shape) -> dict[str, int]:
        """How many units hold each text of the question's open column."""
        return read_keys(_shown(self._lines(keys_statement(form, self.rows, self.dialect))))

    def _tally(self, form: Shape, part: Part) -> Tally:
        if (cap := record_cap(form, part)) is not None:
            return self._capped(form, part, cap)
        lines = self._lines(tally_statement(form, part, self.rows, self.dialect))
        return read_tally(part, ([read_total(number) for number in line] for line in lines))

    def _capped(self, form: Shape, part: Part, cap: int) -> Tally:
        record = record_number(part)
        wide = value_names(part) if record.wide else ()
        wanted = [ref(UNIT), named(_number(part, record), NUMBER), *(ref(name) for name in wide)]
        statement = exp.select(*wanted).from_(relation(RECORDS))
        found = self._some(with_records(statement, form, part, self.rows, self.dialect))
        return coded_tally(_coded(found, len(wide), self.key), part, cap=cap, key=self.key)

    def _lines(self, statement: exp.Query) -> Iterator[Sequence[object]]:
        return itertools.chain.from_iterable(self._some(statement))

    def _some(self, statement: exp.Query) -> Iterator[list[Sequence[object]]]:
        """Some lines at a time."""
        cursor = self.connection.execute(written(statement))
        while lines := cursor.fetchmany(_AT_ONCE):
            yield lines


def _number(part: Part, record: RecordNumber) -> exp.Expression:
    """The record as one whole number; see `RecordNumber`."""
    number: exp.Expression = ref(CELL)
    if record.wide:
        return number
    for name, bits, lowest in zip(value_names(part), record.value_bits, record.lowest, strict=True):
        number = plus(times(number, integer(1 << bits)), minus(ref(name), integer(lowest)))
    return number


def _coded(found: Iterable[list[Sequence[object]]], wide: int, key: bytes) -> Coded:
    """Records beside codes 1, 2, … of their units, in the order in which these first come."""
    codes: dict[object, int] = {}
    pieces: list[np.ndarray] = []
    records = 0
    for some in found:
        piece = np.empty((2 + wide, len(some)), dtype=np.int64)
        units, *values = zip(*some, strict=True)
        piece[0] = [codes.setdefault(unit, len(codes) + 1) for unit in units]
        piece[1:] = values
        pieces.append(piece)
        records += len(some)
        if records > MOST_RECORDS:
            raise MemoryError
    every = np.concatenate(pieces, axis=1) if pieces else np.empty((2 + wide, 0), dtype=np.int64)
    seeds = np.array([0, *(seed_of(_bytes(unit), key) for unit in codes)], dtype=np.uint64)
    unit = every[0].astype(np.uint64)
    number = every[1].astype(np.uint64)
    return Coded(unit, seeds[unit], number, np.ones(number.size, dtype=np.uint64), tuple(every[2:]))


def _bytes(unit: object) -> bytes:
    return unit if isinstance(unit, bytes) else repr(unit).encode()


def _shown(lines: Iterable[Sequence[object]]) -> Iterator[tuple[str, object]]:
    """Keys as text; bytes that are no UTF-8 become characters that no key may have."""
    for key, number in lines:
        if isinstance(key, bytes):
            yield key.decode("utf-8", "surrogateescape"), number
