"""`site prepare`: from the rows of any source to a snapshot clustered by patient.

A snapshot is complete before anything names it: its files are written into a folder of their own and are durable
before the manifest, renamed into place, points there. Killed at any moment it leaves the old one or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import Fingerprint, Preparable
from site_agent.reading.columnstore.clustering import PARTITIONS, Overfull
from site_agent.reading.columnstore.column_encoding import ColumnFile, encoded
from site_agent.reading.columnstore.snapshot import MANIFEST, PATIENT, KeptFile, KeptLayout, Manifest, sealed
from site_agent.reading.columnstore.spill import Partitions, field_name
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import ConfigurationMistaken, SourceFailed, Unavailable
from wardround.federation.file_faults import file_fault
from wardround.federation.private_files import (
    create_private,
    make_private_folder,
    open_lock,
    sync_folder,
    write_private,
)
from wardround.federation.study.study import Column, ColumnType, Table

Report = Callable[[str], None]
_PATIENT_TYPE = "<i4"
_MOST_ROWS = 2**31 - 1
_REPORT_EVERY = 64


def prepare_table(
    table: Table,
    source: Preparable,
    *,
    folder: Path,
    study_hash: str,
    key: bytes,
    now_seconds: float,
    report: Report,
    limits: Limits | None = None,
) -> Manifest:
    """Make the snapshot of one table in `folder`, in place of an earlier one.

    Raises:
        Unavailable: the rows could not be read, or changed meanwhile, or there was no room on the disk; an earlier
            snapshot is as it was.
        ConfigurationMistaken: it cannot be written, or not in this memory; the same of an earlier one.
    """
    make_private_folder(folder)
    try:
        with _alone(folder):
            _tidy(folder, keep=None)
            return _prepared(table, source, folder, _Making(study_hash, key, now_seconds, report, limits or Limits()))
    except SourceFailed:
        pass
    except Overfull as overfull:
        raise ConfigurationMistaken(
            f"The table {table.name!r} has too many {overfull} to be prepared in this site's memory; raise "
            "memory_mebibytes in site.toml, or do not prepare the table: questions then read its source."
        ) from None
    except OSError as error:
        raise file_fault(f"The snapshot of the table {table.name!r}", error, done="written") from None
    raise Unavailable(
        f"The rows of the table {table.name!r} could not be read to the end, and no new snapshot was made; read all of "
        "them in the source itself to see what fails."
    )


@dataclass(frozen=True, slots=True)
class _Making:
    """What every step of making one snapshot needs."""

    study_hash: str
    key: bytes = field(repr=False)
    now_seconds: float
    report: Report
    limits: Limits


def _prepared(table: Table, source: Preparable, folder: Path, making: _Making) -> Manifest:
    before = source.fingerprint(table)
    with _staging(folder) as staging:
        with Partitions(staging, table, making.key, making.limits) as rows:
            making.report(f"{table.name}: reading rows")
            for batch in source.batches(table):
                rows.add(batch)
            if rows.rows > _MOST_ROWS:
                raise ConfigurationMistaken(f"The table {table.name!r} has more rows than a snapshot can hold.")
            if source.fingerprint(table) != before:
                raise Unavailable(f"The table {table.name!r} changed while it was read; prepare it again.")
            making.report(f"{table.name}: sorting by patient")
            written = _Written(staging, table, rows)
            written.write_all(making.report)
        manifest = written.manifest(making, staging.name, before)
        sync_folder(staging)
        write_private(folder / MANIFEST, sealed(manifest, making.key))
    _tidy(folder, keep=staging.name)
    return manifest


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A new folder that nothing points to yet, gone again if anything fails."""
    path = Path(tempfile.mkdtemp(prefix="snapshot-", dir=folder))
    try:
        yield path
    except BaseException:
        if _pointed(folder) != path.name:
            shutil.rmtree(path, ignore_errors=True)
        raise


class _Written:
    """The column files of one snapshot while they grow."""

    def __init__(self, staging: Path, table: Table, rows: Partitions) -> None:
        self._staging, self._table, self._rows = staging, table, rows
        self._layouts = {column.name: rows.extents[column.name].layout() for column in table.columns}
        self._patients = 0
        self._files: list[KeptLayout] = []
        self._patient: KeptLayout | None = None

    def write_all(self, report: Report) -> None:
        """Partition by partition: cluster, narrow, append."""
        table = self._table
        with ExitStack() as closing:
            patient = closing.enter_context(_Growing(self._staging / PATIENT))
            growing = [
                closing.enter_context(_Growing(self._staging / f"column-{n}")) for n in range(len(table.columns))
            ]
            gaps = [False] * len(growing)
            told = _REPORT_EVERY
            for number, found in self._rows.each():
                codes = np.cumsum(found.begins) + (self._patients - 1)
                self._patients = int(codes[-1]) + 1
                patient.append(codes.astype(_PATIENT_TYPE))
                for place, column in enumerate(table.columns):
                    kept = encoded(found.rows[field_name(place)], column, self._layouts[column.name])
                    gaps[place] = gaps[place] or _has_gaps(kept, column, self._layouts[column.name])
                    growing[place].append(kept)
                if number >= told:
                    report(f"{table.name}: sorting by patient, {100 * told // PARTITIONS} %")
                    told += _REPORT_EVERY
        self._patient = KeptLayout(PATIENT, ColumnFile(_PATIENT_TYPE, packed=False), patient.kept(), gaps=False)
        self._files = [
            KeptLayout(column.name, self._layouts[column.name], growing[place].kept(), gaps[place], self._texts(column))
            for place, column in enumerate(table.columns)
        ]

    def manifest(self, making: _Making, name: str, fingerprint: Fingerprint) -> Manifest:
        if self._patient is None:
            raise SourceFailed(private="a snapshot was described before it was written")
        return Manifest(
            study_hash=making.study_hash,
            table=self._table.name,
            folder=name,
            rows=self._rows.rows,
            made_at_seconds=making.now_seconds,
            fingerprint=fingerprint,
            patient=self._patient,
            columns=tuple(self._files),
        )

    def _texts(self, column: Column) -> KeptFile | None:
        if not column.open:
            return None
        place = [each.name for each in self._table.columns].index(column.name)
        with _Growing(self._staging / f"texts-{place}") as file:
            file.write(json.dumps(self._rows.texts(column.name)).encode())
        return file.kept()


class _Growing:
    """A file that is written once, with its digest, and durable when closed."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._file = create_private(path)
        self._digest = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())

    def append(self, values: NDArray[np.generic]) -> None:
        self.write(values.tobytes())

    def write(self, raw: bytes) -> None:
        self._file.write(raw)
        self._digest.update(raw)
        self._size += len(raw)

    def kept(self) -> KeptFile:
        return KeptFile(self._name, self._size, self._digest.hexdigest())


def _has_gaps(kept: NDArray[np.generic], column: Column, layout: ColumnFile) -> bool:
    if not layout.packed:
        return True
    return bool((kept.astype(np.int64) < (2 if column.type is ColumnType.CATEGORY else 1)).any())


# --- The folder -------------------------------------------------------------------------------------------


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One preparation of a table at a time; another waits."""
    with os.fdopen(open_lock(folder / "lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _tidy(folder: Path, *, keep: str | None) -> None:
    """Remove what a killed preparation left, and the snapshot that nothing points to any more."""
    kept = keep if keep is not None else _pointed(folder)
    for each in folder.iterdir():
        if each.is_dir() and each.name != kept:
            shutil.rmtree(each, ignore_errors=True)


def _pointed(folder: Path) -> str | None:
    """The folder that a manifest names, whatever else is wrong with it."""
    try:
        body = json.loads(json.loads((folder / MANIFEST).read_bytes())["body"])
        return str(body["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
