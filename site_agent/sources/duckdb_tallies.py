"""The tally of each part read from DuckDB, a share of the units at a time where they must be brought within a cap.

Memory is bounded: a share that holds more records than fit is read again as several smaller ones. A unit is
read by one statement only, so a file that changes meanwhile cannot make it count twice.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

import duckdb
import numpy as np
from sqlglot import exp

from site_agent.bounding import MOST_RECORDS, Coded, coded_tally, packed_tally, record_number
from site_agent.sources.duckdb_dialect import DuckdbDialect
from site_agent.sources.duckdb_records import (
    COPIES,
    NUMBER,
    SEED,
    Keys,
    Slice,
    coded_records,
    numbered_records,
    wide_names,
)
from site_agent.statements.choosing import keys_statement, read_keys
from site_agent.statements.records import UNIT, TypedRows, record_cap
from site_agent.statements.tallying import is_coded, read_tally, tally_from, tally_statement
from site_agent.statements.trees import ref
from site_agent.tallies import Tally, finish
from wardround.federation.shape import Part, Shape
from wardround.privacy.bounded import Bounded

_SHARES = (1, 8, 64, 512)
_WORD = 64


class _Crammed(Exception):
    """A share holds more records than fit into memory."""


@dataclass(frozen=True, slots=True)
class DuckdbTallies:
    """Typed rows behind a connection; `keys` is None where unit keys are no whole numbers of 64 bits."""

    connection: duckdb.DuckDBPyConnection
    rows: TypedRows
    keys: Keys | None
    key: bytes
    most_records: int

    def bounded(self, form: Shape) -> tuple[Bounded, ...]:
        """The bounded totals of every part."""
        return tuple(finish(part, self._tally(form, part)) for part in form.parts)

    def open_keys(self, form: Shape) -> dict[str, int]:
        """How many units hold each text of the question's open column."""
        for shares in _SHARES:
            with contextlib.suppress(duckdb.OutOfMemoryException):
                found: Counter[str] = Counter()
                for place in range(shares):
                    statement = keys_statement(form, Slice(place, shares).among(self.rows), self._dialect)
                    found.update(read_keys(self.connection.execute(_text(statement)).fetchall()))
                return dict(found)
        raise MemoryError

    @property
    def _dialect(self) -> DuckdbDialect:
        return DuckdbDialect(self.key)

    def _tally(self, form: Shape, part: Part) -> Tally:
        if (cap := record_cap(form, part)) is not None:
            return self._capped(form, part, cap)
        found = self.connection.execute(_text(tally_statement(form, part, self.rows, self._dialect)))
        if is_coded(part):
            cells, codes, numbers = found.fetchnumpy().values()
            return tally_from(part, cells, codes, numbers)
        return read_tally(part, found.fetchall())

    def _capped(self, form: Shape, part: Part, cap: int) -> Tally:
        for shares in _SHARES:
            with contextlib.suppress(_Crammed):
                first, *others = (self._share(form, part, cap, Slice(place, shares)) for place in range(shares))
                # In Python's whole numbers, because shares together may leave 64 bits.
                return first if not others else np.sum([each.astype(np.object_) for each in (first, *others)], axis=0)
        raise MemoryError

    def _share(self, form: Shape, part: Part, cap: int, share: Slice) -> Tally:
        keys, rows, record = self.keys, share.among(self.rows), record_number(part)
        if keys is not None and not record.wide and keys.bits + record.bits <= _WORD:
            found = self._read(numbered_records(form, part, rows, self._dialect, keys))
            return packed_tally(found[NUMBER], part, cap=cap, key=self.key, lowest_key=keys.low)
        whole = keys is not None
        found = self._read(coded_records(form, part, rows, self._dialect, cap=cap, whole_keys=whole))
        wide = tuple(found[name] for name in wide_names(part))
        coded = Coded(found[UNIT], found[SEED], found[NUMBER], found[COPIES], wide)
        return coded_tally(coded, part, cap=cap, key=self.key)

    def _read(self, statement: exp.Select) -> dict[str, np.ndarray]:
        limited = statement.limit(self.most_records + 1, copy=False)
        found = self.connection.execute(_text(limited)).fetchnumpy()
        records = int(found[COPIES].sum()) if COPIES in found else found[NUMBER].size
        if found[NUMBER].size > self.most_records or records > MOST_RECORDS:
            raise _Crammed
        return found


def _text(statement: exp.Query) -> str:
    # Without the copy that the generator makes by default: no statement is used twice.
    return statement.sql(dialect="duckdb", copy=False)


def key_range(connection: duckdb.DuckDBPyConnection, rows: exp.Query) -> Keys:
    """The lowest and highest unit key of typed rows whose keys are whole numbers."""
    ends = exp.select(exp.Min(this=ref(UNIT)), exp.Max(this=ref(UNIT))).from_(rows.subquery("typed"))
    low, high = connection.execute(ends.sql(dialect="duckdb")).fetchall()[0]
    return Keys(int(low or 0), int(high or 0))
