"""Whether DuckDB would convert values of a relation by itself in a way that some value could fail."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
from sqlglot import exp

from site_agent.reading.relations.conversions import Types, require_total_conversions
from site_agent.reading.relations.merged_types import IN_DUCKDB


def check_merged_types(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    query: exp.Query,
    over: Callable[[exp.Query], exp.Query] = lambda probe: probe,
) -> None:
    """Ask DuckDB for types alone, and refuse a relation that leaves such a conversion to it.

    `over` puts what is read in place of the names in a query.

    Raises:
        SchemaRefused: one sentence.
    """

    def asked(probe: exp.Query) -> Types | None:
        try:
            lines = connection.execute(exp.Describe(this=over(probe)).sql(dialect="duckdb")).fetchall()
        except duckdb.Error:
            return None
        return tuple(str(line[1]) for line in lines)

    require_total_conversions(query, asked, IN_DUCKDB, table=table)
