"""CSV and Parquet files read by an embedded DuckDB that may open these files and nothing else.

What the driver says stays here: its errors quote rows, so after the charge every failure becomes the one
fixed sentence of `SourceFailed`, raised where no driver error is in flight to be chained to it. Nothing
is spilled to disk: a query that does not fit into memory fails instead of leaving rows in a temporary file.

CSV is read as RFC 4180 text in UTF-8, by one thread, because several guess where a record begins. A record
with too few fields, broken text or more than two million bytes is left out; surplus fields are ignored. A
quotation mark that is opened and never closed hides the records after it: a table that may hold such
text belongs in Parquet.
"""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb
from sqlglot import exp

from site_agent.dataset import TableFiles
from site_agent.prepared.batches import Batch, Fingerprint, every_column
from site_agent.prepared.fingerprints import digest_text, stat_text
from site_agent.sources.csv_header import read_header
from site_agent.sources.duckdb_batches import duckdb_batches
from site_agent.sources.duckdb_records import Keys
from site_agent.sources.duckdb_tallies import DuckdbTallies
from site_agent.sources.typed_columns import TEXT, accepts, accepts_key, is_whole_key, typed_column, typed_key
from site_agent.statements.cohort import column_name
from site_agent.statements.records import UNIT, TypedRows, columns_needed
from site_agent.statements.trees import named, ref, text
from wardround.federation.errors import SchemaRefused, SourceFailed
from wardround.federation.shape import Shape
from wardround.federation.study import Table
from wardround.privacy.bounded import Bounded

_LONGEST_RECORD_BYTES = 2_000_000
_MAGIC = "*?["
Answer = TypeVar("Answer")
# Fixed before the first statement and then locked. `type_pushdown` would move a cast into the CSV reader,
# where it raises and prints the row.
SETTINGS: Mapping[str, str] = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "disabled_optimizers": "type_pushdown",
    "enable_external_file_cache": "false",
    "extension_directory": os.devnull,
    "home_directory": os.devnull,
    "max_temp_directory_size": "0KiB",
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
    "secret_directory": os.devnull,
    "temp_directory": "",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may use of the hospital's machine."""

    threads: int = max(os.cpu_count() or 1, 1)
    memory_mebibytes: int = 4096

    @property
    def database_kibibytes(self) -> int:
        """What the database may take: three quarters."""
        return self.memory_mebibytes * 768

    @property
    def records(self) -> int:
        """How many records fit into the last quarter while a choice is made among them, at 64 bytes each."""
        return self.memory_mebibytes * 4096


@dataclass(frozen=True, slots=True)
class _Layout:
    """Files that hold the same columns in the same way: name in the study → (name in the reader, type)."""

    format: str
    paths: tuple[str, ...]
    columns: Mapping[str, tuple[str, str]]
    delimiter: str = ""
    width: int = 0


class DuckdbFiles:
    """A dataset whose tables are files."""

    def __init__(self, tables: Mapping[str, TableFiles], *, key: bytes, limits: Limits | None = None) -> None:
        self._tables = dict(tables)
        self._key = key
        self._limits = limits or Limits()
        self._opening = threading.Lock()
        self._opened: tuple[tuple[str, ...], duckdb.DuckDBPyConnection] | None = None

    def check(self, form: Shape) -> None:
        """Look at names and types only; see `Dataset.check`."""
        self._layouts(form)

    def bounded(self, form: Shape) -> tuple[Bounded, ...]:
        """Read and bound; see `Dataset.bounded`."""
        return self._answered(form, DuckdbTallies.bounded)

    def keys(self, form: Shape) -> dict[str, int]:
        """Read and bound; see `Dataset.keys`."""
        return self._answered(form, DuckdbTallies.open_keys)

    def fingerprint(self, table: Table) -> Fingerprint:
        """The paths, sizes and times of the table's files; see `Preparable.fingerprint`."""
        if (files := self._tables.get(table.name)) is None:
            raise SchemaRefused(f"The site has no source for the table {table.name!r}.")
        try:
            state = stat_text(_existing(files, table.name))
        except OSError:
            raise _refused(table.name, "cannot be opened", files.path) from None
        return Fingerprint(digest_text(["duckdb", files.format, files.path, files.relation, state]), sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        """All rows, typed; see `Preparable.batches`."""
        form = every_column(table)
        layouts = self._layouts(form)
        whole = is_whole_key({layout.columns[table.unit_key][1] for layout in layouts})
        with self._connection([path for layout in layouts for path in layout.paths]) as connection:
            yield from duckdb_batches(connection, TypedRows(_typed_rows(form, layouts)), table, whole_keys=whole)

    def close(self) -> None:
        """Let go of the database; the next question opens another."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    def _answered(self, form: Shape, answer: Callable[[DuckdbTallies, Shape], Answer]) -> Answer:
        try:
            layouts = self._layouts(form)
            query = _typed_rows(form, layouts)
            with self._connection([path for layout in layouts for path in layout.paths]) as connection:
                keys = _keys(connection, form, layouts, query)
                return answer(DuckdbTallies(connection, TypedRows(query), keys, self._key, self._limits.records), form)
        except (duckdb.Error, OSError, MemoryError, RuntimeError, ValueError, SchemaRefused):
            # Raised below, outside: an error raised here would carry the driver's text as its context.
            self.close()
        raise SourceFailed

    # --- Schemas ------------------------------------------------------------------------------------------

    def _layouts(self, form: Shape) -> tuple[_Layout, ...]:
        table = form.table.name
        files = self._tables.get(table)
        if files is None:
            raise SchemaRefused(f"The site has no source for the table {table!r}.")
        paths = _existing(files, table)
        wanted = (form.table.unit_key, *(column.name for column in columns_needed(form)))
        if files.format == "csv":
            found = [_csv_layout(path, table, wanted) for path in paths]
        else:
            with self._connection(paths) as connection:
                found = [_parquet_layout(connection, path, table, wanted) for path in paths]
            for layout in found:
                _check_types(form, layout)
        return _merged(found)

    def _connection(self, paths: list[str]) -> duckdb.DuckDBPyConnection:
        """A connection that can open `paths`; the database behind it is kept while they stay the same."""
        wanted = tuple(sorted(paths))
        with self._opening:
            if self._opened is None or self._opened[0] != wanted:
                self._opened = wanted, _locked_database(wanted, self._limits)
            return self._opened[1].cursor()


def _locked_database(paths: tuple[str, ...], limits: Limits) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        **SETTINGS,
        "threads": limits.threads,
        "memory_limit": f"{limits.database_kibibytes}KiB",
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL allowed_paths = $1", [[*paths, *map(_literal_path, paths)]])
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL lock_configuration = true")
    return connection


def _existing(files: TableFiles, table: str) -> list[str]:
    """The table's files in a fixed order; every one of them can be opened."""
    path = Path(files.path)
    try:
        if path.is_dir():
            found = sorted(str(file) for file in path.glob(f"*.{files.format}"))
        elif path.exists() or not set(_MAGIC) & set(files.path):
            found = [files.path]
        else:
            # `Path.glob` takes no absolute pattern.
            found = sorted(glob.glob(files.path, recursive=True))  # noqa: PTH207
        for name in found:
            with Path(name).open("rb"):
                pass
    except PermissionError:
        raise _refused(table, "cannot be read with this user's permissions", files.path) from None
    except FileNotFoundError:
        found = []
    except (OSError, ValueError):
        raise _refused(table, "cannot be opened", files.path) from None
    if not found:
        raise _refused(table, "does not exist", files.path)
    return found


def _refused(table: str, fault: str, path: str) -> SchemaRefused:
    return SchemaRefused(f"The file of the table {table!r} {fault}.", private=f"source {path}")


def _missing(table: str, column: str, path: str) -> SchemaRefused:
    return SchemaRefused(f"The table {table!r} has no column {column!r} at this site.", private=f"source {path}")


def _csv_layout(path: str, table: str, wanted: tuple[str, ...]) -> _Layout:
    try:
        header = read_header(Path(path), wanted)
    except OSError:
        raise _refused(table, "cannot be read", path) from None
    if isinstance(header, str):
        raise _refused(table, header, path)
    for name in wanted:
        if name not in header.names:
            raise _missing(table, name, path)
        if header.names.count(name) > 1:
            raise _refused(table, f"has the column {name!r} twice", path)
    columns = {name: (f"f{header.names.index(name)}", TEXT) for name in wanted}
    return _Layout("csv", (path,), columns, header.delimiter, len(header.names))


def _parquet_layout(connection: duckdb.DuckDBPyConnection, path: str, table: str, wanted: tuple[str, ...]) -> _Layout:
    reader = exp.select("*").from_(_parquet_reader((path,)))
    stored: dict[str, str] = {}
    try:
        described = connection.execute(exp.Describe(this=reader).sql(dialect="duckdb")).fetchall()
        stored = {str(row[0]): str(row[1]) for row in described}
    except (duckdb.Error, MemoryError, RuntimeError):
        pass
    if not stored:
        raise _refused(table, "cannot be read as Parquet", path)
    for name in wanted:
        if name not in stored:
            raise _missing(table, name, path)
    return _Layout("parquet", (path,), {name: (name, stored[name]) for name in wanted})


def _check_types(form: Shape, layout: _Layout) -> None:
    key = form.table.unit_key
    if not accepts_key(layout.columns[key][1]):
        raise SchemaRefused(f"The unit key {key!r} of the table {form.table.name!r} has a nested type at this site.")
    for column in columns_needed(form):
        if not accepts(column.type, layout.columns[column.name][1]):
            raise SchemaRefused(
                f"The column {column.name!r} of the table {form.table.name!r} does not hold "
                f"what the study declares at this site: it is no {column.type.value} column."
            )


def _merged(found: list[_Layout]) -> tuple[_Layout, ...]:
    """One layout for all files that are alike, in the order of the first of each kind."""
    alike: dict[tuple[object, ...], _Layout] = {}
    for layout in found:
        kind = (tuple(layout.columns.items()), layout.delimiter, layout.width)
        paths = alike[kind].paths if kind in alike else ()
        alike[kind] = _Layout(layout.format, paths + layout.paths, layout.columns, layout.delimiter, layout.width)
    return tuple(alike.values())


# --- Readers ----------------------------------------------------------------------------------------------


def _typed_rows(form: Shape, layouts: tuple[_Layout, ...]) -> exp.Query:
    alone = len({layout.columns[form.table.unit_key][1] for layout in layouts}) == 1
    queries = [_typed_layout(form, layout, alone=alone) for layout in layouts]
    return queries[0] if len(queries) == 1 else exp.union(*queries, distinct=False)


def _keys(
    connection: duckdb.DuckDBPyConnection, form: Shape, layouts: tuple[_Layout, ...], rows: exp.Query
) -> Keys | None:
    """The lowest and highest unit key, which a Parquet file usually says without being read."""
    if not is_whole_key({layout.columns[form.table.unit_key][1] for layout in layouts}):
        return None
    ends = exp.select(exp.Min(this=ref(UNIT)), exp.Max(this=ref(UNIT))).from_(rows.subquery("typed"))
    low, high = connection.execute(ends.sql(dialect="duckdb")).fetchall()[0]
    return Keys(int(low or 0), int(high or 0))


def _typed_layout(form: Shape, layout: _Layout, *, alone: bool) -> exp.Select:
    name, stored = layout.columns[form.table.unit_key]
    columns = [named(typed_key(name, stored, alone=alone), UNIT)]
    for column in columns_needed(form):
        name, stored = layout.columns[column.name]
        value = typed_column(name, column, stored)
        columns.append(named(value, column_name(column.name)))
    reader = _csv_reader(layout) if layout.format == "csv" else _parquet_reader(layout.paths)
    return exp.select(*columns).from_(reader)


def _parquet_reader(paths: tuple[str, ...]) -> exp.Table:
    return _reader("read_parquet", paths, hive_partitioning=exp.false())


def _csv_reader(layout: _Layout) -> exp.Table:
    # Names are ours, by position: nothing written in a header reaches the statement.
    fields = [exp.PropertyEQ(this=text(f"f{place}"), expression=text(TEXT)) for place in range(layout.width)]
    return _reader(
        "read_csv",
        layout.paths,
        auto_detect=exp.false(),
        header=exp.true(),
        delim=text(layout.delimiter),
        quote=text('"'),
        escape=text('"'),
        columns=exp.Struct(expressions=fields),
        compression=text("none"),
        encoding=text("utf-8"),
        hive_partitioning=exp.false(),
        ignore_errors=exp.true(),
        max_line_size=exp.Literal.number(_LONGEST_RECORD_BYTES),
        parallel=exp.false(),
        strict_mode=exp.false(),
    )


def _reader(function: str, paths: tuple[str, ...], **options: exp.Expression) -> exp.Table:
    listed = exp.Array(expressions=[text(_literal_path(path)) for path in paths])
    named_options = [exp.EQ(this=exp.to_identifier(name), expression=value) for name, value in options.items()]
    return exp.Table(this=exp.Anonymous(this=function, expressions=[listed, *named_options]))


def _literal_path(path: str) -> str:
    """The path as a pattern that matches itself alone."""
    return "".join(f"[{letter}]" if letter in _MAGIC else letter for letter in path)
