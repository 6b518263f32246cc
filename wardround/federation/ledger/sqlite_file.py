"""The SQLite file under every ledger, the one way to write to it, and the lock of the one process that serves it.

What `transaction` returned from is on the disk. When a write fails for any other reason than a lock, nobody can
say what is on the disk: the database refuses all further use, and the process must stop and decide from disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from pathlib import Path

from wardround.federation.errors import (
    ConfigurationMistaken,
    FederationError,
    InvariantBroken,
    LedgerBusy,
    LedgerCorrupt,
    Refused,
)
from wardround.federation.private_files import create_private, open_lock

LEDGER_FILE = "ledger.sqlite"
BUSY_SECONDS = 20.0
RESTORE = "a lost ledger is never replaced by a new one: restore the whole folder from its backup before you serve"
"""What is said wherever a ledger is gone. A new one would forget what was spent, so none is ever offered."""

# STRICT tables; older libraries would quietly store text in integer columns.
LEAST_SQLITE = (3, 37, 0)

_OFF, _EXTRA = 0, 3
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})


class Durability(Enum):
    """Where what `transaction` returned from is: on the disk, in the file, or in memory until the end.

    Everything but `DURABLE` is for simulations and tests. `MEMORY` is for one thread of one process, and is written
    to its file when it is closed.
    """

    DURABLE = "durable"
    FILE = "file"
    MEMORY = "memory"


class _Handle:
    """One thread's connection; closed with the database or when its thread has ended."""

    __slots__ = ("__weakref__", "connection")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class Database:
    """A SQLite file with rollback journal and `synchronous=EXTRA`, one connection for each thread.

    Several processes may open the same file: a steward's command beside a serving agent. Nobody may open the
    file by other means in a process that uses it, because closing any descriptor would drop SQLite's locks.
    `later` are tables that a role gained after its first files were made: they are added to such a file when it is
    opened. Where the file must be `existing`, one that is missing or has no tables is lost, and `advice` says what
    to do.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: str,
        later: str = "",
        keeping: Durability = Durability.DURABLE,
        existing: bool = False,
        advice: str = RESTORE,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        if sqlite3.sqlite_version_info < LEAST_SQLITE:
            raise ConfigurationMistaken(f"SQLite {sqlite3.sqlite_version} is too old for a ledger; 3.37 is needed.")
        self.path = path
        self._schema = schema
        self._later = later
        self._existing, self._advice = existing, advice
        self._keeping = keeping
        fleeting = keeping in (Durability.FILE, Durability.MEMORY)
        self._synchronous, self._journal = (_OFF, "memory") if fleeting else (_EXTRA, "delete")
        self._busy_seconds = busy_seconds
        self._local = threading.local()
        self._handles: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._broken = False
        if not path.is_file():
            if existing:
                raise lost(path, "is missing", advice)
            _create(path, _template(schema, later) if fleeting else b"")
        with _translated():
            self._prepare(self._connection())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: everything in it is durable once the block is left, or nothing is.

        An exception in the block undoes it. `LedgerBusy` means that nothing was written.
        """
        self._refuse_if_broken()
        connection = self._connection()
        if connection.in_transaction:
            raise InvariantBroken(private="a ledger transaction was opened inside another")
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            fault = _fault(error)
            self._broken = isinstance(fault, InvariantBroken)
            self._undo(connection)
            raise fault from None
        except BaseException:
            self._undo(connection)
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view; inside this thread's own transaction, the view of that transaction.

        Keep it short: a writer cannot commit while somebody reads.
        """
        self._refuse_if_broken()
        connection = self._connection()
        if connection.in_transaction:
            yield connection
            return
        try:
            if self._keeping is Durability.MEMORY:
                # Nobody else can change what this thread reads.
                yield connection
                return
            connection.execute("BEGIN")
            try:
                # The view is fixed by the first read, so that it begins here and not somewhere in the block.
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
                yield connection
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _fault(error) from None

    def close(self) -> None:
        with self._guard:
            for handle in tuple(self._handles):
                if self._keeping is Durability.MEMORY:
                    self.path.write_bytes(handle.connection.serialize())
                handle.connection.close()
            self._handles.clear()
            self._local = threading.local()

    def _connection(self) -> sqlite3.Connection:
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None:
            if self._keeping is Durability.MEMORY and self._handles:
                raise InvariantBroken(private="a ledger in memory is for one thread")
            with _translated():
                handle = _Handle(self._connect())
            self._local.handle = handle
            with self._guard:
                self._handles.add(handle)
        return handle.connection

    def _connect(self) -> sqlite3.Connection:
        held = self._keeping is Durability.MEMORY
        connection = sqlite3.connect(
            ":memory:" if held else f"{self.path.absolute().as_uri()}?mode=rw",
            uri=not held,
            isolation_level=None,
            timeout=self._busy_seconds,
            # Only `close` and a dying thread touch another thread's connection.
            check_same_thread=False,
        )
        try:
            if held:
                connection.deserialize(_content(self.path))
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection) -> None:
        for pragma, wanted in (
            ("journal_mode", self._journal),
            ("synchronous", self._synchronous),
            ("foreign_keys", 1),
            ("trusted_schema", 0),
        ):
            connection.execute(f"PRAGMA {pragma} = {wanted}").fetchall()
            if connection.execute(f"PRAGMA {pragma}").fetchone() != (wanted,):
                raise InvariantBroken(private=f"SQLite did not accept {pragma} = {wanted}")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables once; a file made for other tables is refused."""
        versions = _fingerprint(self._schema), _fingerprint(self._later)
        if self._ready(connection, versions):
            return
        with self.transaction() as writing:
            made, grown = _versions(writing)
            if made not in (0, versions[0]):
                raise LedgerCorrupt(f"{self.path} was made by another version of wardround, or for another role.")
            if made == 0:
                if self._existing:
                    raise lost(self.path, "is empty", self._advice)
                _make(writing, self._schema, mark="user_version")
            if self._later and grown != versions[1]:
                _make(writing, self._later, mark="application_id")

    def _ready(self, connection: sqlite3.Connection, versions: tuple[int, int]) -> bool:
        made, grown = _versions(connection)
        return made == versions[0] and (grown == versions[1] or not self._later)

    def _undo(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._broken = True
            raise _fault(error) from None

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise InvariantBroken(
                "The ledger failed earlier; the process must stop and start again from what is on disk."
            )


def lost(path: Path, how: str, advice: str = RESTORE) -> ConfigurationMistaken:
    """The error for a file that was there once and is not any more, or holds nothing."""
    return ConfigurationMistaken(f"{path} {how}; {advice}.")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _fault(error) from None


def _fault(error: sqlite3.Error) -> FederationError:
    # The low byte is the primary code; errors of the Python module itself have none.
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF
    text = f"{type(error).__name__} {code}: {error}"
    if code in _BUSY:
        # Also from COMMIT, when a reader stayed too long: the transaction is still open and is rolled back.
        return LedgerBusy(private=text)
    if code in _DAMAGED:
        return LedgerCorrupt(private=text)
    if getattr(error, "sqlite_errorcode", -1) == sqlite3.SQLITE_READONLY_DBMOVED:
        # SQLite looks before it writes: what is written to a file without a name would be gone.
        return InvariantBroken("A ledger was moved, removed or replaced while it was in use; restore it.", private=text)
    return InvariantBroken(
        "The ledger failed; the process must stop and start again from what is on disk.", private=text
    )


@lru_cache(maxsize=16)
def _template(schema: str, later: str) -> bytes:
    """A file with the tables and nothing in them: a simulation of a thousand sites makes it once."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _make(connection, schema, mark="user_version")
        _make(connection, later, mark="application_id")
        return connection.serialize()


def _make(connection: sqlite3.Connection, schema: str, *, mark: str) -> None:
    """Make tables, and note in the file's header which they are."""
    for statement in _statements(schema):
        connection.execute(statement)
    connection.execute(f"PRAGMA {mark} = {_fingerprint(schema)}")


def _create(path: Path, content: bytes) -> None:
    """A file for its owner only, before SQLite makes one for everybody; its journals inherit the mode."""
    try:
        with create_private(path) as stream:
            stream.write(content)
    except FileExistsError:
        # Another process was first; a link that leads nowhere would have SQLite make a file at its end.
        if not path.is_file():
            raise ConfigurationMistaken(f"{path} is not a regular file; name another.") from None
    except OSError as error:
        raise ConfigurationMistaken(f"{path} cannot be made: {error.strerror}.") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationMistaken(f"{path} cannot be read: {error.strerror}.") from None


def _fingerprint(schema: str) -> int:
    return (zlib.crc32(schema.encode()) & 0x7FFF_FFFF or 1) if schema else 0


def _versions(connection: sqlite3.Connection) -> tuple[int, int]:
    """Which tables the file was made with, and which later ones it has."""
    made, grown = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    return int(made), int(grown)


@lru_cache(maxsize=16)
def _statements(schema: str) -> tuple[str, ...]:
    found, statement = [], ""
    for line in schema.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return (*found, statement) if statement.strip() else tuple(found)


@contextlib.contextmanager
def serving_lock(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; `Refused` when another process serves it.

    Commands beside a serving process do not take it: the database's own locks keep them apart.
    """
    try:
        descriptor = open_lock(folder / "serving")
    except OSError as error:
        raise ConfigurationMistaken(f"{folder} cannot be served: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"another process is serving {folder}; stop it first.") from None
        yield
    finally:
        os.close(descriptor)
