"""Whether a file can be read, found once for each version of it, before any question: for all questions alike.

A file is *clean*, and DuckDB's own reader reads it; or it holds values that this reader cannot read, and it is mended
while it is read, so that they are absent; or it is not of its format, and nothing about the table is answered. Which
of the first two it is decides how fast a question is answered, never what it is answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from sqlglot import exp

from site_agent.reading.batches import stat_text
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb.columns import TEXT, accepts_key
from site_agent.reading.sources.duckdb.connection import locked_database
from site_agent.reading.sources.duckdb.mended_files import MendedFile
from site_agent.reading.sources.files.csv_soundness import Header, csv_fault
from site_agent.reading.sources.files.csv_substitutes import SubstitutedText, is_whole, whole_field
from site_agent.reading.sources.files.file_readers import described, literal_path, parquet_reader
from site_agent.reading.sources.files.parquet_footer import read_footer
from site_agent.reading.sources.files.parquet_values import can_fail, decoded_value, in_range
from site_agent.reading.statements.sql_trees import call, cast, named, ref
from wardround.federation.errors import SourceAway

AGAIN_SECONDS = 3600.0
"""A fault is believed for so long; a disk that could not be read may be mended without a change of the file."""

_COLUMNS_AT_ONCE = 64
_WITH_NAN = ("FLOAT", "DOUBLE")
"""No statistics know of NaN; and nothing is planned by how large a fraction is."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one version of a file is read; `fault` says why it is not.

    Where it is mended, `values` are its columns, made of those that the mended file has.
    """

    fault: str = ""
    mended: MendedFile | None = None
    values: tuple[exp.Expression, ...] = ()


@dataclass(slots=True)
class _Seen:
    state: str
    reading: Reading
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Soundness:
    """What this process knows about the files that it has seen."""

    _seen: dict[tuple[str, ...], _Seen] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def parquet(self, path: str, columns: Sequence[str] | None, limits: Limits) -> Reading:
        """How a Parquet file is read; without `columns`, all of its columns are looked at."""
        names = ("parquet", path, *(["every column"] if columns is None else ["columns", *columns]))
        return self._of(names, path, lambda state: _parquet(path, state, columns, limits))

    def csv(self, path: str, header: Header) -> Reading:
        """How a CSV file is read."""
        return self._of(("csv", path, header.delimiter), path, lambda state: _csv(path, state, header))

    def _of(self, names: tuple[str, ...], path: str, found: Callable[[str], Reading]) -> Reading:
        with self._turn:
            state, now = _state(path), time.monotonic()
            seen = self._seen.get(names)
            if seen is None or seen.state != state or (seen.reading.fault and now - seen.at_seconds > AGAIN_SECONDS):
                self._seen.pop(names, None)
                reading = found(state)
                if _state(path) != state:
                    raise SourceAway("A file is being changed.", unread=True)
                seen = self._seen[names] = _Seen(state, reading, now)
            return seen.reading


def _state(path: str) -> str:
    try:
        return stat_text([path])
    except OSError:
        pass
    raise SourceAway("A file is being changed.", unread=True)


SOUNDNESS = Soundness()
"""Of the whole process: a file is looked at once, however often it is opened."""


# --- Parquet ----------------------------------------------------------------------------------------------


def _parquet(path: str, state: str, columns: Sequence[str] | None, limits: Limits) -> Reading:
    allowed = [path, literal_path(path)]
    with locked_database(allowed, limits, whole_files=True) as connection:
        kinds = described(connection, exp.select("*").from_(parquet_reader((path,))))
    if not kinds:
        return Reading("it is no Parquet file, or it is cut short")
    wanted = [name for name in kinds if columns is None or name in columns]
    checks = [check for name in wanted if (check := in_range(name, kinds[name])) is not None]
    looked_at = {name: kinds[name] for name in wanted}
    rows = exp.select("*").from_(parquet_reader((path,)))
    with locked_database(allowed, limits, whole_files=True) as connection:
        is_read = _is_read(connection, rows, wanted, checks)
    if is_read and _is_told_truly(path, looked_at, limits):
        return Reading()
    try:
        return _bared(path, state, looked_at, limits)
    except (OSError, ValueError, LookupError):
        return Reading("its footer cannot be read")


def _is_told_truly(path: str, kinds: Mapping[str, str], limits: Limits) -> bool:
    """Whether the file's statistics can be read, and say of each column what its values say.

    A statement that is planned for other values than it meets fails, whichever question it is of.
    """
    allowed, file = [path, literal_path(path)], parquet_reader((path,))
    try:
        with (
            locked_database(allowed, limits, whole_files=True) as reading,
            locked_database(allowed, limits) as believing,
        ):
            for name in (name for name, kind in kinds.items() if accepts_key(kind) and kind not in _WITH_NAN):
                # Alone: beside a column without statistics, those of the others are not looked at either.
                ends = [cast(call(end, ref(name)), TEXT) for end in ("MIN", "MAX")]
                asked = exp.select(*ends).from_(file.copy()).sql(dialect="duckdb")
                if believing.execute(asked).fetchall() != reading.execute(asked).fetchall():
                    return False
    except (duckdb.Error, MemoryError, RuntimeError, ValueError):
        return False
    return True


def _is_read(
    connection: duckdb.DuckDBPyConnection, rows: exp.Query, names: Sequence[str], checks: Sequence[exp.Expression] = ()
) -> bool:
    """Whether every value of these columns can be read, and every check holds."""
    looks: list[exp.Expression] = [call("BIT_XOR", call("HASH", ref(name))) for name in names]
    looks += [exp.Not(this=call("BOOL_AND", check)) for check in checks]
    try:
        for start in range(0, len(looks), _COLUMNS_AT_ONCE):
            some = exp.select(*looks[start : start + _COLUMNS_AT_ONCE]).from_(rows.subquery("rows"))
            found = connection.execute(some.sql(dialect="duckdb")).fetchall()
            if any(value is True for value in found[0]):
                return False
    except (duckdb.Error, MemoryError, RuntimeError, ValueError):
        return False
    return True


def _bared(path: str, state: str, kinds: Mapping[str, str], limits: Limits) -> Reading:
    """The file's pages under a footer that says nothing about what values mean."""
    footer = read_footer(Path(path))
    stored = footer.columns()
    bared = [name for name, kind in kinds.items() if name in stored and can_fail(kind, stored[name])]
    mended = MendedFile(path, state, footer.bare(kinds, bared))
    values = tuple(
        named(decoded_value(name, kind, stored[name]) if name in bared else ref(name), name)
        for name, kind in kinds.items()
    )
    pages = parquet_reader((mended.name,))
    with locked_database((), limits, mended=[mended], whole_files=True) as connection:
        if _is_read(connection, exp.select(*values).from_(pages), list(kinds)):
            return Reading(mended=mended, values=values)
        bare = exp.select("*").from_(pages)
        broken = next((name for name in kinds if not _is_read(connection, bare, [name])), "")
    if broken and broken not in stored:
        return Reading(f"a value inside the nested column {broken!r} cannot be read")
    return Reading(f"a page of {f'the column {broken!r}' if broken else 'a column'} is broken")


# --- CSV --------------------------------------------------------------------------------------------------


def _csv(path: str, state: str, header: Header) -> Reading:
    file = Path(path)
    try:
        if fault := csv_fault(file, header.delimiter):
            return Reading(fault)
        if is_whole(file):
            return Reading()
        mended = MendedFile(path, state, SubstitutedText(file.stat().st_size))
    except OSError:
        return Reading("it cannot be read")
    fields = (f"f{place}" for place in range(len(header.names)))
    return Reading(mended=mended, values=tuple(named(whole_field(name), name) for name in fields))
