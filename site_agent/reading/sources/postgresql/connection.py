"""A PostgreSQL database opened so that it can be read and nothing else can be done, for one question.

Every question has a connection of its own, so that a restarted database is noticed by none but the question it
interrupted. The session reads one state of the database, for a limited time, and finds functions and operators
nowhere but in PostgreSQL's own catalogue: what somebody puts into another schema is never called by us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlglot import exp

from wardround.federation.errors import ConfigurationMistaken, FederationError, SourceAway, SourceFailed

Connection = psycopg.Connection[tuple[object, ...]]

OLDEST = 180000
"""The first version whose functions the statements need."""

CONNECT_SECONDS = 10
_LOCK_MILLISECONDS = 10_000
_IDLE_MILLISECONDS = 300_000
_WORK_MEMORY = "512MB"
_AT_ONCE = 1024 if psycopg.capabilities.has_stream_chunked() else 1
_OWN = frozenset({"options", "application_name", "client_encoding", "connect_timeout", "replication"})
"""What a source may not say, because the session says it."""

_LOCKED = "55P03"
_AWAY = ("08", "40", "57P01", "57P02", "57P03", "57P04", "53300", _LOCKED)
"""How the codes begin that say nothing about rows: the way to the server, its end, and what others change meanwhile.

Not 57014: a question that takes too long may do so because of a row.
"""


def check_address(table: str, source: str) -> None:
    """Refuse an address that cannot be one, and a password in a file that is copied and shown.

    Raises:
        ConfigurationMistaken: one sentence that repeats nothing of the address.
    """
    found: Mapping[str, object] = {}
    fault = ""
    try:
        found = conninfo_to_dict(source)
    except psycopg.Error:
        fault = "is no address of a PostgreSQL database; write postgresql://USER@HOST/DATABASE"
    if found.get("password") is not None:
        fault = "may hold no password; put it into the file that PGPASSFILE names"
    elif named := sorted(_OWN & found.keys()):
        fault = f"may not set {named[0]}"
    if fault:
        raise ConfigurationMistaken(f"tables.{table}.source {fault}.")


@contextlib.contextmanager
def reading(source: str, *, timeout_seconds: float) -> Iterator[Connection]:
    """One state of the database for one question; `psycopg.Error` after `timeout_seconds`.

    Raises:
        SourceAway: there is no session, so that no row was read.
    """
    with _begun(source, timeout_seconds) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            if connection.broken and error.sqlstate is None:
                raise Lost from None
            raise


class Lost(psycopg.OperationalError):
    """The connection ended without a word of the server's."""


def _begun(source: str, timeout_seconds: float) -> Connection:
    with contextlib.suppress(psycopg.Error), contextlib.ExitStack() as undone:
        connection = psycopg.connect(
            source,
            autocommit=True,
            application_name="wardround",
            client_encoding="UTF8",
            connect_timeout=CONNECT_SECONDS,
        )
        undone.callback(connection.close)
        # Statements are written once and never again, and a pooler may not keep them.
        connection.prepare_threshold = None
        connection.execute("SET default_transaction_read_only = on")
        connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # For this transaction, not for the session: behind a pooler each transaction may be another session's.
        for name, value in _settings(timeout_seconds):
            connection.execute("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
        undone.pop_all()
        return connection
    raise SourceAway(unread=True)


def fault_of(error: BaseException) -> FederationError:
    """What may be said of an error in the middle of a question: that the database was away, or that it failed."""
    match error:
        case SourceAway():
            return SourceAway(unread=error.unread)
        case Lost():
            return SourceAway()
        case psycopg.Error(sqlstate=str(code)) if code.startswith(_AWAY):
            return SourceAway(unread=code == _LOCKED)
        case _:
            return SourceFailed()


def _settings(timeout_seconds: float) -> Iterator[tuple[str, str]]:
    yield "search_path", "pg_catalog, pg_temp"
    yield "statement_timeout", str(round(timeout_seconds * 1000))
    yield "lock_timeout", str(_LOCK_MILLISECONDS)
    yield "idle_in_transaction_session_timeout", str(_IDLE_MILLISECONDS)
    yield "standard_conforming_strings", "on"
    yield "TimeZone", "UTC"
    yield "DateStyle", "ISO, YMD"
    yield "work_mem", _WORK_MEMORY
    # Compiling a statement takes longer than most of them run.
    yield "jit", "off"


def lines(
    connection: Connection, statement: exp.Query | str, values: Sequence[object] | None = None
) -> list[tuple[object, ...]]:
    """Everything a statement finds."""
    written = statement if isinstance(statement, str) else statement.sql(dialect="postgres")
    return connection.execute(written.encode(), values).fetchall()


def each_line(connection: Connection, statement: exp.Query) -> Iterator[tuple[object, ...]]:
    """Everything a statement finds, some lines at a time; all of it is to be read."""
    with connection.cursor() as cursor:
        yield from cursor.stream(statement.sql(dialect="postgres").encode(), size=_AT_ONCE)
