"""Every way to change a row of a ledger as somebody would who has the file but not the key."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.hints import HINTS

Row = tuple[object, ...]
Dump = Mapping[str, Counter[Row]]


def dump(file: Path, role: str) -> Dump | None:
    """The rows of every table without the hints; None where they cannot be read."""
    hints = [hint for hint in HINTS if hint.role == role]
    whole = {hint.table for hint in hints if hint.column == "" and not hint.only_missing}
    found: dict[str, Counter[Row]] = {}
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as ledger:
            tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            for table in tables:
                if table in whole:
                    continue
                rows = ledger.execute(f"SELECT * FROM {table}")
                names = [column[0] for column in rows.description]
                skipped = {hint.column for hint in hints if hint.table == table and not hint.among and hint.column}
                same = {hint.column: hint.among for hint in hints if hint.table == table and hint.among}
                found[table] = Counter(
                    tuple(
                        "any" if value in same.get(name, ()) else value
                        for name, value in zip(names, row, strict=True)
                        if name not in skipped
                    )
                    for row in rows
                )
    except (sqlite3.Error, UnicodeError):
        return None
    return found


def differs(before: Dump | None, after: Dump | None, role: str) -> bool:
    """Whether a row changed, came or went that is no hint."""
    if before is None or after is None:
        return before is not after
    may_miss = {hint.table for hint in HINTS if hint.role == role and hint.only_missing}
    for table in before:
        old, new = before[table], after.get(table, Counter())
        if new - old or (old - new and table not in may_miss):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Change:
    """One statement that alters one row, and what it is about."""

    column: str
    what: str
    statement: str
    values: tuple[object, ...] = ()


def changes(file: Path, *, rows: int, only: frozenset[str] = frozenset()) -> Iterator[Change]:
    """Every column of some rows of each table, set to what else it could hold; rows removed, added and doubled."""
    with contextlib.closing(sqlite3.connect(file)) as ledger:
        tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in sorted(only or tables):
            stored = ledger.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in stored.description]
            found = stored.fetchall()
            # Spread over all of them, the first and the last among them.
            places = [round(n * (len(found) - 1) / max(rows - 1, 1)) for n in range(rows)] if found else []
            for row in dict.fromkeys(found[place] for place in places):
                where = " AND ".join(f"{name} IS ?" for name in names)
                for name, value in zip(names, row, strict=True):
                    others = [each[names.index(name)] for each in found]
                    for number, new in enumerate(_instead(value, others)):
                        statement = f"UPDATE {table} SET {name} = ? WHERE {where}"
                        yield Change(f"{table}.{name}", f"{table}.{name} {number}", statement, (new, *row))
                yield Change("", f"{table} removed", f"DELETE FROM {table} WHERE {where}", row)
                marks = ", ".join("?" for _ in names)
                yield Change("", f"{table} doubled", f"INSERT INTO {table} VALUES ({marks})", row)
                added = tuple(next(iter(_instead(value, [])), value) for value in row)
                for width in (1, 2, len(row)):
                    new_row = (*added[:width], *row[width:])
                    yield Change("", f"{table} added {width}", f"INSERT INTO {table} VALUES ({marks})", new_row)


def _instead(value: object, others: list[object]) -> Iterator[object]:
    """Values that a column could hold as well: changed a little, another row's, none at all."""
    match value:
        case str() if value:
            yield value[:-1] + ("1" if value[-1] != "1" else "2")
        case str():
            yield "x"
        case bytes():
            yield value[:-1] + bytes([value[-1] ^ 1]) if value else b"x"
            yield b""
        case int() | float():
            yield value + 1
            yield value - 1
            yield value + 1000
    another = next((each for each in others if each not in (value, None)), None)
    if another is not None:
        yield another
    yield None


def apply(file: Path, change: Change) -> bool:
    """Make a change; False where the tables themselves refuse it."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as ledger:
        ledger.execute("PRAGMA synchronous = 0")
        ledger.execute("PRAGMA journal_mode = MEMORY")
        try:
            return ledger.execute(change.statement, change.values).rowcount > 0
        except sqlite3.IntegrityError:
            return False


def copied(folder: Path, to: Path) -> Path:
    """What `verify` reads of a folder, without the triggers that keep nobody who has the file."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("identity.pem", "study.toml", LEDGER_FILE):
        if (folder / name).exists():
            shutil.copyfile(folder / name, to / name)
    with contextlib.closing(sqlite3.connect(to / LEDGER_FILE)) as ledger, ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            ledger.execute(f"DROP TRIGGER {trigger}")
    return to
