"""What a source says before the charge when a table lacks what the study describes: the same words for every source.

They name the table and the column, never a value; where the rows are stays in the private text.
"""

from __future__ import annotations

from wardround.federation.errors import SchemaRefused
from wardround.federation.study.study import Column


def refused_file(table: str, fault: str, path: str) -> SchemaRefused:
    """A file that cannot be used; the path stays at the site."""
    return SchemaRefused(f"The file of the table {table!r} {fault}.", private=f"source {path}")


def missing_column(table: str, column: str, *, path: str = "") -> SchemaRefused:
    """A column that is not there."""
    private = f"source {path}" if path else ""
    return SchemaRefused(f"The table {table!r} has no column {column!r} at this site.", private=private)


def nested_key(table: str, key: str) -> SchemaRefused:
    """A unit key by which units cannot be told apart."""
    return SchemaRefused(f"The unit key {key!r} of the table {table!r} has a nested type at this site.")


def other_type(table: str, column: Column) -> SchemaRefused:
    """A column that holds something else than the study declares."""
    return SchemaRefused(
        f"The column {column.name!r} of the table {table!r} does not hold "
        f"what the study declares at this site: it is no {column.type.value} column."
    )
