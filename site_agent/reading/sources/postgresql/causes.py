"""Why a PostgreSQL table cannot be looked at, for the steward's own terminal: one of a closed list of sentences.

The agent never asks this. The server's words are not even received: they are in its language, quote names and may quote
rows, so libpq is told to give the code of an error in their place. What libpq says of itself is compared with, and
never repeated. No sentence holds anything of the address.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import select
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.pq.abc import PGconn

from site_agent.reading.dataset import TableSource
from site_agent.reading.sources.postgresql.connection import CONNECT_SECONDS, reading
from site_agent.reading.sources.postgresql.schema import qualified
from wardround.federation.errors import SchemaRefused, SourceAway
from wardround.federation.study.study import Table


class Cause(StrEnum):
    """What stands between the site and its table, and what to do about it."""

    UNRESOLVED = "the name of its server cannot be resolved; correct the host in source, or this machine's DNS"
    UNREACHED = (
        "nothing accepts connections at the host and port in source; correct them, start the server or the way to it"
    )
    SILENT = "its server does not answer within 10 s; correct host and port in source, or open the firewall"
    NO_TLS = "its server offers no TLS, which sslmode in source asks for; turn ssl on in the server, or change sslmode"
    UNTRUSTED = (
        "the certificate of its server is not believed; name the authority that issued it as sslrootcert in source, "
        "and the host as it is on the certificate"
    )
    TLS = "a TLS connection to its server cannot be set up; compare the ssl settings of source and server"
    TLS_ONLY = "its server lets the site's user in over TLS only; write sslmode=verify-full in source"
    PASSFILE_LACKS = (
        "its server wants a password, and there is none for this host, database and user; put it into the file that "
        "PGPASSFILE names, readable by this user alone"
    )
    PASSFILE_WRONG = (
        "its server does not take the password of the site's user; correct it in the file that PGPASSFILE names"
    )
    LOGIN = (
        "its server does not let the site's user in; see that the role exists and may log in, and that pg_hba.conf "
        "allows it from this machine"
    )
    NO_DATABASE = "its server has no database of the name in source; correct the name, or create the database"
    NO_CONNECT = "the site's user may not use the database in source; grant it CONNECT on the database"
    CROWDED = "its server has no connection left; try again later, or raise max_connections or the role's limit"
    STARTING = "its server is starting or stopping; try again in a moment"
    LOCKED = "another session has locked it for more than 10 s; try again when that one has ended"
    NO_TABLE = "the database has no table or view of that name; name it, with its schema, as relation in site.toml"
    NO_RIGHT = (
        "the site's user has no right to read it; grant it USAGE on the schema and SELECT on the table, as "
        "deploy/postgresql.sql does"
    )
    UNKNOWN = "its server ended the session for another reason; the server's own log says which"


# The most telling first: libpq may have tried several hosts, and each with TLS and without.
_CODES: Mapping[str, Cause] = {
    "42501": Cause.NO_CONNECT,
    "3D000": Cause.NO_DATABASE,
    "53300": Cause.CROWDED,
    "57P": Cause.STARTING,
    "28P01": Cause.PASSFILE_WRONG,
    "28": Cause.LOGIN,
}
# In the words of libpq, which are always English here: no language is set for this process.
_WORDS: Mapping[str, Cause] = {
    "server does not support SSL": Cause.NO_TLS,
    "certificate verify failed": Cause.UNTRUSTED,
    "does not match host name": Cause.UNTRUSTED,
    "root certificate": Cause.UNTRUSTED,
    "SSL": Cause.TLS,
    "could not translate host name": Cause.UNRESOLVED,
    "Connection refused": Cause.UNREACHED,
    "No such file or directory": Cause.UNREACHED,
    "No route to host": Cause.UNREACHED,
    "Network is unreachable": Cause.UNREACHED,
    "timed out": Cause.SILENT,
    "closed the connection unexpectedly": Cause.STARTING,
}
_TABLE: Mapping[str, Cause] = {
    "42P01": Cause.NO_TABLE,
    "3F000": Cause.NO_TABLE,
    "42501": Cause.NO_RIGHT,
    "55P03": Cause.LOCKED,
    "57P": Cause.STARTING,
    "08": Cause.STARTING,
}
_NO_FURTHER = (Cause.LOGIN, Cause.NO_TLS, Cause.UNTRUSTED, Cause.TLS)
_CODE = re.compile(r":\s+([0-9A-Z]{5})$", re.MULTILINE)
_ONLY_CODES = 3
"""libpq's PQERRORS_SQLSTATE."""


def why_unread(table: Table, source: TableSource) -> str | None:
    """Why the study's `table` cannot be looked at, in one sentence; None where nothing stands in the way now."""
    if (cause := unreached(source.source)) is not None:
        return f"The database of the table {table.name!r} cannot be reached: {cause}."
    if (cause := _unread(table, source)) is not None:
        return f"The table {table.name!r} cannot be read: {cause}."
    return None


def unreached(address: str) -> Cause | None:
    """Why there is no session at an address; None where there is one."""
    found = _tried(address)
    if found is Cause.LOGIN and _tried(make_conninfo(address, sslmode="require")) not in _NO_FURTHER:
        return Cause.TLS_ONLY
    return found


def _tried(address: str) -> Cause | None:
    session = pq.PGconn.connect_start(make_conninfo(address, application_name="wardround").encode())
    try:
        _hear_only_codes(session)
        if session.status != pq.ConnStatus.BAD and not _polled(session):
            return Cause.SILENT
        return None if session.status == pq.ConnStatus.OK else _cause(session)
    finally:
        session.finish()


def _polled(session: PGconn) -> bool:
    """Go on until there is a session or none; False when the server is silent for too long."""
    ends = time.monotonic() + CONNECT_SECONDS
    while (standing := session.connect_poll()) not in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
        reads = [session.socket] if standing == pq.PollingStatus.READING else []
        writes = [session.socket] if standing == pq.PollingStatus.WRITING else []
        if not any(select.select(reads, writes, [], max(ends - time.monotonic(), 0.0))):
            return False
    return True


def _cause(session: PGconn) -> Cause:
    said = session.get_error_message()
    codes = _CODE.findall(said)
    for beginning, cause in _CODES.items():
        if any(code.startswith(beginning) for code in codes):
            return cause
    if session.needs_password:
        return Cause.PASSFILE_LACKS
    return next((cause for words, cause in _WORDS.items() if words in said), Cause.UNKNOWN)


def _hear_only_codes(session: PGconn) -> None:
    """Have the server's errors told by their codes; where that cannot be done, no code is found in its words."""
    pointer = getattr(session, "pgconn_ptr", None)
    if not isinstance(pointer, int) or (library := _libpq()) is None:
        return
    library.PQsetErrorVerbosity.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.PQsetErrorVerbosity(pointer, _ONLY_CODES)


def _libpq() -> ctypes.CDLL | None:
    """The very library that psycopg has loaded; another one would not know its sessions."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        place = line.split(maxsplit=5)[-1]
        if Path(place).name.startswith("libpq"):
            return ctypes.CDLL(place)
    return None


def _unread(table: Table, source: TableSource) -> Cause | None:
    """Why a session finds no table; None also for what `check` says in its own words."""
    code = ""
    with contextlib.suppress(SourceAway, SchemaRefused):
        query = qualified(table, source.relation or table.name, source.declared)
        with reading(source.source, timeout_seconds=source.timeout_seconds) as connection:
            try:
                connection.execute(query.limit(0).sql(dialect="postgres").encode())
            except psycopg.Error as error:
                code = error.sqlstate or ""
    return next((cause for beginning, cause in _TABLE.items() if code.startswith(beginning)), None)
