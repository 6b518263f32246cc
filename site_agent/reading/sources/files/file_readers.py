"""DuckDB's readers of files, as pieces of a statement: the only place where a file's path is written into one."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from site_agent.reading.sources.duckdb.columns import TEXT
from site_agent.reading.statements.sql_trees import text

_LONGEST_RECORD_BYTES = 2_000_000
MAGIC = "*?["
"""What makes a path a pattern."""


def parquet_reader(paths: Sequence[str]) -> exp.Table:
    """The rows of Parquet files."""
    return _reader("read_parquet", paths, hive_partitioning=exp.false())


def csv_reader(paths: Sequence[str], delimiter: str, width: int) -> exp.Table:
    """The records of CSV files with `width` fields, called f0, f1 and so on."""
    # Names are ours, by position: nothing written in a header reaches the statement.
    fields = [exp.PropertyEQ(this=text(f"f{place}"), expression=text(TEXT)) for place in range(width)]
    return _reader(
        "read_csv",
        paths,
        auto_detect=exp.false(),
        header=exp.true(),
        delim=text(delimiter),
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


def _reader(function: str, paths: Sequence[str], **options: exp.Expression) -> exp.Table:
    listed = exp.Array(expressions=[text(literal_path(path)) for path in paths])
    named_options = [exp.EQ(this=exp.to_identifier(name), expression=value) for name, value in options.items()]
    return exp.Table(this=exp.Anonymous(this=function, expressions=[listed, *named_options]))


def literal_path(path: str) -> str:
    """The path as a pattern that matches itself alone."""
    return "".join(f"[{letter}]" if letter in MAGIC else letter for letter in path)


def described(connection: duckdb.DuckDBPyConnection, query: exp.Query) -> dict[str, str]:
    """Name → type of a query's columns; empty when DuckDB does not take it."""
    try:
        described = connection.execute(exp.Describe(this=query.copy()).sql(dialect="duckdb")).fetchall()
    except (duckdb.Error, MemoryError, RuntimeError):
        return {}
    return {str(row[0]): str(row[1]) for row in described}
