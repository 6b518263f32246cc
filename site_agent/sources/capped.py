"""The records of one part read from DuckDB and brought within the cap, a share of the units at a time.

Memory is bounded: a share that holds more records than fit is read again as several smaller ones. A unit is
read by one statement only, so a file that changes meanwhile cannot make it count twice.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import duckdb
import numpy as np
from sqlglot import exp

from site_agent.bounding import LARGEST_TOTAL, MOST_RECORDS, Coded, coded_totals, packed_totals, record_number
from site_agent.records import COPIES, NUMBER, SEED, coded_records, numbered_records
from site_agent.statistics import UNIT, Slice, TypedRows
from wardround.federation.shape import Part, Shape
from wardround.privacy.bounded import IntVector

_SHARES = (1, 8, 64, 512)
_WORD = 64


class _Crammed(Exception):
    """A share holds more records than fit into memory."""


@dataclass(frozen=True, slots=True)
class Capped:
    """A part whose units may have more records than count."""

    connection: duckdb.DuckDBPyConnection
    form: Shape
    rows: TypedRows
    key: bytes
    most_records: int

    def total(self, part: Part, *, cap: int) -> IntVector:
        """The totals over all units, of each at most `cap` records."""
        for shares in _SHARES:
            with contextlib.suppress(_Crammed):
                total = np.zeros(part.dimension, dtype=np.int64)
                for place in range(shares):
                    total += self._share(part, cap, Slice(place, shares))
                    np.clip(total, -LARGEST_TOTAL, LARGEST_TOTAL, out=total)
                return total
        raise MemoryError

    def _share(self, part: Part, cap: int, share: Slice) -> IntVector:
        keys = self.rows.keys
        if keys is not None and keys.bits + record_number(part).bits <= _WORD:
            found = self._read(numbered_records(self.form, part, self.rows, keys, share))
            return packed_totals(found[NUMBER], part, cap=cap, key=self.key, lowest_key=keys.low)
        found = self._read(coded_records(self.form, part, self.rows, cap, share))
        return coded_totals(Coded(found[UNIT], found[SEED], found[NUMBER], found[COPIES]), part, cap=cap, key=self.key)

    def _read(self, statement: exp.Select) -> dict[str, np.ndarray]:
        limited = statement.limit(self.most_records + 1, copy=False)
        found = self.connection.execute(limited.sql(dialect="duckdb")).fetchnumpy()
        records = int(found[COPIES].sum()) if COPIES in found else found[NUMBER].size
        if found[NUMBER].size > self.most_records or records > MOST_RECORDS:
            raise _Crammed
        return found
