"""The factory of datasets: which source answers for each table, by the text that names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from site_agent.reading.dataset import KEY_BYTES, Dataset, Tables, TableSource, kind_of, source_path, table_files
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import ConfigurationMistaken


def open_dataset(
    tables: Mapping[str, TableSource], *, folder: Path, key: bytes, limits: Limits | None = None
) -> Tables:
    """The dataset over `tables`; relative paths start at `folder`.

    `key` is the site's own secret: it decides which rows of a patient count when there are too many.
    `limits` is what one question may use of the machine.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key that chooses rows must have {KEY_BYTES} bytes")
    found = limits or Limits()
    sources = {name: _opened(name, source, folder=folder, key=key, limits=found) for name, source in tables.items()}
    return Tables(sources, limits=found)


def check_sources(tables: Mapping[str, TableSource], *, folder: Path) -> None:
    """Refuse what can be seen in the words alone; no file and no database is touched.

    Raises:
        ConfigurationMistaken: one sentence that names the table, never an address.
    """
    open_dataset(tables, folder=folder, key=bytes(KEY_BYTES))


def _opened(table: str, source: TableSource, *, folder: Path, key: bytes, limits: Limits) -> Dataset:
    try:
        return _source(table, source, folder=folder, key=key, limits=limits)
    except ModuleNotFoundError as error:
        extra = "postgresql" if kind_of(source.source) == "postgresql" else "duckdb"
        raise ConfigurationMistaken(
            f"tables.{table}.source needs {error.name}, which is not installed; run: pip install 'wardround[{extra}]'"
        ) from None


def _source(table: str, source: TableSource, *, folder: Path, key: bytes, limits: Limits) -> Dataset:
    """The source that the text names; a hospital installs only the driver of its own."""
    match kind_of(source.source):
        case "postgresql":
            from site_agent.reading.sources.postgresql.table import open_postgresql  # noqa: PLC0415

            return open_postgresql(table, source, key=key, limits=limits)
        case "sqlite":
            from site_agent.reading.sources.sqlite.table import open_sqlite  # noqa: PLC0415

            return open_sqlite(table, source_path(table, source, folder), source, key=key, limits=limits)
        case "duckdb":
            from site_agent.reading.sources.duckdb.database import open_duckdb  # noqa: PLC0415

            return open_duckdb(table, source_path(table, source, folder), source, key=key, limits=limits)
        case _:
            from site_agent.reading.sources.files.files import DuckdbFiles  # noqa: PLC0415

            return DuckdbFiles({table: table_files(table, source, folder=folder)}, key=key, limits=limits)
