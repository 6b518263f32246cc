"""A table in a DuckDB database file, read by an embedded DuckDB that has this file and nothing else.

The file is attached read only for one question and let go of at once, because DuckDB allows no other process
to write it meanwhile. What the driver says stays here, as in `duckdb_files`. A view of the hospital's that
reads another file fails.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TypeVar

import duckdb
from sqlglot import exp

from site_agent.reading.batches import Batch, Fingerprint, digest_text, stat_text
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.dataset import Declared, TableSource, missing_column, nested_key, other_type, refused_file
from site_agent.reading.examples import Examples
from site_agent.reading.memory_limits import Limits
from site_agent.reading.relations.hospital_select import placed, relation_query
from site_agent.reading.sources.duckdb.columns import accepts, accepts_key, is_whole_key, typed_column, typed_key
from site_agent.reading.sources.duckdb.connection import locked_database
from site_agent.reading.sources.duckdb.export_batches import duckdb_batches, share_rows_of
from site_agent.reading.sources.duckdb.relation_types import check_merged_types
from site_agent.reading.sources.duckdb.tallies import DuckdbTallies, key_range
from site_agent.reading.statements.records import UNIT, TypedRows, column_name, columns_needed
from site_agent.reading.statements.sql_trees import identifier, named, text
from wardround.federation.errors import SchemaRefused, SourceAway, SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Column, Table
from wardround.privacy.noise.vectors import Bounded

_HOSPITAL, _MAIN = "hospital", "main"
_FAILURES = (duckdb.Error, OSError, MemoryError, RuntimeError, ValueError)
_BUSY_SECONDS, _PAUSE_SECONDS = 2.0, 0.25
_AGAIN_SECONDS = 0.05
_MAGIC = slice(8, 12)
_LOCKED = "Could not set lock"

Answer = TypeVar("Answer")


def open_duckdb(table: str, path: str, source: TableSource, *, key: bytes, limits: Limits | None = None) -> DuckdbTable:
    """The study's `table` in the database at `path`."""
    return DuckdbTable(path, source.relation or table, source.timeout_seconds, key, limits or Limits(), source.declared)


@dataclass(frozen=True, slots=True)
class DuckdbTable:
    """A dataset of one table."""

    path: str
    relation: str
    timeout_seconds: float
    key: bytes = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    declared: Declared = field(default_factory=Declared)
    _turn: Lock = field(default_factory=Lock, repr=False, compare=False)
    _opened: list[duckdb.DuckDBPyConnection] = field(default_factory=list, repr=False, compare=False)

    def check(self, form: AnswerLayout) -> None:
        self._described(form.table, columns_needed(form))

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self._answered(form, lambda tallies: tallies.bounded(form))

    def keys(self, form: AnswerLayout) -> dict[str, int]:
        return self._answered(form, lambda tallies: tallies.open_keys(form))

    def examples(self, form: StepLayout) -> Examples:
        return read_examples(form, self, key=self.key, limits=self.limits)

    def fingerprint(self, table: Table) -> Fingerprint:
        """The file and its log; see `Preparable.fingerprint`."""
        log, state = Path(f"{self.path}.wal"), ""
        with contextlib.suppress(OSError):
            state = stat_text([self.path, *([log] if log.exists() else [])])
        if not state:
            raise self._refused(table, "cannot be read")
        return Fingerprint(digest_text(["duckdb database", self.relation, state]), sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        """All rows, typed, from one state; see `Preparable.batches`."""
        stored = self._described(table, table.columns)
        try:
            with self._reading() as connection:
                rows = TypedRows(self._typed(table, table.columns, stored))
                whole = is_whole_key({stored[table.unit_key]})
                at_once = share_rows_of(table, self.limits)
                yield from duckdb_batches(connection, rows, table, whole_keys=whole, share_rows=at_once)
                return
        except _FAILURES:
            pass
        raise SourceFailed

    def _answered(self, form: AnswerLayout, answer: Callable[[DuckdbTallies], Answer]) -> Answer:
        try:
            columns = columns_needed(form)
            with self._reading() as connection:
                stored = self._stored(connection, form.table)
                query = self._typed(form.table, columns, stored)
                keys = key_range(connection, query) if is_whole_key({stored[form.table.unit_key]}) else None
                return answer(DuckdbTallies(connection, TypedRows(query), keys, self.key, self.limits.records))
        except (*_FAILURES, LookupError):
            # Raised below, outside: an error raised here would carry the driver's text as its context.
            pass
        raise SourceFailed

    # --- Connections --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One state of the database for one question at a time; one that takes too long is interrupted."""
        with self._turn, contextlib.closing(self._database()) as connection:
            over = Event()
            late = Thread(target=_interrupt, args=(connection, over, self.timeout_seconds), daemon=True)
            self._attach(connection)
            try:
                late.start()
                # No transaction, which one statement too large for the memory would end: a file that is attached cannot
                # be written by anybody, so that all statements see one state.
                yield connection
            finally:
                over.set()
                late.join()
                connection.execute(f"DETACH {_HOSPITAL}")

    def _database(self) -> duckdb.DuckDBPyConnection:
        """A connection to an empty database that may open this file, and its log, and nothing else."""
        if not self._opened:
            self._opened.append(locked_database([self.path, f"{self.path}.wal"], self.limits))
        return self._opened[0].cursor()

    def _attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """A writer may be about to let go, so it gets some seconds.

        Raises:
            SourceAway: it did not.
        """
        attached = exp.Alias(this=text(self.path), alias=identifier(_HOSPITAL))
        option = exp.AttachOption(this=exp.var("READ_ONLY"))
        statement = exp.Attach(this=attached, expressions=[option]).sql(dialect="duckdb")
        ends = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                connection.execute(statement)
            except duckdb.IOException as error:
                late = time.monotonic() > ends
                # It has no code of its own.
                if late and _LOCKED not in str(error):
                    raise
            else:
                return
            if late:
                break
            time.sleep(_PAUSE_SECONDS)
        raise SourceAway("The DuckDB file is being written by another process.", unread=True)

    # --- Schemas ------------------------------------------------------------------------------------------

    def _described(self, table: Table, columns: Sequence[Column]) -> Mapping[str, str]:
        fault, stored = "", dict[str, str]()
        self._relation(table)
        try:
            with Path(self.path).open("rb") as file:
                if file.read(_MAGIC.stop)[_MAGIC] != b"DUCK":
                    raise self._refused(table, "is no DuckDB database")
            with self._reading() as connection:
                fault = "has no relation that can be read as site.toml says"
                stored = self._stored(connection, table)
        except FileNotFoundError:
            fault = "does not exist"
        except PermissionError:
            fault = "cannot be read with this user's permissions"
        except duckdb.IOException:
            fault = fault or "is cut short, or was written by a newer DuckDB"
        except _FAILURES:
            fault = fault or "cannot be read as a DuckDB database"
        if not stored:
            raise self._refused(table, fault)
        for name in (table.unit_key, *(column.name for column in columns)):
            if name not in stored:
                raise missing_column(table.name, name, path=self.path)
        if not accepts_key(stored[table.unit_key]):
            raise nested_key(table.name, table.unit_key)
        for column in columns:
            if not accepts(column.type, stored[column.name]) and stored[column.name] != "VARCHAR":
                raise other_type(table.name, column)
        return stored

    def _stored(self, connection: duckdb.DuckDBPyConnection, table: Table) -> dict[str, str]:
        relation = self._relation(table)
        described = connection.execute(exp.Describe(this=relation.copy()).sql(dialect="duckdb")).fetchall()
        check_merged_types(connection, table.name, relation)
        return {str(line[0]): str(line[1]) for line in described}

    def _relation(self, table: Table) -> exp.Query:
        # Whatever database the hospital names, there is none but its own.
        query = relation_query(table, self.relation, "duckdb", declared=self.declared)
        return placed(query, schema=_MAIN, catalog=_HOSPITAL)

    def _typed(self, table: Table, columns: Sequence[Column], stored: Mapping[str, str]) -> exp.Query:
        wanted = [named(typed_key(table.unit_key, stored[table.unit_key], alone=True), UNIT)]
        wanted += [
            named(typed_column(column.name, column, stored[column.name]), column_name(column.name))
            for column in columns
        ]
        return exp.select(*wanted).from_(self._relation(table).subquery("this"))

    def _refused(self, table: Table, fault: str) -> SchemaRefused:
        return refused_file(table.name, fault, self.path)


def _interrupt(connection: duckdb.DuckDBPyConnection, over: Event, timeout_seconds: float) -> None:
    """Stop a question that is not over in time; again and again, because between two statements nothing is stopped."""
    wait_seconds = timeout_seconds
    while not over.wait(wait_seconds):
        connection.interrupt()
        wait_seconds = _AGAIN_SECONDS
