"""A snapshot opened for reading: its files mapped into memory, each verified before it is first used.

Its manifest says of which study, table and state of the source it is, and is sealed with the site's row key. A snapshot
whose seal, study, format or files do not match is not used, and nothing is ever computed from half of one; the source
itself is read then, which is slower and never wrong.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.batches import Fingerprint
from site_agent.reading.columnstore.column_encoding import ColumnFile, KeptColumn
from wardround.federation.study.study import Table

_State = tuple[int, int, int, int]
FORMAT = 1
MANIFEST = "manifest.json"
PATIENT = "patient"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The columns of one table, sorted by patient. Secret."""

    path: Path
    manifest: Manifest
    table: Table
    _verified: dict[str, tuple[_State, memoryview]] = field(default_factory=dict, repr=False)
    _texts: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def patients(self) -> NDArray[np.int32]:
        """The patient's code of every row; `scanning` verifies that codes never fall."""
        return np.frombuffer(self._bytes(self.manifest.patient.codes), dtype="<i4")

    def column(self, name: str) -> KeptColumn:
        """One column, verified.

        Raises:
            Unusable: it is damaged.
        """
        kept = self._kept(name)
        texts: tuple[str, ...] = ()
        if kept.texts is not None:
            raw = self._bytes(kept.texts)
            texts = self._texts.get(kept.texts.digest) or tuple(json.loads(bytes(raw)))
            self._texts[kept.texts.digest] = texts
        codes = np.frombuffer(self._bytes(kept.codes), dtype=kept.layout.dtype)
        if codes.size != self.manifest.rows:
            raise Unusable("it is damaged")
        return KeptColumn(self.table.column(name), kept.layout, codes, texts, kept.gaps)

    def verify(self) -> None:
        """Look at every file.

        Raises:
            Unusable: one is damaged.
        """
        self._bytes(self.manifest.patient.codes)
        for kept in self.manifest.columns:
            self.column(kept.column)

    def _kept(self, name: str) -> KeptLayout:
        for kept in self.manifest.columns:
            if kept.column == name:
                return kept
        raise Unusable("it lacks a column")

    def _bytes(self, kept: KeptFile) -> memoryview:
        """The file's bytes; looked at again when it is not the file that was verified."""
        path = self.path / self.manifest.folder / kept.file
        try:
            found = path.stat()
            state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if kept.file not in self._verified or self._verified[kept.file][0] != state:
                self._verified[kept.file] = state, _mapped(path, kept)
        except OSError:
            raise Unusable("a file of it cannot be read") from None
        return self._verified[kept.file][1]


def _mapped(path: Path, kept: KeptFile) -> memoryview:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        found = memoryview(mmap.mmap(handle, size, prot=mmap.PROT_READ) if size else b"")
    finally:
        os.close(handle)
    if size != kept.size or hashlib.sha256(found).hexdigest() != kept.digest:
        raise Unusable("a file of it is damaged")
    return found


class Unusable(Exception):
    """A snapshot that cannot be used, and why in a few words without a value."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file of a snapshot: a column, or the texts of one."""

    file: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class KeptLayout:
    """One column of a snapshot: how it is kept and where. `gaps` says whether a value is absent or not public."""

    column: str
    layout: ColumnFile
    codes: KeptFile
    gaps: bool
    texts: KeptFile | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole snapshot. Secret like the rows it counts."""

    study_hash: str
    table: str
    folder: str
    rows: int
    made_at_seconds: float
    fingerprint: Fingerprint
    patient: KeptLayout
    columns: tuple[KeptLayout, ...]


def sealed(manifest: Manifest, key: bytes) -> bytes:
    """The manifest as bytes that `opened` takes back under the same key."""
    body = json.dumps({"format": FORMAT, **dataclasses.asdict(manifest)}, sort_keys=True)
    return json.dumps({"body": body, "seal": _seal(body, key)}).encode()


def read_manifest(path: Path, key: bytes) -> Manifest:
    """The manifest in a table's folder.

    Raises:
        FileNotFoundError: there is no snapshot.
        Unusable: there is one that this agent did not make.
    """
    raw = (path / MANIFEST).read_bytes()
    try:
        outer = json.loads(raw)
        body, seal = outer["body"], outer["seal"]
        if not (isinstance(body, str) and isinstance(seal, str) and hmac.compare_digest(_seal(body, key), seal)):
            raise Unusable("it is damaged, or was made with another row key")
        found = json.loads(body)
        if found.pop("format") != FORMAT:
            raise Unusable("it was made by another version")
        return _manifest(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise Unusable("it is damaged")


def _seal(body: str, key: bytes) -> str:
    return hmac.new(key, b"wardround prepared\n" + body.encode(), hashlib.sha256).hexdigest()


def _manifest(found: dict[str, object]) -> Manifest:
    """Sealed, so what is in it is what `sealed` wrote."""
    columns = found["columns"]
    if not isinstance(columns, list):
        raise Unusable("it is damaged")
    return Manifest(
        study_hash=str(found["study_hash"]),
        table=str(found["table"]),
        folder=str(found["folder"]),
        rows=int(str(found["rows"])),
        made_at_seconds=float(str(found["made_at_seconds"])),
        fingerprint=Fingerprint(**found["fingerprint"]),  # type: ignore[arg-type]
        patient=_kept(found["patient"]),
        columns=tuple(_kept(each) for each in columns),
    )


def _kept(found: object) -> KeptLayout:
    if not isinstance(found, dict):
        raise Unusable("it is damaged")
    texts = found["texts"]
    return KeptLayout(
        column=found["column"],
        layout=ColumnFile(**found["layout"]),
        codes=KeptFile(**found["codes"]),
        gaps=found["gaps"],
        texts=None if texts is None else KeptFile(**texts),
    )
