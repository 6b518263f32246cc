"""The hospital's tables as the pipeline sees them: a check without rows, bounded totals, and examples to learn from.

`check` comes before the charge and may say what is wrong, because it looks at schemas only: the same words for every
source, with the table and the column, never a value; where the rows are stays in the private text. Everything else
comes after the charge and may say nothing but that it failed, because an error message
could reveal something about a patient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from site_agent.reading.batches import Fingerprint, Fingerprinted, every_column
from site_agent.reading.examples import Examples, LastExamples, step_table
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Column, Table
from wardround.privacy.noise.vectors import Bounded

FORMATS = ("csv", "parquet")
_BEGINNINGS: Mapping[str, str] = {
    "csv:": "csv",
    "parquet:": "parquet",
    "duckdb:": "duckdb",
    "sqlite:": "sqlite",
    "postgresql://": "postgresql",
    "postgres://": "postgresql",
}
_ENDINGS: Mapping[str, str] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".duckdb": "duckdb",
    ".sqlite": "sqlite",
    ".db": "sqlite",
}
KEY_BYTES = 32
_BEGINS = ("select", "with", "from ")
_KEPT_BESIDE = 16
"""The examples of a training are kept beside other questions if they take less than this part of the memory."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the hospital says about the tables that its own SELECT reads.

    `public` are tables that hold no patient. `keys` is what the others call the unit key where the study calls it
    otherwise: COLUMN, or TABLE.COLUMN for one of them.
    """

    public: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where the hospital keeps one table of the study, in its own words.

    `relation` is a table, a view or a SELECT over one patient's own rows.
    """

    source: str
    relation: str | None = None
    # A column with each row's rank within its patient, in a random order of the hospital's own.
    rank: str | None = None
    timeout_seconds: float = 600.0
    # How old a snapshot may be whose source cannot say whether it changed.
    prepared_hours: float = 24.0
    # About how many rows the table has: declared and public, never compared with the table.
    rows: int | None = None
    declared: Declared = field(default_factory=Declared)


class Dataset(Protocol):
    """The tables of one site behind the few questions the pipeline may ask."""

    def check(self, form: AnswerLayout) -> None:
        """Refuse what can be seen to be impossible without reading a row.

        Raises:
            SchemaRefused: one sentence that names the table or column, never a value.
            SourceAway: one sentence; nothing can be seen now, but perhaps later.
        """

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        """The bounded integer totals, one for each part of `form`, in its order.

        Raises:
            SourceFailed: always the same words, whatever went wrong; rows may have decided it.
            SourceAway: always the same words; rows did not decide it.
        """

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        """How many units hold each text of the open column of a question for keys, before noise and threshold.

        A unit is counted under at most `max_groups` texts, chosen from its own rows.

        Raises:
            SourceFailed, SourceAway: as above.
        """

    def examples(self, form: StepLayout) -> Examples:
        """The complete rows of the step's cohort, unit by unit.

        Raises:
            SourceFailed, SourceAway: as above.
        """


def check_form(dataset: Dataset, form: AnswerLayout | StepLayout) -> None:
    """`Dataset.check`, whether a question or a step of a training is asked."""
    # Of a step the columns that it looks at are checked; the question that has them all is never asked.
    dataset.check(every_column(step_table(form)) if isinstance(form, StepLayout) else form)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table's files: a format and an absolute path, which may be a pattern or a folder.

    `relation` is the hospital's own SELECT over them, which calls them `this`.
    """

    format: str
    path: str
    relation: str | None = None
    declared: Declared = field(default_factory=Declared)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one site, each answered by its own source."""

    sources: Mapping[str, Dataset]
    _last: LastExamples = field(default_factory=LastExamples, repr=False, compare=False)
    limits: Limits = field(default_factory=Limits)

    def check(self, form: AnswerLayout) -> None:
        self._source(form).check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self._alone(form).bounded(form)

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        return self._alone(form).keys(form)

    def examples(self, form: StepLayout) -> Examples:
        """See `Dataset.examples`; the rounds of one training read rows once."""
        source = self._source(form)
        return self._last.of(form, source, source.examples)

    def fingerprint(self, table: Table) -> Fingerprint:
        """The state of the table's source; of one that cannot be looked at no change is ever seen."""
        source = self._of(table.name)
        return source.fingerprint(table) if isinstance(source, Fingerprinted) else Fingerprint("", sees_changes=False)

    def _alone(self, form: AnswerLayout) -> Dataset:
        """The source of a question, which has the memory nearly to itself."""
        self._last.make_room(self.limits.working_bytes // _KEPT_BESIDE)
        return self._source(form)

    def _source(self, form: AnswerLayout | StepLayout) -> Dataset:
        return self._of(form.table.name)

    def _of(self, table: str) -> Dataset:
        if (source := self.sources.get(table)) is None:
            raise SchemaRefused(f"The site has no source for the table {table!r}.")
        return source


def kind_of(source: str) -> str | None:
    """Which kind of source a text names, by what it begins or ends with; None when by neither."""
    for beginning, kind in _BEGINNINGS.items():
        if source.startswith(beginning):
            return kind
    for ending, kind in _ENDINGS.items():
        if source.lower().endswith(ending):
            return kind
    return source if source in FORMATS else None


def table_files(table: str, source: TableSource, *, folder: Path) -> TableFiles:
    """The format, absolute path and SELECT that `source` names, or one sentence about what it should say."""
    kind = kind_of(source.source)
    if kind not in FORMATS:
        raise _unknown(table)
    if source.source in FORMATS:
        # The format alone: the path stands in `relation`.
        return TableFiles(kind, _absolute(table, source.relation or "", folder))
    if source.relation is not None and not source.relation.lstrip("( \t\r\n").lower().startswith(_BEGINS):
        raise ConfigurationMistaken(
            f"tables.{table}.relation must be one SELECT that reads the files as a table called this."
        )
    return TableFiles(kind, source_path(table, source, folder), source.relation, source.declared)


def source_path(table: str, source: TableSource, folder: Path) -> str:
    """The absolute path, pattern or folder that a source other than PostgreSQL names."""
    beginning, colon, rest = source.source.partition(":")
    return _absolute(table, rest if f"{beginning}{colon}" in _BEGINNINGS else source.source, folder)


def _absolute(table: str, path: str, folder: Path) -> str:
    if not path or "\x00" in path:
        raise _unknown(table)
    return str(folder.absolute() / path)


def _unknown(table: str) -> ConfigurationMistaken:
    return ConfigurationMistaken(
        f"tables.{table}.source must be a path or pattern ending in .csv, .parquet, .duckdb, .sqlite or .db, "
        "one of csv:PATH, parquet:PATH, duckdb:PATH and sqlite:PATH, or postgresql://USER@HOST/DATABASE."
    )


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
        f"The column {column.name!r} of the table {table!r} is not a column of type {column.type.value} at "
        "this site, as the study declares."
    )
