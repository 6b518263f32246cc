"""The hospital's tables as the pipeline sees them: a check without rows, and bounded totals.

`check` comes before the charge and may say what is wrong, because it looks at schemas only. `bounded`
comes after the charge and may say nothing but that it failed, because whatever differs by a row is an
answer nobody paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.shape import Shape
from wardround.privacy.bounded import Bounded

FORMATS = ("csv", "parquet")
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where the hospital keeps one table of the study, in its own words."""

    source: str
    relation: str | None = None
    # A column with each row's rank within its patient, in a random order of the hospital's own.
    rank: str | None = None
    timeout_seconds: float = 600.0
    # How old a snapshot may be whose source cannot say whether it changed.
    prepared_hours: float = 24.0


class Dataset(Protocol):
    """The tables of one site behind the two questions the pipeline may ask."""

    def check(self, form: Shape) -> None:
        """Refuse what can be seen to be impossible without reading a row.

        Raises:
            SchemaRefused: one sentence that names the table or column, never a value.
        """

    def bounded(self, form: Shape) -> tuple[Bounded, ...]:
        """The bounded integer totals, one for each part of `form`, in its order.

        Raises:
            SourceFailed: always the same words, whatever went wrong.
        """

    def keys(self, form: Shape) -> Mapping[str, int]:
        """How many units hold each text of the open column of a question for keys, before noise and threshold.

        A unit is counted under at most `max_groups` texts, chosen from its own rows.

        Raises:
            SourceFailed: as above.
        """


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table's files: a format and an absolute path, which may be a pattern or a folder."""

    format: str
    path: str


def open_dataset(tables: Mapping[str, TableSource], *, folder: Path, key: bytes) -> Dataset:
    """The dataset over `tables`; relative paths start at `folder`.

    `key` is the site's own secret: it decides which rows of a patient count when there are too many.
    """
    # A hospital installs only the driver of its own source.
    from site_agent.sources.duckdb_files import DuckdbFiles  # noqa: PLC0415

    if len(key) != KEY_BYTES:
        message = f"the key that chooses rows must have {KEY_BYTES} bytes"
        raise ValueError(message)
    files = {name: table_files(name, source, folder=folder) for name, source in tables.items()}
    return DuckdbFiles(files, key=key)


def table_files(table: str, source: TableSource, *, folder: Path) -> TableFiles:
    """The format and absolute path that `source` names, or one sentence about what it should say."""
    kind, path = _split(source)
    if kind is None or not path or "\x00" in path:
        message = (
            f"tables.{table}.source must be a path or pattern ending in .csv or .parquet, "
            "or one of these formats with the path in relation."
        )
        raise ConfigurationMistaken(message)
    return TableFiles(kind, str(folder.absolute() / path))


def _split(source: TableSource) -> tuple[str | None, str]:
    text = source.source
    if text in FORMATS:
        return text, source.relation or ""
    if source.relation is not None:
        return None, ""
    for kind in FORMATS:
        if text.startswith(f"{kind}:"):
            return kind, text.removeprefix(f"{kind}:")
        if text.lower().endswith(f".{kind}"):
            return kind, text
    return None, ""
