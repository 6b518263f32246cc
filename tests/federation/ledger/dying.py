"""A ledger's file whose process is killed in the middle: the failpoint of crash tests, of which no ledger knows."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys

from wardround.federation.ledger.sqlite_file import Database


class Dying(Database):
    """A database whose process is killed before its n-th statement."""

    left = sys.maxsize

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.set_trace_callback(self._count)
        return connection

    def _count(self, _statement: str) -> None:
        Dying.left -= 1
        if Dying.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
