"""The SQLite file under every ledger, and the one way to write to it.

What `transaction` returned from is on the disk. Threads that write at the same time share one commit: each does its
part in turn, the last of those who wait commits for all, and nobody returns before. When a write fails for another
reason than a lock or a full disk, nobody can say what is on the disk: the database refuses all further use, and the
process must stop and decide from disk.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from wardround.federation.errors import (
    ConfigurationMistaken,
    FederationError,
    InvariantBroken,
    LedgerCorrupt,
    LedgerFull,
)
from wardround.federation.file_faults import file_fault
from wardround.federation.ledger.connections import Connections
from wardround.federation.ledger.database_faults import BROKEN, fault_of, translated
from wardround.federation.ledger.table_schema import fingerprint, make, template, versions
from wardround.federation.private_files import create_private

LEDGER_FILE = "ledger.sqlite"
BUSY_SECONDS = 20.0
RESTORE = "a lost ledger is never replaced by a new one: restore the whole folder from its backup before you serve"
"""What is said wherever a ledger is gone. A new one would forget what was spent, so none is ever offered."""

# STRICT tables; older libraries would quietly store text in integer columns.
LEAST_SQLITE = (3, 37, 0)

MOST_TOGETHER = 64
"""Transactions that one commit makes durable at most; the first of them waits for the last."""

_OFF, _EXTRA = 0, 3
_IN_MEMORY = 2


class Durability(Enum):
    """Where what `transaction` returned from is: on the disk, in the file, or in memory until the end.

    Everything but `DURABLE` is for simulations and tests. `MEMORY` is for one thread of one process, and is written
    to its file when it is closed.
    """

    DURABLE = "durable"
    FILE = "file"
    MEMORY = "memory"


@dataclass
class _Group:
    """Transactions of several threads that one commit makes durable, or none of them."""

    connection: sqlite3.Connection
    members: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    error: sqlite3.Error | FederationError | None = None


class Database:
    """A SQLite file with rollback journal and `synchronous=EXTRA`.

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
        self._thread = threading.get_ident()
        self._mine = threading.local()
        self._connections = Connections(self._connect, busy_seconds=busy_seconds)
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._queued = 0
        self._group: _Group | None = None
        self._broken = False
        if not path.is_file():
            if existing:
                raise lost(path, "is missing", advice)
            _create(path, template(schema, later) if fleeting else b"")
        self._prepare()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: everything in it is durable once the block is left, or nothing is.

        An exception in the block undoes it. `LedgerBusy` means that nothing was written.
        """
        if self._inside() is not None:
            raise InvariantBroken(private="a ledger transaction was opened inside another")
        self._take_turn()
        try:
            group = self._begun()
            with self._part_of(group):
                yield group.connection
        finally:
            self._leave()
        group.done.wait()
        if group.error is not None:
            raise self._fault(group.error) from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view; inside this thread's own transaction, the view of that transaction.

        Keep it short: a writer cannot commit while somebody reads.
        """
        self._refuse_if_broken()
        if (mine := self._inside()) is not None:
            yield mine
            return
        with translated(self.path):
            if self._keeping is Durability.MEMORY:
                # Nobody else can change what this thread reads.
                yield self._connections.writer()
                return
            with self._connections.reader() as connection:
                connection.execute("BEGIN")
                self._mine.connection = connection
                try:
                    # The view is fixed by the first read, so that it begins here and not somewhere in the block.
                    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
                    yield connection
                finally:
                    self._mine.connection = None
                    connection.execute("ROLLBACK")

    @property
    def waiting(self) -> int:
        """How many threads wait for their turn to write."""
        with self._guard:
            return self._queued

    def close(self) -> None:
        if self._keeping is Durability.MEMORY:
            self.path.write_bytes(self._connections.writer().serialize())
        self._connections.close()

    def _inside(self) -> sqlite3.Connection | None:
        """The connection that this thread is inside of."""
        if self._keeping is Durability.MEMORY and threading.get_ident() != self._thread:
            raise InvariantBroken(private="a ledger in memory is for one thread")
        found: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        return found

    # --- taking turns -------------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        with self._guard:
            self._queued += 1
        try:
            self._turn.acquire()
        except BaseException:
            # A signal ended the wait; somebody may have left the commit to this thread.
            self._turn.acquire()
            self._count_off()
            self._leave()
            raise
        self._count_off()

    def _count_off(self) -> None:
        with self._guard:
            self._queued -= 1

    def _begun(self) -> _Group:
        """The group that is open, or a new one."""
        self._refuse_if_broken()
        if self._group is None:
            with translated(self.path):
                connection = self._connections.writer()
                connection.execute("BEGIN IMMEDIATE")
            self._group = _Group(connection)
        return self._group

    @contextlib.contextmanager
    def _part_of(self, group: _Group) -> Iterator[None]:
        """One transaction of a group: undone alone when it fails by itself, and with all others when the file does."""
        connection, beside_others = group.connection, group.members > 0
        self._mine.connection = connection
        try:
            if beside_others:
                connection.execute("SAVEPOINT part")
            yield
            if beside_others:
                connection.execute("RELEASE part")
            group.members += 1
        except sqlite3.Error as error:
            fault = self._fault(error)
            if isinstance(fault, InvariantBroken | LedgerFull) or not connection.in_transaction:
                group.error = error
            else:
                self._undo_part(group, beside_others=beside_others)
            raise fault from None
        except BaseException:
            self._undo_part(group, beside_others=beside_others)
            raise
        finally:
            self._mine.connection = None

    def _undo_part(self, group: _Group, *, beside_others: bool) -> None:
        try:
            if beside_others:
                group.connection.execute("ROLLBACK TO part")
                group.connection.execute("RELEASE part")
            elif group.connection.in_transaction:
                group.connection.execute("ROLLBACK")
                self._group = None
        except sqlite3.Error as error:
            group.error = error
            self._broken = True

    def _leave(self) -> None:
        """Hand the turn on; whoever has nobody behind commits for all."""
        try:
            group = self._group
            if group is not None:
                with self._guard:
                    last = self._queued == 0
                if last or group.members >= MOST_TOGETHER or group.error is not None:
                    self._commit(group)
        finally:
            self._turn.release()

    def _commit(self, group: _Group) -> None:
        self._group = None
        try:
            if group.error is None:
                with self._connections.committing():
                    group.connection.execute("COMMIT")
        except (sqlite3.Error, FederationError) as error:
            group.error = error
        finally:
            if group.error is not None:
                self._undo(group)
            group.done.set()

    def _undo(self, group: _Group) -> None:
        """After a failure: nothing of the group is on the disk, or nobody can say what is."""
        self._broken = self._broken or isinstance(self._fault(group.error), InvariantBroken)
        try:
            if group.connection.in_transaction:
                group.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            group.error = error
            self._broken = isinstance(self._fault(error), InvariantBroken)
        if isinstance(self._fault(group.error), LedgerFull):
            # Opened anew, they decide from what is on the disk.
            self._connections.close()

    def _fault(self, error: sqlite3.Error | FederationError | None) -> FederationError:
        match error:
            case sqlite3.Error():
                return fault_of(error, self.path)
            case FederationError():
                # Each thread raises one of its own.
                return type(error)(error.message, private=error.private)
            case None:
                return InvariantBroken(private="a transaction failed without an error")

    # --- the file -----------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        held = self._keeping is Durability.MEMORY
        connection = sqlite3.connect(
            ":memory:" if held else f"{self.path.absolute().as_uri()}?mode=rw",
            uri=not held,
            isolation_level=None,
            timeout=self._busy_seconds,
            # One thread at a time, whichever has it.
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
            # No files beside the journal, and no page on the disk before all of them are.
            ("temp_store", _IN_MEMORY),
            ("cache_spill", 0),
        ):
            connection.execute(f"PRAGMA {pragma} = {wanted}").fetchall()
            if connection.execute(f"PRAGMA {pragma}").fetchone() != (wanted,):
                raise InvariantBroken(private=f"SQLite did not accept {pragma} = {wanted}")

    def _prepare(self) -> None:
        """Make the tables once; a file made for other tables is refused."""
        first, later = fingerprint(self._schema), fingerprint(self._later)
        with self.reading() as connection:
            made, grown = versions(connection)
        if made == first and (grown == later or not self._later):
            return
        with self.transaction() as writing:
            made, grown = versions(writing)
            if made not in (0, first):
                raise LedgerCorrupt(f"{self.path} was made by another version of wardround, or for another role.")
            if made == 0:
                if self._existing:
                    raise lost(self.path, "is empty", self._advice)
                make(writing, self._schema, mark="user_version")
            if self._later and grown != later:
                make(writing, self._later, mark="application_id")

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise InvariantBroken(BROKEN)


def lost(path: Path, how: str, advice: str = RESTORE) -> ConfigurationMistaken:
    """The error for a file that was there once and is not any more, or holds nothing."""
    return ConfigurationMistaken(f"{path} {how}; {advice}.")


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
        raise file_fault(str(path), error, done="made") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationMistaken(f"{path} cannot be read: {error.strerror}.") from None
