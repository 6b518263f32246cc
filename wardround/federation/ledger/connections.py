"""The connections of one process to a SQLite file: one that writes, and a few that read beside it.

With a rollback journal nobody reads while somebody commits. Inside a process that is arranged here, by waiting for each
other, because SQLite itself would only sleep and look again. Between processes SQLite's own locks hold.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

from wardround.federation.errors import LedgerBusy

MOST_READERS = 8
"""Readers at once; whoever comes later waits for one of them, so that descriptors do not grow with threads."""


class Connections:
    """Who reads and who commits; `connect` opens one more connection."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, busy_seconds: float) -> None:
        self._connect = connect
        self._busy_seconds = busy_seconds
        self._changed = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._reading = 0
        self._committing = False
        self._generation = 0
        self._writer: sqlite3.Connection | None = None

    def writer(self) -> sqlite3.Connection:
        """The connection that writes; only whoever has the turn asks for it."""
        if self._writer is None:
            self._writer = self._connect()
        return self._writer

    @contextlib.contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with, once nobody commits."""
        connection, generation = self._borrow()
        try:
            yield connection
        finally:
            with self._changed:
                self._reading -= 1
                if generation == self._generation:
                    self._idle.append(connection)
                else:
                    connection.close()
                self._changed.notify_all()

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Nobody in this process reads inside the block; `LedgerBusy` when somebody does not end."""
        with self._changed:
            self._committing = True
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: self._reading == 0, timeout=self._busy_seconds):
                    raise LedgerBusy(private="a reader of this process stayed too long")
            yield
        finally:
            with self._changed:
                self._committing = False
                self._changed.notify_all()

    def close(self) -> None:
        """Close every connection that nobody uses now, and the others when they are given back."""
        with self._changed:
            self._generation += 1
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @property
    def opened(self) -> int:
        """How many connections there are."""
        with self._changed:
            return len(self._idle) + self._reading + (self._writer is not None)

    def _borrow(self) -> tuple[sqlite3.Connection, int]:
        until = time.monotonic() + self._busy_seconds
        with self._changed:
            while self._committing or self._reading >= MOST_READERS:
                if not self._changed.wait(max(until - time.monotonic(), 0.0)) and time.monotonic() >= until:
                    raise LedgerBusy(private="a commit or other readers of this process stayed too long")
            self._reading += 1
            if self._idle:
                return self._idle.pop(), self._generation
            generation = self._generation
        try:
            return self._connect(), generation
        except BaseException:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()
            raise
