"""The different texts of a giant in an open category, a range of them at a time, in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
from sqlglot import exp

from site_agent.reading.bounding.giants import Range
from site_agent.reading.bounding.unit_shares import Crammed, Key
from site_agent.reading.sources.duckdb.records import FIRST, MINE
from site_agent.reading.statements.bounding_sql import KEY
from site_agent.reading.statements.dialect import Dialect
from site_agent.reading.statements.records import UNIT
from site_agent.reading.statements.sql_trees import call, cast, integer, minus, named, paren, ref, text

_LOW, _HIGH, _PLACE = "low", "high", "place"
_SAMPLE = 1024


@dataclass(frozen=True, slots=True)
class DuckDBTexts:
    """See `giants.Texts`; `rows` are the (unit, key) of the unit `$mine`, which is `unit`."""

    connection: duckdb.DuckDBPyConnection
    rows: exp.Select
    unit: Key = field(repr=False)

    def number(self, within: Range) -> int:
        """How many different texts the range holds."""
        different = exp.Count(this=exp.Distinct(expressions=[ref(KEY)]))
        return int(str(self._lines(exp.select(different).from_(self._inside(within)), within)[0][0]))

    def at(self, within: Range, places: Sequence[int]) -> list[bytes]:
        """The texts at some places of the range."""
        once = exp.select(ref(KEY)).distinct().from_(self._inside(within)).subquery("once")
        order = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=[exp.Ordered(this=ref(KEY))]))
        placed = exp.select(ref(KEY), named(minus(order, integer(1)), _PLACE)).from_(once).subquery("placed")
        wanted = exp.In(this=ref(_PLACE), query=exp.select(call("UNNEST", exp.Placeholder(this=FIRST))).subquery())
        statement = exp.select(ref(KEY)).from_(placed).where(wanted, copy=False)
        return self._texts(statement, within, {FIRST: list(places)})

    def some(self, within: Range) -> list[bytes]:
        """One of each share of the texts, by a hash of them."""
        hashed = call("HASH", ref(KEY))
        share = exp.Mod(this=hashed, expression=cast(text(str(_SAMPLE)), "UBIGINT"))
        one = call("ARG_MIN", ref(KEY), hashed.copy())
        return self._texts(exp.select(one).from_(self._inside(within)).group_by(paren(share)), within, {})

    def beginning(self, number: int, dialect: Dialect) -> int:
        """Where the choice among so many texts of the unit begins."""
        unit = exp.select(named(exp.Placeholder(this=MINE), UNIT)).subquery("unit")
        statement = exp.select(dialect.beginning(ref(UNIT), integer(number))).from_(unit)
        return int(self.connection.execute(statement.sql(dialect="duckdb"), {MINE: self.unit}).fetchall()[0][0])

    def _inside(self, within: Range) -> exp.Subquery:
        found = exp.select(ref(KEY)).from_(self.rows.subquery("mine"))
        if within.low is not None:
            found = found.where(exp.GTE(this=ref(KEY), expression=exp.Placeholder(this=_LOW)))
        if within.high is not None:
            found = found.where(exp.LT(this=ref(KEY), expression=exp.Placeholder(this=_HIGH)))
        return found.subquery("inside")

    def _texts(self, statement: exp.Select, within: Range, further: dict[str, object]) -> list[bytes]:
        return [str(line[0]).encode() for line in self._lines(statement, within, further)]

    def _lines(
        self, statement: exp.Select, within: Range, further: dict[str, object] | None = None
    ) -> list[tuple[object, ...]]:
        ends = {_LOW: within.low, _HIGH: within.high}
        given = {name: end.decode() for name, end in ends.items() if end is not None}
        try:
            found = self.connection.execute(
                statement.sql(dialect="duckdb"), {MINE: self.unit, **given, **(further or {})}
            )
            return found.fetchall()
        except duckdb.OutOfMemoryException:
            pass
        raise Crammed
