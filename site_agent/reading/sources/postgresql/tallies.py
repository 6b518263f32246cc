"""The tally of each part worked out by PostgreSQL: only its lines come back.

Where a unit may have more records than count, the hospital's own rank decides if it has one; else keys that are
whole numbers go through one sort of numbers, and all others through windows. Which way a unit goes follows
from its own key, never from who else is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from psycopg import errors
from sqlglot import exp

from site_agent.reading.bounding.tally import added, finish, record_cap
from site_agent.reading.sources.postgresql.choosing import (
    Packing,
    levels_once,
    packed_tally_statement,
    packing,
    ranked_tally_statement,
    restricted,
)
from site_agent.reading.sources.postgresql.connection import Connection, each_line
from site_agent.reading.sources.postgresql.dialect import PostgresqlDialect
from site_agent.reading.statements.records import UNIT, TypedRows
from site_agent.reading.statements.sql_trees import paren, ref
from site_agent.reading.statements.tally_sql import (
    capped_tally_statement,
    keys_statement,
    read_keys,
    read_tally,
    tally_statement,
)
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Tally
from wardround.privacy.noise.vectors import Bounded

RANK = "rank"
_PEEKED = 1000
Line = tuple[object, ...]

_CRAMMED = (errors.ProgramLimitExceeded, errors.OutOfMemory, errors.InternalError)


@dataclass(frozen=True, slots=True)
class PostgresqlTallies:
    """Typed rows behind a connection; where `ranked`, they have the hospital's rank beside them."""

    connection: Connection
    rows: TypedRows
    dialect: PostgresqlDialect
    ranked: bool = False
    arrays: bool = True
    peeked: int = _PEEKED

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        """The bounded totals of every part."""
        return tuple(finish(part, self._tally(form, part)) for part in form.parts)

    def open_keys(self, form: AnswerLayout) -> dict[str, int]:
        """How many units hold each text of the question's open column."""
        return read_keys(self._lines(keys_statement(form, self.rows, self.dialect)))

    def _tally(self, form: AnswerLayout, part: Part) -> Tally:
        cap = record_cap(form, part)
        if cap is None:
            return self._counted(form, part, self.rows)
        if self.ranked and part.records is Records.ROWS:
            # Different whole numbers from 1 to the cap: the database keeps them different (see `check_rank`).
            first = exp.Between(this=ref(RANK), low=exp.Literal.number(1), high=exp.Literal.number(cap))
            return self._counted(form, part, restricted(self.rows, first))
        packed = packing(part) if self.dialect.whole_keys else None
        if packed is None:
            return self._windowed(form, part, self.rows, cap)
        return self._packed(form, part, cap, packed)

    def _counted(self, form: AnswerLayout, part: Part, rows: TypedRows) -> Tally:
        statement = tally_statement(form, part, rows, self.dialect)
        return read_tally(part, self._lines(levels_once(statement, part)))

    def _windowed(self, form: AnswerLayout, part: Part, rows: TypedRows, cap: int) -> Tally:
        statement = capped_tally_statement(form, part, rows, self.dialect, cap=cap)
        return read_tally(part, self._lines(levels_once(statement, part)))

    def _packed(self, form: AnswerLayout, part: Part, cap: int, packed: Packing) -> Tally:
        if self.arrays:
            # One array holds a gibibyte at most; windows make the same choice, and are sorted on the server's disk.
            with contextlib.suppress(*_CRAMMED), self.connection.transaction():
                return self._by_array(form, part, cap, packed)
        rows = restricted(self.rows, packed.holds(ref(UNIT)))
        statement = ranked_tally_statement(form, part, rows, self.dialect, cap=cap, packed=packed)
        tally = read_tally(part, self._lines(levels_once(statement, part)))
        return added(tally, self._beyond(form, part, cap, packed))

    def _by_array(self, form: AnswerLayout, part: Part, cap: int, packed: Packing) -> Tally:
        rows = self.rows
        beyond = packed.folded and self._begin_beyond(rows, packed)
        if beyond:
            rows = restricted(rows, packed.holds(ref(UNIT)))
        # PostgreSQL expects few numbers from an array and would sort them once more to count them.
        self.connection.execute("SET LOCAL enable_sort = off")
        statement = packed_tally_statement(form, part, rows, self.dialect, cap=cap, packed=packed)
        seen = _Fitting(self._lines(levels_once(statement, part)))
        tally = read_tally(part, seen)
        self.connection.execute("SET LOCAL enable_sort = on")
        if not (beyond or seen.others):
            return tally
        return added(tally, self._beyond(form, part, cap, packed))

    def _beyond(self, form: AnswerLayout, part: Part, cap: int, packed: Packing) -> Tally:
        """Of the units whose keys do not fit beside their records."""
        others = restricted(self.rows, paren(exp.Not(this=paren(packed.holds(ref(UNIT))))))
        return self._windowed(form, part, others, cap)

    def _begin_beyond(self, rows: TypedRows, packed: Packing) -> bool:
        """Whether one of the first rows has a key that does not fit: then such rows are not sorted in vain.

        It saves time and decides nothing: every unit goes the same way, and the totals are the same.
        """
        first = exp.select(ref(UNIT)).from_(rows.query.subquery("typed")).limit(self.peeked)
        far = exp.select("1").from_(first.subquery("first")).where(exp.Not(this=paren(packed.holds(ref(UNIT)))))
        return bool(list(self._lines(far.limit(1))))

    def _lines(self, statement: exp.Query) -> Iterator[Line]:
        return each_line(self.connection, statement)


class _Fitting:
    """The lines of a tally that have a cell; `others` says, once they were read, whether one had none."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines, self.others = lines, False

    def __iter__(self) -> Iterator[Line]:
        for line in self._lines:
            if line[0] is None:
                self.others = True
            else:
                yield line
