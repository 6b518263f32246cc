"""A table in a SQLite database file, read by the standard library.

What the driver says stays here: after the charge every failure becomes the one fixed sentence of
`SourceFailed`, raised where no driver error is in flight to be chained to it. Columns in SQLite have no types,
so a schema can only lack a column; what a row holds is decided row by row (`sqlite_columns`).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sqlglot import exp

from site_agent.reading.batches import Batch, Fingerprint, batch_of_rows, digest_text, rows_at_once, stat_text
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.dataset import Declared, TableSource, missing_column, refused_file
from site_agent.reading.examples import Examples
from site_agent.reading.memory_limits import Limits
from site_agent.reading.relations.hospital_select import placed, relation_query
from site_agent.reading.sources.sqlite.columns import THIS, typed_column, typed_key
from site_agent.reading.sources.sqlite.connection import reading
from site_agent.reading.sources.sqlite.dialect import SqliteDialect, written
from site_agent.reading.sources.sqlite.tallies import SqliteTallies
from site_agent.reading.sources.sqlite.texts import open_keys
from site_agent.reading.statements.records import UNIT, TypedRows, column_name, columns_needed
from site_agent.reading.statements.sql_trees import named, present, ref
from wardround.federation.errors import FederationError, SchemaRefused, SourceAway, SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Column, ColumnType, Table, parse_date
from wardround.privacy.noise.vectors import Bounded

_MAIN = "main"
_HEADER_BYTES = 28
_COUNTER = slice(24, _HEADER_BYTES)
_BESIDE = ("-wal", "-journal")
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FAILURES = (sqlite3.Error, sqlite3.Warning, OSError, MemoryError, RuntimeError, ValueError, ArithmeticError)

Answer = TypeVar("Answer")


def open_sqlite(table: str, path: str, source: TableSource, *, key: bytes, limits: Limits | None = None) -> SqliteTable:
    """The study's `table` in the database at `path`."""
    return SqliteTable(path, source.relation or table, source.timeout_seconds, key, limits or Limits(), source.declared)


@dataclass(frozen=True, slots=True)
class SqliteTable:
    """A dataset of one table."""

    path: str
    relation: str
    timeout_seconds: float
    key: bytes = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    declared: Declared = field(default_factory=Declared)

    def check(self, form: AnswerLayout) -> None:
        self._described(form.table, columns_needed(form))

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self._answered(form, lambda tallies: tallies.bounded(form))

    def keys(self, form: AnswerLayout) -> dict[str, int]:
        return self._answered(form, lambda tallies: open_keys(tallies, form))

    def examples(self, form: StepLayout) -> Examples:
        return read_examples(form, self, key=self.key, limits=self.limits)

    def fingerprint(self, table: Table) -> Fingerprint:
        """The file, what stands beside it, and the counter that every change of it raises."""
        try:
            beside = [self.path + ending for ending in _BESIDE if _holds_something(Path(self.path + ending))]
            with Path(self.path).open("rb") as file:
                counter = file.read(_HEADER_BYTES)[_COUNTER].hex()
            # Reading may make an empty log, and gives it to the database's owner, which its inode notes as a change.
            state = stat_text([self.path]) + stat_text(beside, inode_times=False)
        except OSError:
            state = counter = ""
        if not state:
            raise self._refused(table, "cannot be read")
        return Fingerprint(digest_text(["sqlite", self.relation, state, counter]), sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        """Every row once, from one state; see `Preparable.batches`."""
        self._described(table, table.columns)
        try:
            with reading(self.path, key=self.key, timeout_seconds=self.timeout_seconds) as connection:
                rows = self._typed(table, table.columns)
                wanted = [ref(UNIT), *(ref(column_name(column.name)) for column in table.columns)]
                statement = exp.select(*wanted).from_(rows.query.subquery("typed")).where(present(ref(UNIT)))
                cursor = connection.execute(written(statement))
                while lines := cursor.fetchmany(rows_at_once(table)):
                    yield batch_of_rows(table, [_line(line, table.columns) for line in lines])
                return
        except _FAILURES as error:
            fault = _fault_of(error)
        raise fault

    def _answered(self, form: AnswerLayout, answer: Callable[[SqliteTallies], Answer]) -> Answer:
        try:
            columns, dialect = columns_needed(form), SqliteDialect()
            with reading(
                self.path, key=self.key, timeout_seconds=self.timeout_seconds, words=dialect.words
            ) as connection:
                rows = self._typed(form.table, columns)
                return answer(SqliteTallies(connection, rows, self.key, self.limits.own_bytes, dialect))
        except _FAILURES as error:
            # Raised below, outside: an error raised here would carry the driver's text as its context.
            fault = _fault_of(error)
        raise fault

    # --- Schemas ------------------------------------------------------------------------------------------

    def _described(self, table: Table, columns: Sequence[Column]) -> None:
        query, names, fault, away = self._relation(table), [""], "", False
        if not Path(self.path).is_file():
            raise self._refused(table, "does not exist")
        try:
            with reading(self.path, key=self.key, timeout_seconds=self.timeout_seconds) as connection:
                # LIMIT 0: the names of the columns, and no row.
                found = connection.execute(written(query.limit(0)))
                names = [str(column[0]) for column in found.description]
        except sqlite3.OperationalError as error:
            fault, away = _fault(_code(error)), _code(error) in _LOCKED
        except _FAILURES:
            fault = "cannot be read as SQLite"
        if away:
            raise SourceAway(self._refused(table, fault).message, unread=True)
        if fault:
            raise self._refused(table, fault)
        for name in (table.unit_key, *(column.name for column in columns)):
            if name not in names:
                raise missing_column(table.name, name, path=self.path)
            if [other.lower() for other in names].count(name.lower()) > 1:
                raise self._refused(table, f"has the column {name!r} twice")

    def _relation(self, table: Table) -> exp.Query:
        return placed(relation_query(table, self.relation, "sqlite", declared=self.declared), schema=_MAIN)

    def _typed(self, table: Table, columns: Sequence[Column]) -> TypedRows:
        wanted = [named(typed_key(table.unit_key), UNIT)]
        wanted += [named(typed_column(column.name, column), column_name(column.name)) for column in columns]
        query = exp.select(*wanted).from_(self._relation(table).subquery(THIS))
        # A limit of no limit keeps SQLite from working a value out again wherever it is used.
        return TypedRows(query.limit(-1, copy=False))

    def _refused(self, table: Table, fault: str) -> SchemaRefused:
        return refused_file(table.name, fault, self.path)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _code(error: BaseException) -> int:
    """SQLite's own number, not its text."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _fault_of(error: BaseException) -> FederationError:
    """What may be said of an error in the middle of a question; a lock is waited for before the first row."""
    return SourceAway(unread=True) if _code(error) in _LOCKED else SourceFailed()


def _fault(code: int) -> str:
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "is being written by another process"
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return "cannot be opened with this user's permissions"
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_AUTH:
            return "has no relation that can be read as site.toml says"
        case _:
            return "cannot be read as SQLite"


def _line(line: Sequence[object], columns: Sequence[Column]) -> list[object]:
    unit, *values = line
    return [_tagged(unit), *map(_value, values, columns)]


def _tagged(unit: object) -> bytes:
    """Keys of different kinds as bytes that are never the same.

    Whatever kinds there are: the key enters the order of a patient's rows, which no other patient's key may change.
    """
    match unit:
        case bytes():
            return b"t" + unit
        case float():
            return b"r" + struct.pack("<d", unit)
        case _:
            return b"i" + str(unit).encode()


def _value(value: object, column: Column) -> object:
    if not isinstance(value, bytes):
        return value
    written = value.decode("utf-8", "surrogateescape")
    return parse_date(written) if column.type is ColumnType.DATE else written
