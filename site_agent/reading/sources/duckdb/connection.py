"""An embedded DuckDB that may open the files it is given and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import duckdb

from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb.mended_files import MendedFile

# Fixed before the first statement and then locked. `type_pushdown` would move a cast into the CSV reader,
# where it raises and prints the row; `common_subexpressions` moves what two TRY have in common out of both.
_ALWAYS, _WITH_TRY = "type_pushdown", "common_subexpressions"
_SETTINGS: Mapping[str, str] = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_file_cache": "false",
    "extension_directory": os.devnull,
    "home_directory": os.devnull,
    "max_temp_directory_size": "0KiB",
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
    "secret_directory": os.devnull,
    "temp_directory": "",
}


def locked_database(
    allowed: Sequence[str],
    limits: Limits,
    *,
    mended: Sequence[MendedFile] = (),
    whole_files: bool = False,
    tries: bool = True,
) -> duckdb.DuckDBPyConnection:
    """An empty database in memory that may open what is `allowed` or `mended`; nothing can be set any more.

    With `whole_files` no part of a file is left out because of what the file says about itself. Without `tries` no
    statement may hold TRY, and those of ours are quicker.
    """
    disabled = [_ALWAYS, *([_WITH_TRY] if tries else []), *(["statistics_propagation"] if whole_files else [])]
    settings: dict[str, str | bool | int | float | list[str]] = {
        **_SETTINGS,
        "disabled_optimizers": ",".join(disabled),
        "threads": limits.database_threads,
        "memory_limit": f"{limits.database_kibibytes}KiB",
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    if mended:
        # Loads fsspec, which few sites need.
        from site_agent.reading.sources.duckdb.mended_filesystem import MendedFiles  # noqa: PLC0415

        connection.register_filesystem(MendedFiles(mended))
        # Page by page, as from a disk: a column of a row group may be larger than the memory.
        connection.execute("SET GLOBAL disable_parquet_prefetching = true")
    connection.execute("SET GLOBAL allowed_paths = $1", [[*allowed, *(file.name for file in mended)]])
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL lock_configuration = true")
    return connection
