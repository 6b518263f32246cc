"""The files that are mended, as DuckDB asks for them.

DuckDB opens such a file by a name of ours and asks this process for its bytes, a page or a buffer at a time.
"""

from __future__ import annotations

import datetime
import os
import threading
import weakref
from collections.abc import Sequence

from fsspec import AbstractFileSystem

from site_agent.reading.batches import stat_text
from site_agent.reading.sources.duckdb.mended_files import SCHEME, MendedFile

_SOME_DAY = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


class MendedFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files behind these names, in the only words that DuckDB asks for them with."""

    protocol = SCHEME
    cachable = False

    def __init__(self, files: Sequence[MendedFile]) -> None:
        super().__init__()
        self._files = {file.name: file for file in files}

    def glob(self, path: str) -> list[str]:
        return [path] if path in self._files else []

    def size(self, path: str) -> int:
        return self._files[path].view.size_bytes

    def modified(self, path: str) -> datetime.datetime:
        """Always the same: another version has another name."""
        del path
        return _SOME_DAY

    def open(self, path: str, mode: str) -> _Opened:
        del mode
        return _Opened(self._files[path])


class _Opened:
    """One open file. DuckDB seeks and then reads, by several threads at once: each has a place of its own."""

    def __init__(self, file: MendedFile) -> None:
        self._view = file.view
        self._place = threading.local()
        self._descriptor = os.open(file.source, os.O_RDONLY | os.O_CLOEXEC)
        # DuckDB does not close every file that it lets go of.
        self.close = weakref.finalize(self, os.close, self._descriptor)
        if stat_text([file.source]) != file.state:
            raise OSError("changed since it was looked at")

    def seek(self, place: int) -> None:
        self._place.begin = place

    def read(self, number: int) -> bytes:
        begin = self._place.begin
        # What is read without having been sought is nothing that was asked for.
        del self._place.begin
        return self._view.between(self._descriptor, begin, min(begin + number, self._view.size_bytes))
