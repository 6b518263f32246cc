"""How a table's files hold its columns, found without reading a row, and their rows in the study's types.

Files that are alike are read together. Over files that are all alike the hospital may have a SELECT of its
own, which calls them `this`.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from sqlglot import exp

from site_agent.dataset import TableFiles
from site_agent.relations import THIS, relation_query
from site_agent.sources.csv_header import Header, read_header
from site_agent.sources.refusals import missing_column, nested_key, other_type, refused_file
from site_agent.sources.typed_columns import TEXT, accepts, accepts_key, typed_column, typed_key
from site_agent.statements.cohort import column_name
from site_agent.statements.records import UNIT, columns_needed
from site_agent.statements.trees import named, ref, text
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused
from wardround.federation.shape import Shape

_LONGEST_RECORD_BYTES = 2_000_000
_MAGIC = "*?["


@dataclass(frozen=True, slots=True)
class Layout:
    """Files that hold the same columns in the same way: name in the study → (name in the reader, type)."""

    format: str
    paths: tuple[str, ...]
    columns: Mapping[str, tuple[str, str]]
    delimiter: str = ""
    width: int = 0
    relation: exp.Query | None = None


def existing(files: TableFiles, table: str) -> list[str]:
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
        raise refused_file(table, "cannot be read with this user's permissions", files.path) from None
    except FileNotFoundError:
        found = []
    except (OSError, ValueError):
        raise refused_file(table, "cannot be opened", files.path) from None
    if not found:
        raise refused_file(table, "does not exist", files.path)
    return found


def csv_layout(path: str, table: str, wanted: Sequence[str]) -> Layout:
    """The layout of one CSV file, from its header line."""
    header = _header(path, table, wanted)
    columns = {name: (f"f{header.names.index(name)}", TEXT) for name in wanted}
    return Layout("csv", (path,), columns, header.delimiter, len(header.names))


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


def parquet_layout(connection: duckdb.DuckDBPyConnection, path: str, table: str, wanted: Sequence[str]) -> Layout:
    """The layout of one Parquet file, from its own schema."""
    stored = _described(connection, exp.select("*").from_(_parquet_reader((path,))))
    if not stored:
        raise refused_file(table, "cannot be read as Parquet", path)
    for name in wanted:
        if name not in stored:
            raise missing_column(table, name, path=path)
    return Layout("parquet", (path,), {name: (name, stored[name]) for name in wanted})


def check_types(form: Shape, layout: Layout) -> None:
    """Refuse columns that cannot hold what the study declares; text is read as CSV is, where a SELECT made it."""
    key = form.table.unit_key
    if not accepts_key(layout.columns[key][1]):
        raise nested_key(form.table.name, key)
    for column in columns_needed(form):
        stored = layout.columns[column.name][1]
        if not accepts(column.type, stored) and not (layout.relation is not None and stored == TEXT):
            raise other_type(form.table.name, column)


def merged(found: list[Layout]) -> tuple[Layout, ...]:
    """One layout for all files that are alike, in the order of the first of each kind."""
    alike: dict[tuple[object, ...], Layout] = {}
    for layout in found:
        kind = (tuple(layout.columns.items()), layout.delimiter, layout.width)
        paths = alike[kind].paths if kind in alike else ()
        alike[kind] = Layout(layout.format, paths + layout.paths, layout.columns, layout.delimiter, layout.width)
    return tuple(alike.values())


# --- The hospital's own SELECT ----------------------------------------------------------------------------


def relation_layout(
    connection: duckdb.DuckDBPyConnection, form: Shape, files: TableFiles, paths: Sequence[str]
) -> Layout:
    """The layout of the hospital's SELECT over its files; its columns are found without reading a row."""
    table = form.table.name
    query = _relation(form, files)
    this = _csv_this(paths, table) if files.format == "csv" else _parquet_this(connection, paths, table)
    for found in list(query.find_all(exp.Table)):
        if found.name.lower() == THIS:
            found.replace(this.subquery(found.alias_or_name))
    stored = _described(connection, query)
    if not stored:
        raise refused_file(table, "cannot be read by the SELECT of site.toml", files.path)
    wanted = (form.table.unit_key, *(column.name for column in columns_needed(form)))
    for name in wanted:
        if name not in stored:
            raise missing_column(table, name, path=files.path)
    return Layout("relation", tuple(paths), {name: (name, stored[name]) for name in wanted}, relation=query)


def _relation(form: Shape, files: TableFiles) -> exp.Query:
    fault = ""
    try:
        return relation_query(form.table, files.relation or "", "duckdb", only=(THIS,), declared=files.declared)
    except ConfigurationMistaken as mistaken:
        fault = str(mistaken)
    raise SchemaRefused(fault)


def _csv_this(paths: Sequence[str], table: str) -> exp.Query:
    """All columns of CSV files with the same header, under the names that they have there."""
    names = _header(paths[0], table, ()).names
    queries: list[exp.Select] = []
    for path in paths:
        header = _header(path, table, names)
        if sorted(header.names) != sorted(set(names)):
            raise refused_file(table, "differs from the others in its columns, which a SELECT cannot read", path)
        layout = csv_layout(path, table, names)
        columns = [named(ref(layout.columns[name][0]), name) for name in names]
        queries.append(exp.select(*columns).from_(_csv_reader(layout)))
    return queries[0] if len(queries) == 1 else exp.union(*queries, distinct=False)


def _parquet_this(connection: duckdb.DuckDBPyConnection, paths: Sequence[str], table: str) -> exp.Query:
    """All columns of Parquet files with the same schema."""
    schemas = [_described(connection, exp.select("*").from_(_parquet_reader((path,)))) for path in paths]
    for path, schema in zip(paths, schemas, strict=True):
        if not schema:
            raise refused_file(table, "cannot be read as Parquet", path)
        if schema != schemas[0]:
            raise refused_file(table, "differs from the others in its columns, which a SELECT cannot read", path)
    return exp.select("*").from_(_parquet_reader(tuple(paths)))


def _described(connection: duckdb.DuckDBPyConnection, query: exp.Query) -> dict[str, str]:
    """Name → type of a query's columns; empty when DuckDB does not take it."""
    try:
        described = connection.execute(exp.Describe(this=query.copy()).sql(dialect="duckdb")).fetchall()
    except (duckdb.Error, MemoryError, RuntimeError):
        return {}
    return {str(row[0]): str(row[1]) for row in described}


# --- Readers ----------------------------------------------------------------------------------------------


def typed_rows(form: Shape, layouts: tuple[Layout, ...]) -> exp.Query:
    """The rows of all files, typed; see `TypedRows`."""
    alone = len({layout.columns[form.table.unit_key][1] for layout in layouts}) == 1
    queries = [_typed_layout(form, layout, alone=alone) for layout in layouts]
    return queries[0] if len(queries) == 1 else exp.union(*queries, distinct=False)


def _typed_layout(form: Shape, layout: Layout, *, alone: bool) -> exp.Select:
    name, stored = layout.columns[form.table.unit_key]
    columns = [named(typed_key(name, stored, alone=alone), UNIT)]
    for column in columns_needed(form):
        name, stored = layout.columns[column.name]
        value = typed_column(name, column, stored)
        columns.append(named(value, column_name(column.name)))
    return exp.select(*columns).from_(_rows(layout))


def _rows(layout: Layout) -> exp.Expression:
    if layout.relation is not None:
        return layout.relation.subquery("relation")
    return _csv_reader(layout) if layout.format == "csv" else _parquet_reader(layout.paths)


def _parquet_reader(paths: tuple[str, ...]) -> exp.Table:
    return _reader("read_parquet", paths, hive_partitioning=exp.false())


def _csv_reader(layout: Layout) -> exp.Table:
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
    listed = exp.Array(expressions=[text(literal_path(path)) for path in paths])
    named_options = [exp.EQ(this=exp.to_identifier(name), expression=value) for name, value in options.items()]
    return exp.Table(this=exp.Anonymous(this=function, expressions=[listed, *named_options]))


def literal_path(path: str) -> str:
    """The path as a pattern that matches itself alone."""
    return "".join(f"[{letter}]" if letter in _MAGIC else letter for letter in path)
