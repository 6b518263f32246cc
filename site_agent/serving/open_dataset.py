"""The factory of datasets: which source answers for each table, by the text that names it, and its snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from site_agent.reading.batches import Batch, Fingerprint, Preparable
from site_agent.reading.columnstore.build import Report, prepare_table
from site_agent.reading.columnstore.prepared_dataset import FOLDER, PreparedFirst, preparable
from site_agent.reading.columnstore.snapshot import Unusable
from site_agent.reading.dataset import KEY_BYTES, Dataset, Tables, TableSource, kind_of, source_path, table_files
from site_agent.reading.memory_limits import Limits
from site_agent.serving.configuration import SiteConfiguration
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.table_faults import told
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused, SourceAway
from wardround.federation.private_files import make_private_folder
from wardround.federation.study.study import Study, Table


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


def site_dataset(folder: SiteFolder, configuration: SiteConfiguration, study: Study) -> PreparedFirst:
    """The tables of this site, from their snapshots where there are usable ones."""
    key = folder.row_key()
    return PreparedFirst(
        open_dataset(configuration.tables, folder=folder.path, key=key, limits=configuration.limits),
        folder.path / FOLDER,
        study,
        key,
        {name: source.prepared_hours for name, source in configuration.tables.items()},
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """A source that says how many of its rows were handed out."""

    source: Preparable
    on_rows: Callable[[int], None]

    def fingerprint(self, table: Table) -> Fingerprint:
        return self.source.fingerprint(table)

    def batches(self, table: Table) -> Iterator[Batch]:
        rows = 0
        for batch in self.source.batches(table):
            yield batch
            rows += batch.units.size
            self.on_rows(rows)


def prepare_site(path: Path, *, report: Report, on_rows: Callable[[int], None] = lambda _: None) -> tuple[str, ...]:
    """Make a snapshot of every table of the site in this folder, and say of which; the agent may serve meanwhile.

    `on_rows` hears how many rows of a table are read: a number of the hospital's own, for its own screen.
    """
    folder = open_folder(path)
    configuration, study = folder.configuration(), folder.study()
    dataset = site_dataset(folder, configuration, study)
    make_private_folder(folder.path / FOLDER)
    done: list[str] = []
    for name in configuration.tables:
        table = study.table(name)
        try:
            source = _Counted(preparable(dataset.tables.sources[name]), on_rows)
        except Unusable:
            raise ConfigurationMistaken(f"The source of the table {name!r} cannot be prepared.") from None
        with _told(table, configuration.tables[name]):
            prepare_table(
                table,
                source,
                folder=folder.path / FOLDER / name,
                study_hash=study.study_hash,
                key=dataset.key,
                now_seconds=time.time(),
                report=report,
                limits=configuration.limits,
            )
        done.append(name)
    return tuple(done)


@contextmanager
def _told(table: Table, source: TableSource) -> Iterator[None]:
    """On the steward's terminal, which way into the database is closed."""
    try:
        yield
    except (SourceAway, SchemaRefused) as error:
        where = f" {error.private}" if isinstance(error, SourceAway) and error.private else ""
        raise type(error)(told(table, source) or f"{error.message}{where}") from None
