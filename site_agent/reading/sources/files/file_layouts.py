"""How a table's files hold its columns, and their rows in the study's types.

Files that are alike are read together. Over files that are all alike the hospital may have a SELECT of its
own, which calls them `this`.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
from sqlglot import exp

from site_agent.reading.dataset import TableFiles, missing_column, nested_key, other_type, refused_file
from site_agent.reading.memory_limits import Limits
from site_agent.reading.relations.hospital_select import THIS, relation_query
from site_agent.reading.sources.duckdb.columns import TEXT, accepts, accepts_key, typed_column, typed_key
from site_agent.reading.sources.duckdb.mended_files import MendedFile
from site_agent.reading.sources.duckdb.relation_types import check_merged_types
from site_agent.reading.sources.files.csv_soundness import Header, read_header
from site_agent.reading.sources.files.file_readers import MAGIC, csv_reader, described, parquet_reader
from site_agent.reading.sources.files.file_soundness import SOUNDNESS, Reading
from site_agent.reading.statements.records import UNIT, column_name, columns_needed
from site_agent.reading.statements.sql_trees import named, ref
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused, SourceAway
from wardround.federation.forms.parts import AnswerLayout

Connect = Callable[[Sequence[str], Sequence[MendedFile]], duckdb.DuckDBPyConnection]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Files that hold the same columns in the same way: name in the study → (name in the reader, type)."""

    format: str
    paths: tuple[str, ...]
    columns: Mapping[str, tuple[str, str]]
    delimiter: str = ""
    width: int = 0
    relation: exp.Query | None = None
    # What is read in place of files that must be mended, and their columns, in which what cannot be read is absent.
    mended: tuple[MendedFile, ...] = ()
    values: tuple[exp.Expression, ...] = ()


def existing(files: TableFiles, table: str) -> list[str]:
    """The table's files in a fixed order; every one of them can be opened."""
    path = Path(files.path)
    try:
        if path.is_dir():
            found = sorted(str(file) for file in path.glob(f"*.{files.format}"))
        elif path.exists() or not set(MAGIC) & set(files.path):
            found = [files.path]
        else:
            # `Path.glob` takes no absolute pattern.
            found = sorted(glob.glob(files.path, recursive=True))  # noqa: PTH207
        for name in found:
            with Path(name).open("rb"):
                pass
    except PermissionError:
        raise refused_file(table, "cannot be read with this user's permissions", files.path) from None
    except FileNotFoundError:
        found = []
    except (OSError, ValueError):
        raise refused_file(table, "cannot be opened", files.path) from None
    if not found:
        raise refused_file(table, "does not exist", files.path)
    return found


def csv_layout(path: str, table: str, wanted: Sequence[str]) -> FileColumns:
    """The layout of one CSV file, from its header line."""
    header = _header(path, table, wanted)
    reading = _sound(SOUNDNESS.csv(path, header), table, path, "CSV")
    columns = {name: (f"f{header.names.index(name)}", TEXT) for name in wanted}
    layout = FileColumns("csv", (path,), columns, header.delimiter, len(header.names))
    return _mended(layout, reading)


def _sound(reading: Reading, table: str, path: str, kind: str) -> Reading:
    """The reading of a file that can be read.

    Raises:
        SourceAway: it cannot, until it is mended.
    """
    if not reading.fault:
        return reading
    raise SourceAway(
        (
            f"A file of the table {table!r} is not valid {kind}, so no question about the table is answered "
            "until the file is fixed."
        ),
        private=f"{path}: {reading.fault}",
        unread=True,
    )


def _mended(layout: FileColumns, reading: Reading) -> FileColumns:
    return replace(layout, mended=(reading.mended,), values=reading.values) if reading.mended else layout


def _header(path: str, table: str, wanted: Sequence[str]) -> Header:
    """The header line, which names every wanted column once."""
    try:
        header = read_header(Path(path), wanted)
    except OSError:
        raise refused_file(table, "cannot be read", path) from None
    if isinstance(header, str):
        raise refused_file(table, header, path)
    for name in wanted:
        if name not in header.names:
            raise missing_column(table, name, path=path)
        if header.names.count(name) > 1:
            raise refused_file(table, f"has the column {name!r} twice", path)
    return header


def parquet_layout(
    connection: duckdb.DuckDBPyConnection, path: str, form: AnswerLayout, wanted: Sequence[str], limits: Limits
) -> FileColumns:
    """The layout of one Parquet file, from its own schema."""
    table = form.table
    # All that the study describes, whatever is asked: no question may decide whether a file is sound.
    every = (table.unit_key, *(column.name for column in table.columns))
    reading = _sound(SOUNDNESS.parquet(path, every, limits), table.name, path, "Parquet")
    stored = described(connection, exp.select("*").from_(parquet_reader((path,))))
    for name in wanted:
        if name not in stored:
            raise missing_column(table.name, name, path=path)
    return _mended(FileColumns("parquet", (path,), {name: (name, stored[name]) for name in wanted}), reading)


def check_types(form: AnswerLayout, layout: FileColumns) -> None:
    """Refuse columns that cannot hold what the study declares; text is read as CSV is."""
    key = form.table.unit_key
    if not accepts_key(layout.columns[key][1]):
        raise nested_key(form.table.name, key)
    for column in columns_needed(form):
        stored = layout.columns[column.name][1]
        if not accepts(column.type, stored) and stored != TEXT:
            raise other_type(form.table.name, column)


def merged(found: list[FileColumns]) -> tuple[FileColumns, ...]:
    """One layout for all files that are alike, in the order of the first of each kind."""
    alike: dict[tuple[object, ...], FileColumns] = {}
    for layout in found:
        kind = (tuple(layout.columns.items()), layout.delimiter, layout.width, layout.values)
        if (other := alike.get(kind)) is None:
            alike[kind] = layout
        else:
            alike[kind] = replace(other, paths=other.paths + layout.paths, mended=other.mended + layout.mended)
    return tuple(alike.values())


# --- The hospital's own SELECT ----------------------------------------------------------------------------


def relation_layout(
    connect: Connect, form: AnswerLayout, files: TableFiles, paths: Sequence[str], limits: Limits
) -> FileColumns:
    """The layout of the hospital's SELECT over its files, which sees nothing that cannot be read."""
    table = form.table.name
    query = _relation(form, files)
    this, mended = _csv_this(paths, table) if files.format == "csv" else _parquet_this(connect, paths, table, limits)
    relation = _over(this, query.copy())
    with connect(paths, mended) as connection:
        stored = described(connection, relation)
        if stored:
            # Of the hospital's own words alone: what reads its files converts nothing that could fail.
            check_merged_types(connection, table, query, lambda probe: _over(this, probe))
    if not stored:
        raise refused_file(table, "cannot be read by the SELECT of site.toml", files.path)
    wanted = (form.table.unit_key, *(column.name for column in columns_needed(form)))
    for name in wanted:
        if name not in stored:
            raise missing_column(table, name, path=files.path)
    columns = {name: (name, stored[name]) for name in wanted}
    return FileColumns("relation", tuple(paths), columns, relation=relation, mended=mended)


def _over(this: exp.Query, query: exp.Query) -> exp.Query:
    """`query` with the files in place of their name."""
    for found in list(query.find_all(exp.Table)):
        if found.name.lower() == THIS:
            found.replace(this.subquery(found.alias_or_name))
    return query


def _relation(form: AnswerLayout, files: TableFiles) -> exp.Query:
    fault = ""
    try:
        return relation_query(form.table, files.relation or "", "duckdb", only=(THIS,), declared=files.declared)
    except ConfigurationMistaken as mistaken:
        fault = str(mistaken)
    raise SchemaRefused(fault)


def _csv_this(paths: Sequence[str], table: str) -> tuple[exp.Query, tuple[MendedFile, ...]]:
    """All columns of CSV files with the same header, under the names that they have there."""
    names = _header(paths[0], table, ()).names
    layouts: list[FileColumns] = []
    for path in paths:
        header = _header(path, table, names)
        if sorted(header.names) != sorted(set(names)):
            raise refused_file(table, "differs from the others in its columns, which a SELECT cannot read", path)
        layouts.append(csv_layout(path, table, names))
    return _every_column(merged(layouts))


def _parquet_this(
    connect: Connect, paths: Sequence[str], table: str, limits: Limits
) -> tuple[exp.Query, tuple[MendedFile, ...]]:
    """All columns of Parquet files with the same schema."""
    readings = [_sound(SOUNDNESS.parquet(path, None, limits), table, path, "Parquet") for path in paths]
    layouts: list[FileColumns] = []
    with connect(paths, ()) as connection:
        for path, reading in zip(paths, readings, strict=True):
            schema = described(connection, exp.select("*").from_(parquet_reader((path,))))
            columns = {name: (name, kind) for name, kind in schema.items()}
            if layouts and columns != layouts[0].columns:
                raise refused_file(table, "differs from the others in its columns, which a SELECT cannot read", path)
            layouts.append(_mended(FileColumns("parquet", (path,), columns), reading))
    return _every_column(merged(layouts))


def _every_column(layouts: Sequence[FileColumns]) -> tuple[exp.Query, tuple[MendedFile, ...]]:
    queries: list[exp.Query] = []
    for layout in layouts:
        columns = [named(ref(name), called) for called, (name, _) in layout.columns.items()]
        queries.append(exp.select(*columns).from_(_rows(layout)))
    return _together(queries), tuple(file for layout in layouts for file in layout.mended)


def _together(queries: Sequence[exp.Query]) -> exp.Query:
    return queries[0] if len(queries) == 1 else exp.union(*queries, distinct=False)


# --- Readers ----------------------------------------------------------------------------------------------


def typed_rows(form: AnswerLayout, layouts: tuple[FileColumns, ...]) -> exp.Query:
    """The rows of all files, typed; see `TypedRows`."""
    alone = len({layout.columns[form.table.unit_key][1] for layout in layouts}) == 1
    queries = [_typed_layout(form, layout, alone=alone) for layout in layouts]
    return _together(queries)


def _typed_layout(form: AnswerLayout, layout: FileColumns, *, alone: bool) -> exp.Select:
    name, stored = layout.columns[form.table.unit_key]
    columns = [named(typed_key(name, stored, alone=alone), UNIT)]
    for column in columns_needed(form):
        name, stored = layout.columns[column.name]
        value = typed_column(name, column, stored)
        columns.append(named(value, column_name(column.name)))
    return exp.select(*columns).from_(_rows(layout))


def _rows(layout: FileColumns) -> exp.Expression:
    if layout.relation is not None:
        return layout.relation.subquery("relation")
    opened = [file.name for file in layout.mended] or layout.paths
    rows = csv_reader(opened, layout.delimiter, layout.width) if layout.format == "csv" else parquet_reader(opened)
    return exp.select(*layout.values).from_(rows).subquery("mended") if layout.mended else rows
