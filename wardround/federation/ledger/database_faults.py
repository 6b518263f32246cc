"""What an error of SQLite means to us: wait, damaged, or stop."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from wardround.federation.errors import FederationError, InvariantBroken, LedgerBusy, LedgerCorrupt, LedgerFull
from wardround.federation.file_faults import PASSING

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_MOVED = "A ledger was moved, removed or replaced while it was in use; restore it."
BROKEN = "The ledger failed; the process must stop and start again from what is on disk."


def fault_of(error: sqlite3.Error, path: Path) -> FederationError:
    """The error to raise for one of the driver's, about the file at `path`.

    No room on the disk and no descriptor left pass: nothing was written, and whoever asks again may find room. What
    a disk did not take or give although it has room (EIO, a failed fsync) does not: nobody can say what it holds.
    """
    whole = getattr(error, "sqlite_errorcode", -1)
    # The low byte is the primary code; errors of the Python module itself have none.
    code = whole & 0xFF
    text = f"{type(error).__name__} {code}: {error}"
    if code in _BUSY:
        # Also from COMMIT, when a reader stayed too long: the transaction is still open and is rolled back.
        return LedgerBusy(private=text)
    if code in _DAMAGED:
        return LedgerCorrupt(private=text)
    if whole == sqlite3.SQLITE_READONLY_DBMOVED:
        # SQLite looks before it writes: what is written to a file without a name would be gone.
        return InvariantBroken(_MOVED, private=text)
    if code in _FULL:
        return _full(path, text)
    return InvariantBroken(BROKEN, private=text)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise fault_of(error, path) from None


def _full(path: Path, text: str) -> FederationError:
    """SQLite does not say why a file could not be opened; the system does."""
    number = 0
    try:
        os.close(os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC))
        path.stat()
        if not all(os.access(place, os.R_OK | os.W_OK) for place in (path, path.parent)):
            number = errno.EACCES
    except OSError as error:
        number = error.errno or errno.EIO
    if number == 0 or number in PASSING:
        return LedgerFull(private=text)
    return InvariantBroken(_MOVED if number == errno.ENOENT else BROKEN, private=f"{text} ({os.strerror(number)})")
