"""A SQLite database opened so that it can be read and nothing else can be done, for one question and a limited time.

The file is opened read only, writing is switched off once more, and an authorizer lets nothing through but
SELECT over its tables. No other file can be attached, no extension loaded, no setting changed. Text comes out
as bytes, because text that is not UTF-8 would raise where it is read. A relation of the hospital's own that sorts does
so in memory: no rows are left in a temporary file.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from site_agent.reading.sources.sqlite.dialect import IS_TEXT, PLACE, SHARE

_BUSY_SECONDS = 5.0
_STEPS = 100_000
"""How many of its own instructions SQLite runs between two looks at the clock: some milliseconds."""

_UTF8 = "UTF-8"
_SETTINGS = ("temp_store = MEMORY", "trusted_schema = OFF", "cell_size_check = ON", "query_only = ON")
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION},
)
_FORBIDDEN = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "random", "randomblob"})


@contextlib.contextmanager
def reading(
    path: str, *, key: bytes, timeout_seconds: float, words: Sequence[Mapping[bytes, int]] = ()
) -> Iterator[sqlite3.Connection]:
    """One state of the database for one question; `sqlite3.Error` after `timeout_seconds`.

    `words` are those that a `SqliteDialect` asks the places of.
    """
    # isolation_level None: nothing begins or ends a transaction but this function.
    connection = sqlite3.connect(_address(path), uri=True, isolation_level=None, timeout=_BUSY_SECONDS)
    try:
        connection.text_factory = bytes
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        encoding = connection.execute("PRAGMA encoding").fetchone()[0].decode()
        connection.create_function(SHARE, 2, _share(key), deterministic=True)
        connection.create_function(PLACE, 2, _place(words, encoding), deterministic=True)
        connection.create_function(IS_TEXT, 1, _is_text(encoding), deterministic=True)
        connection.set_authorizer(_authorized)
        connection.set_progress_handler(_overdue(timeout_seconds), _STEPS)
        connection.execute("BEGIN")
        yield connection
    finally:
        connection.close()


def _address(path: str) -> str:
    return f"file:{quote(str(Path(path).absolute()))}?mode=ro"


def _authorized(action: int, first: str | None, second: str | None, *_where: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _FORBIDDEN else sqlite3.SQLITE_OK
    # Reading a column names its table; both are the hospital's own.
    del first
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _overdue(timeout_seconds: float) -> Callable[[], bool]:
    ends = time.monotonic() + timeout_seconds
    return lambda: time.monotonic() > ends


def _share(key: bytes) -> Callable[[bytes, int], int]:
    def share(unit: bytes, number: int) -> int:
        return seed_of(unit, key) % number

    return share


def _place(words: Sequence[Mapping[bytes, int]], encoding: str) -> Callable[[bytes, int], int | None]:
    def place(text: bytes | None, number: int) -> int | None:
        return None if text is None else words[number].get(text.decode(encoding).encode())

    # SQLite's own letters are those of the words nearly everywhere.
    return place if encoding != _UTF8 else lambda text, number: words[number].get(text)


def _is_text(encoding: str) -> Callable[[bytes], bool]:
    def is_text(text: bytes) -> bool:
        try:
            text.decode(encoding)
        except UnicodeDecodeError:
            return False
        return True

    return is_text


def seed_of(unit: bytes, key: bytes) -> int:
    """64 bits that nobody without the key can tell from random ones."""
    return int.from_bytes(hashlib.blake2b(unit, digest_size=8, key=key).digest(), "big")
