"""CSV and Parquet files read by an embedded DuckDB that may open these files and nothing else.

What the driver says stays here: its errors quote rows, so after the charge every failure becomes the one
fixed sentence of `SourceFailed`, raised where no driver error is in flight to be chained to it. Nothing
is spilled to disk: a query that does not fit into memory fails instead of leaving rows in a temporary file.

Each version of a file is looked at once, before any question (`file_soundness`). What is not of its format is away
until it is mended; what cannot be read in it is absent. CSV is read as RFC 4180 text in UTF-8, by one thread, because
several guess where a record begins. A record with too few fields or more than two million bytes is left out; surplus
fields are ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import duckdb
from sqlglot import exp

from site_agent.reading.batches import Batch, Fingerprint, digest_text, every_column, stat_text
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.dataset import TableFiles, refused_file
from site_agent.reading.examples import Examples
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb.columns import is_whole_key
from site_agent.reading.sources.duckdb.connection import locked_database
from site_agent.reading.sources.duckdb.export_batches import duckdb_batches, share_rows_of
from site_agent.reading.sources.duckdb.mended_files import MendedFile
from site_agent.reading.sources.duckdb.records import Keys
from site_agent.reading.sources.duckdb.tallies import DuckdbTallies, key_range
from site_agent.reading.sources.files.file_layouts import (
    FileColumns,
    check_types,
    csv_layout,
    existing,
    merged,
    parquet_layout,
    relation_layout,
    typed_rows,
)
from site_agent.reading.sources.files.file_readers import literal_path
from site_agent.reading.statements.records import TypedRows, columns_needed
from wardround.federation.errors import SchemaRefused, SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Table
from wardround.privacy.noise.vectors import Bounded

Answer = TypeVar("Answer")


class DuckdbFiles:
    """A dataset whose tables are files."""

    def __init__(self, tables: Mapping[str, TableFiles], *, key: bytes, limits: Limits | None = None) -> None:
        self._tables = dict(tables)
        self._key = key
        self._limits = limits or Limits()
        self._opening = threading.Lock()
        self._opened: tuple[set[str], duckdb.DuckDBPyConnection] | None = None

    def __getstate__(self) -> tuple[dict[str, TableFiles], bytes, Limits]:
        """What another process, of a simulation, opens the same files by."""
        return self._tables, self._key, self._limits

    def __setstate__(self, state: tuple[dict[str, TableFiles], bytes, Limits]) -> None:
        """Nothing is open in a new process."""
        tables, key, limits = state
        self.__init__(tables, key=key, limits=limits)  # type: ignore[misc]

    def check(self, form: AnswerLayout) -> None:
        self._layouts(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self._answered(form, DuckdbTallies.bounded)

    def keys(self, form: AnswerLayout) -> dict[str, int]:
        return self._answered(form, DuckdbTallies.open_keys)

    def examples(self, form: StepLayout) -> Examples:
        try:
            return read_examples(form, self, key=self._key, limits=self._limits)
        except (duckdb.Error, RuntimeError, SourceFailed):
            # As below: the next question opens another database.
            self.close()
        raise SourceFailed

    def fingerprint(self, table: Table) -> Fingerprint:
        """The paths, sizes and times of the table's files; see `Preparable.fingerprint`."""
        if (files := self._tables.get(table.name)) is None:
            raise SchemaRefused(f"The site has no source for the table {table.name!r}.")
        try:
            state = stat_text(existing(files, table.name))
        except OSError:
            raise refused_file(table.name, "cannot be opened", files.path) from None
        return Fingerprint(digest_text(["duckdb", files.format, files.path, files.relation, state]), sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        """All rows, typed; see `Preparable.batches`."""
        form = every_column(table)
        layouts = self._layouts(form)
        whole = is_whole_key({layout.columns[table.unit_key][1] for layout in layouts})
        with self._reading(layouts) as connection:
            rows, at_once = TypedRows(typed_rows(form, layouts)), share_rows_of(table, self._limits)
            yield from duckdb_batches(connection, rows, table, whole_keys=whole, share_rows=at_once)

    def close(self) -> None:
        """Let go of the database; the next question opens another."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    def _answered(self, form: AnswerLayout, answer: Callable[[DuckdbTallies, AnswerLayout], Answer]) -> Answer:
        try:
            layouts = self._layouts(form)
            query = typed_rows(form, layouts)
            with self._reading(layouts) as connection:
                keys = _keys(connection, form, layouts, query)
                return answer(DuckdbTallies(connection, TypedRows(query), keys, self._key, self._limits.records), form)
        except (duckdb.Error, OSError, MemoryError, RuntimeError, ValueError, SchemaRefused):
            # Raised below, outside: an error raised here would carry the driver's text as its context.
            self.close()
        raise SourceFailed

    # --- Schemas ------------------------------------------------------------------------------------------

    def _layouts(self, form: AnswerLayout) -> tuple[FileColumns, ...]:
        table = form.table.name
        files = self._tables.get(table)
        if files is None:
            raise SchemaRefused(f"The site has no source for the table {table!r}.")
        paths = existing(files, table)
        wanted = (form.table.unit_key, *(column.name for column in columns_needed(form)))
        if files.relation is not None:
            relation = relation_layout(self._connection, form, files, paths, self._limits)
            check_types(form, relation)
            return (relation,)
        if files.format == "csv":
            found = [csv_layout(path, table, wanted) for path in paths]
        else:
            with self._connection(paths) as connection:
                found = [parquet_layout(connection, path, form, wanted, self._limits) for path in paths]
            for layout in found:
                check_types(form, layout)
        return merged(found)

    def _reading(self, layouts: Sequence[FileColumns]) -> duckdb.DuckDBPyConnection:
        """A connection that can read these."""
        paths = [path for layout in layouts for path in layout.paths]
        return self._connection(paths, [file for layout in layouts for file in layout.mended])

    def _connection(self, paths: Sequence[str], mended: Sequence[MendedFile] = ()) -> duckdb.DuckDBPyConnection:
        """A connection that can open these; the database behind it is kept while it can open them all."""
        wanted = {*paths, *(file.name for file in mended)}
        # TRY is in a hospital's SELECT and in what mends a file.
        tries = bool(mended) or any(files.relation is not None for files in self._tables.values())
        with self._opening:
            if self._opened is None or not wanted <= self._opened[0]:
                allowed = [*paths, *map(literal_path, paths)]
                self._opened = wanted, locked_database(allowed, self._limits, mended=mended, tries=tries)
            return self._opened[1].cursor()


def _keys(
    connection: duckdb.DuckDBPyConnection, form: AnswerLayout, layouts: tuple[FileColumns, ...], rows: exp.Query
) -> Keys | None:
    """The lowest and highest unit key, which a Parquet file usually says without being read."""
    if not is_whole_key({layout.columns[form.table.unit_key][1] for layout in layouts}):
        return None
    return key_range(connection, rows)
