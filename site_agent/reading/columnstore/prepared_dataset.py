"""A dataset that answers from snapshots where they show the source as it is, and from the source where they do not.

A snapshot that is stale, damaged or of another study is never used: the log and `site check` say so, and the
source itself is read at once, for the same question. What was computed cannot tell which of the two it came from: the
sums are the same wherever the cap cuts nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from site_agent.reading.batches import Fingerprint, Preparable
from site_agent.reading.bounding.tally import finish, tally_width
from site_agent.reading.columnstore.aggregate import Adding, CodeCounts, PatientChunk, RecordSums, RowSums
from site_agent.reading.columnstore.array_cells import Cells, cells_of, levels_of, selected, text_cells
from site_agent.reading.columnstore.scan import Disordered, chunks
from site_agent.reading.columnstore.snapshot import Manifest, Snapshot, Unusable, read_manifest
from site_agent.reading.dataset import Dataset, Tables
from site_agent.reading.examples import Examples
from wardround.federation.errors import FederationError
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums, Tally
from wardround.federation.forms.release import showable
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Study, Table
from wardround.privacy.noise.vectors import Bounded

log = logging.getLogger("wardround.site")

FOLDER = "prepared"
_HOUR_SECONDS = 3600.0
_DISORDERED = "its rows are not in order, or do not fit into memory"
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Freshness:
    """What can be said about a table's snapshot: that there is none, that it is used, or why it is not."""

    exists: bool
    fault: str | None = None


@dataclass(slots=True)
class PreparedFirst:
    """The tables of one site, from their snapshots where these can be used; see `Dataset`."""

    tables: Tables
    folder: Path
    study: Study
    key: bytes = field(repr=False)
    hours: Mapping[str, float] = field(default_factory=dict)
    now_seconds: Callable[[], float] = time.time
    _opened: dict[str, Snapshot] = field(default_factory=dict, repr=False)
    _refused: set[str] = field(default_factory=set, repr=False)

    def check(self, form: AnswerLayout) -> None:
        """See `Dataset.check`; a snapshot changes nothing about what the source must hold."""
        self.tables.check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self._answered(form, bounded_totals, Tables.bounded)

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        return self._answered(form, key_counts, Tables.keys)

    def examples(self, form: StepLayout) -> Examples:
        """See `Dataset.examples`; from the source, because a snapshot does not hold the patients' own keys."""
        return self.tables.examples(form)

    def fingerprint(self, table: Table) -> Fingerprint:
        """The state of the table's source, whatever its snapshot shows."""
        return self.tables.fingerprint(table)

    def standing(self, table: Table) -> Freshness:
        """Whether the table's snapshot would be used now, every file verified."""
        try:
            snapshot = self._snapshot(table)
            snapshot.verify()
        except FileNotFoundError:
            return Freshness(exists=False)
        except Unusable as unusable:
            return Freshness(exists=True, fault=str(unusable))
        return Freshness(exists=True)

    def _answered(
        self,
        form: AnswerLayout,
        prepared: Callable[[AnswerLayout, Snapshot], Answer],
        direct: Callable[[Tables, AnswerLayout], Answer],
    ) -> Answer:
        # The source is read outside the handlers: what fails there must not carry what failed here as its cause.
        try:
            return prepared(form, self._snapshot(form.table))
        except FileNotFoundError:
            pass
        except Unusable as unusable:
            log.warning("the snapshot of %s is not used: %s", form.table.name, unusable)
        except (Disordered, MemoryError, LookupError, ArithmeticError, TypeError, ValueError, OSError):
            # Codes that no table has are as impossible as a digest that is wrong and fits. Whichever of these it was,
            # from now on the source itself is read for every question, until the table is prepared again: a copy that
            # is wrong must not close a table whose source is sound.
            self._refused.update(
                opened.manifest.folder for opened in self._opened.values() if opened.table == form.table
            )
            log.warning("the snapshot of %s is not used: %s", form.table.name, _DISORDERED)
        return direct(self.tables, form)

    def _snapshot(self, table: Table) -> Snapshot:
        path = self.folder / table.name
        try:
            manifest = read_manifest(path, self.key)
        except FileNotFoundError:
            raise
        except OSError:
            raise Unusable("it cannot be read") from None
        self._require_current(manifest, table)
        opened = self._opened.get(table.name)
        if opened is None or opened.manifest != manifest:
            opened = self._opened[table.name] = Snapshot(path, manifest, table)
        return opened

    def _require_current(self, manifest: Manifest, table: Table) -> None:
        if manifest.study_hash != self.study.study_hash or manifest.table != table.name:
            raise Unusable("it was made for another study")
        if manifest.folder in self._refused:
            raise Unusable(_DISORDERED)
        try:
            found = preparable(self.tables.sources[table.name]).fingerprint(table)
        except (FederationError, KeyError):
            raise Unusable("the source cannot be looked at") from None
        if found != manifest.fingerprint:
            raise Unusable("the source has changed since it was made")
        age_seconds = self.now_seconds() - manifest.made_at_seconds
        hours = self.hours.get(table.name, 0.0)
        if not found.sees_changes and not 0.0 <= age_seconds <= hours * _HOUR_SECONDS:
            raise Unusable(f"it is older than prepared_hours = {hours:g}")


def preparable(source: Dataset) -> Preparable:
    """The source as one that rows can be prepared from.

    Raises:
        Unusable: it hands out no rows.
    """
    if isinstance(source, Preparable):
        return source
    raise Unusable("this kind of source cannot be prepared")


def bounded_totals(form: AnswerLayout, snapshot: Snapshot) -> tuple[Bounded, ...]:
    """The bounded total of every part.

    Raises:
        Unusable: the snapshot is damaged; nothing was read.
        Disordered: its rows are not in order.
    """
    tallies = _scanned(form, snapshot, [_sums(form, part, snapshot) for part in form.parts])
    return tuple(finish(part, tally) for part, tally in zip(form.parts, tallies, strict=True))


def key_counts(form: AnswerLayout, snapshot: Snapshot) -> Mapping[str, int]:
    """How many units hold each text of the open column whose keys the question asks for.

    Raises:
        Unusable: as above.
    """
    part = form.parts[0]
    column = snapshot.column(part.columns[0])
    if not column.texts:
        return {}
    cells = text_cells(column, usable=showable)
    (tally,) = _scanned(form, snapshot, [RecordSums(form, part, cells, [], width=1, rows=snapshot.manifest.rows)])
    counts = zip(column.texts, tally[:, 0].tolist(), strict=True)
    return dict(sorted((text, int(count)) for text, count in counts if count))


def _scanned(form: AnswerLayout, snapshot: Snapshot, sums: list[Adding]) -> list[Tally]:
    patients = snapshot.patients()
    cohort = None if form.query.cohort is None else selected(form.query.cohort, snapshot.column)
    for span in chunks(patients):
        chunk = PatientChunk(span, patients[span.rows], None if cohort is None else cohort(span.rows))
        for each in sums:
            each.add(chunk)
    return [each.tally() for each in sums]


def _sums(form: AnswerLayout, part: Part, snapshot: Snapshot) -> Adding:
    cells, rows = cells_of(form, part, snapshot.column), snapshot.manifest.rows
    quantised = zip(part.columns, part.quantisers, strict=True) if part.quantisers else ()
    levels = [levels_of(snapshot.column(name), quantiser) for name, quantiser in quantised]
    if part.records is not Records.ROWS:
        return RecordSums(form, part, cells, levels, width=tally_width(part), rows=rows)
    match part.sums, cells:
        case Sums.COUNT, Cells(column=column, table=table) if (
            column is not None and table is not None and CodeCounts.possible(column, table)
        ):
            return CodeCounts(form, part, column, table)
        case _:
            return RowSums(form, part, cells, levels, rows=rows)
