"""A snapshot opened for reading: its files mapped into memory, each verified before it is first used.

A file that is not the one the manifest describes makes the whole snapshot unusable; the source itself is
read then, which is slower and never wrong.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.reading.columnstore.column_encoding import KeptColumn
from site_agent.reading.columnstore.manifest import KeptFile, KeptLayout, Manifest, Unusable
from wardround.federation.study.study import Table

_State = tuple[int, int, int, int]


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
