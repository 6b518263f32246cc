"""Typed rows out of DuckDB for preparation: all units, a share of them at a time, so that memory stays bounded.

A share is read by one statement and holds its units whole. Values come as plain numbers; only texts whose values
are not public, and unit keys that are no whole numbers, come as text. A share that holds too many rows, because one
of its units does, is read line by line, which takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from site_agent.reading.batches import (
    ABSENT,
    BATCH_ROWS,
    NO_DAY,
    OTHER,
    Batch,
    Booleans,
    Days,
    Integers,
    Numbers,
    Places,
    Values,
    rows_at_once,
    texts_of,
)
from site_agent.reading.bounding.unit_shares import UnitShare
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb.dialect import DuckdbDialect, literal
from site_agent.reading.sources.duckdb.records import among
from site_agent.reading.statements.records import UNIT, TypedRows, column_name
from site_agent.reading.statements.sql_trees import call, cast, counted, integer, is_null, named, present, ref
from wardround.federation.errors import SourceFailed
from wardround.federation.study.study import Column, ColumnType, Table

_SHARE_ROWS = 2**21
_TEXT_BYTES = 256
_PRESENT = "p_"

Found = Mapping[str, NDArray[np.generic]]


def duckdb_batches(
    connection: duckdb.DuckDBPyConnection,
    rows: TypedRows,
    table: Table,
    *,
    whole_keys: bool,
    share_rows: int = _SHARE_ROWS,
) -> Iterator[Batch]:
    """Every row of `rows` that has a unit key; `whole_keys` says that keys are whole numbers of 64 bits."""
    known = TypedRows(exp.select("*").from_(rows.query.subquery("typed")).where(present(ref(UNIT)), copy=False))
    number = int(_read(connection, exp.select(named(counted(), "n")).from_(known.query.subquery("known")))["n"][0])
    shares = max(-(-number // share_rows), 1)
    for place in range(shares):
        statement = _plain(among(UnitShare(place, shares), known), table, whole_keys=whole_keys)
        found = _read(connection, statement.limit(2 * share_rows + 1))
        if found[UNIT].size > 2 * share_rows:
            del found
            yield from _line_by_line(connection, statement, table)
            continue
        for start in range(0, found[UNIT].size, BATCH_ROWS):
            yield _batch(found, table, slice(start, start + BATCH_ROWS))


def share_rows_of(table: Table, limits: Limits) -> int:
    """How many rows of a table a share may hold: twice as many may come at once, and take twice their room for that."""
    texts = 1 + sum(column.open for column in table.columns)
    row_bytes = 16 * len(table.columns) + _TEXT_BYTES * texts
    return max(min(limits.array_bytes // (4 * row_bytes), _SHARE_ROWS), 1)


def _line_by_line(connection: duckdb.DuckDBPyConnection, statement: exp.Select, table: Table) -> Iterator[Batch]:
    """The batches of one statement, which DuckDB works out while its lines are fetched."""
    names = [column.alias for column in statement.expressions]
    at_once = rows_at_once(table)
    try:
        lines = connection.execute(statement.sql(dialect="duckdb"))
        while some := lines.fetchmany(at_once):
            values = zip(*some, strict=True)
            found = {name: _array(column) for name, column in zip(names, values, strict=True)}
            yield _batch(found, table, slice(0, len(some)))
        return
    except (duckdb.Error, MemoryError, RuntimeError, ValueError):
        pass
    raise SourceFailed


def _array(values: Sequence[object]) -> NDArray[np.generic]:
    """As DuckDB itself would have handed them out: what holds a text is an array of objects."""
    if any(isinstance(value, str) for value in values) or None in values:
        found = np.empty(len(values), dtype=np.object_)
        found[:] = values
        return found
    return np.array(values)


def _read(connection: duckdb.DuckDBPyConnection, statement: exp.Select) -> Found:
    try:
        found = connection.execute(statement.sql(dialect="duckdb")).fetchnumpy()
        return {name: np.ma.getdata(values) for name, values in found.items()}
    except (duckdb.Error, MemoryError, RuntimeError, ValueError):
        # Raised below, outside: an error raised here would carry the driver's text as its context.
        pass
    raise SourceFailed


def _plain(rows: TypedRows, table: Table, *, whole_keys: bool) -> exp.Select:
    columns = [named(cast(ref(UNIT), "BIGINT" if whole_keys else "VARCHAR"), UNIT)]
    for column in table.columns:
        value = ref(column_name(column.name))
        columns.append(named(_number(value, column), column_name(column.name)))
        if column.type is ColumnType.INTEGER:
            columns.append(named(present(value.copy()), _PRESENT + column.name))
    return exp.select(*columns).from_(rows.query.subquery("mine"))


def _number(value: exp.Expression, column: Column) -> exp.Expression:
    """The value as a number, and one of its own where there is none."""
    match column.type:
        case ColumnType.NUMBER:
            return call("COALESCE", value, literal(float("nan")))
        case ColumnType.INTEGER:
            return call("COALESCE", value, integer(0))
        case ColumnType.BOOLEAN:
            return call("COALESCE", cast(value, "TINYINT"), cast(integer(ABSENT), "TINYINT"))
        case ColumnType.DATE:
            days = call("DATE_DIFF", exp.Literal.string("day"), cast(exp.Literal.string("1970-01-01"), "DATE"), value)
            return cast(call("COALESCE", days, integer(NO_DAY)), "INTEGER")
        case ColumnType.CATEGORY if column.open:
            return value
        case ColumnType.CATEGORY:
            place = call("COALESCE", DuckdbDialect(b"").place(value, column.values), integer(OTHER))
            return cast(exp.Case().when(is_null(value.copy()), integer(ABSENT)).else_(place), "INTEGER")


def _batch(found: Found, table: Table, rows: slice) -> Batch:
    units = found[UNIT][rows]
    columns = {column.name: _values(found, column, rows) for column in table.columns}
    return Batch(units.astype(np.int64) if units.dtype != np.object_ else units.astype(np.object_), columns)


def _values(found: Found, column: Column, rows: slice) -> Values:
    values = found[column_name(column.name)][rows]
    match column.type:
        case ColumnType.NUMBER:
            return Numbers(values.astype(np.float64, copy=False))
        case ColumnType.INTEGER:
            return Integers(values.astype(np.int64, copy=False), found[_PRESENT + column.name][rows].astype(np.bool_))
        case ColumnType.BOOLEAN:
            return Booleans(values.astype(np.int8, copy=False))
        case ColumnType.DATE:
            return Days(values.astype(np.int32, copy=False))
        case ColumnType.CATEGORY if column.open:
            return texts_of(None if not isinstance(text, str) else text for text in values.tolist())
        case ColumnType.CATEGORY:
            return Places(values.astype(np.int32, copy=False))
