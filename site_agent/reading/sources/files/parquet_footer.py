"""The footer of a Parquet file, and the same footer without a word about what values mean.

DuckDB turns bytes into text and whole numbers into times while it reads, and fails for a value that is none. Under a
*bare* footer the same pages hold bytes and whole numbers, which cannot fail, and SQL decodes them. Statistics and
filters are left out of it, so that nothing is decoded for their sake.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from site_agent.reading.sources.duckdb.mended_files import bytes_between
from site_agent.reading.sources.files.thrift_compact import I32, STRUCT, Sequence, Struct, Value, decoded, encoded

_MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
# Numbers of fields in parquet.thrift.
_SCHEMA, _ROW_GROUPS, _KEPT_OF_FILE = 2, 4, (1, 2, 3, 4)
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 5, 6, 10
_KEPT_OF_ELEMENT = (_TYPE, _LENGTH, _REPETITION, _NAME)
_COLUMNS, _KEPT_OF_GROUP = 1, (1, 2, 3)
_METADATA, _KEPT_OF_CHUNK = 3, (2, 3)
_KEPT_OF_METADATA = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)
_REPEATED = 2

_INT32, _INT64, _INT96, _BYTES, _FIXED = 1, 2, 3, 6, 7
_OLD_TIMES = {7: "MS", 8: "US", 9: "MS", 10: "US"}
_TIME, _TIMESTAMP = 7, 8
_UNITS = {1: "MS", 2: "US", 3: "NS"}


@dataclass(frozen=True, slots=True)
class StoredForm:
    """How a column is stored: whether as bytes, and in which unit, where it is a time."""

    in_bytes: bool
    unit: str


@dataclass(frozen=True, slots=True)
class BarePages:
    """The pages of a file where they are, under another footer; see `View`."""

    pages_bytes: int
    footer: bytes

    @property
    def size_bytes(self) -> int:
        return self.pages_bytes + len(self.footer)

    def between(self, descriptor: int, begin: int, end: int) -> bytes:
        pages = bytes_between(descriptor, begin, min(end, self.pages_bytes))
        return pages + self.footer[max(begin - self.pages_bytes, 0) : max(end - self.pages_bytes, 0)]


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says about itself."""

    tree: Struct
    begins_at: int

    def columns(self) -> dict[str, StoredForm]:
        """The columns that are not nested."""
        return {
            column.name: _stored(column.elements[0])
            for column in self._columns()
            if len(column.elements) == 1 and _whole(column.elements[0], _REPETITION) != _REPEATED
        }

    def bare(self, wanted: Collection[str], bared: Collection[str]) -> BarePages:
        """The file with the columns `wanted`, of which `bared` are bytes and whole numbers only."""
        columns = [column for column in self._columns() if column.name in wanted]
        root = _kept(self._elements()[0], _KEPT_OF_ELEMENT)
        schema: list[Struct] = [{**root, _CHILDREN: (I32, len(columns))}]
        for column in columns:
            kept = [_kept(element, _KEPT_OF_ELEMENT) for element in column.elements]
            schema += kept if column.name in bared else column.elements
        places = [place for column in columns for place in column.places]
        groups: list[Struct] = []
        for group, chunks in self._groups():
            kept = [_bare_chunk(chunks[place]) for place in places]
            groups.append({**_kept(group, _KEPT_OF_GROUP), _COLUMNS: (group[_COLUMNS][0], Sequence(STRUCT, [*kept]))})
        tree = _kept(self.tree, _KEPT_OF_FILE)
        tree[_SCHEMA] = tree[_SCHEMA][0], Sequence(STRUCT, [*schema])
        tree[_ROW_GROUPS] = tree[_ROW_GROUPS][0], Sequence(STRUCT, [*groups])
        content = encoded(tree)
        return BarePages(self.begins_at, content + _TAIL.pack(len(content), _MAGIC))

    def _elements(self) -> list[Struct]:
        return _structs(self.tree[_SCHEMA][1])

    def _groups(self) -> Iterator[tuple[Struct, list[Struct]]]:
        for group in _structs(self.tree[_ROW_GROUPS][1]):
            yield group, _structs(group[_COLUMNS][1])

    def _columns(self) -> list[_Column]:
        """The columns at the top, in order."""
        elements = iter(self._elements())
        places = itertools.count()
        number = _whole(next(elements, {}), _CHILDREN)
        return [_column(elements, places) for _ in range(number)]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with all that is nested in it, and the places of its pages among those of a row group."""

    elements: list[Struct]
    places: list[int]

    @property
    def name(self) -> str:
        return _name(self.elements[0])


def _column(elements: Iterator[Struct], places: Iterator[int]) -> _Column:
    found, left = _Column([], []), 1
    while left:
        element = next(elements, None)
        if element is None:
            raise ValueError("a column is missing")
        found.elements.append(element)
        children = _whole(element, _CHILDREN)
        left += children - 1
        if not children:
            found.places.append(next(places))
    return found


def read_footer(path: Path) -> Footer:
    """The footer of the file at `path`.

    Raises:
        ValueError: it has none that can be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < 2 * _TAIL.size:
            raise ValueError("too short")
        file.seek(size - _TAIL.size)
        length, magic = _TAIL.unpack(file.read(_TAIL.size))
        begins_at = size - _TAIL.size - length
        if magic != _MAGIC or begins_at < 0:
            raise ValueError("no footer")
        file.seek(begins_at)
        return Footer(decoded(file.read(length)), begins_at)


def _stored(element: Struct) -> StoredForm:
    kind, unit = _whole(element, _TYPE), _OLD_TIMES.get(_whole(element, _CONVERTED, -1), "")
    logical = _struct(element.get(_LOGICAL, (0, {}))[1])
    for time in (_TIME, _TIMESTAMP):
        units = _struct(_struct(logical.get(time, (0, {}))[1]).get(2, (0, {}))[1])
        unit = next((_UNITS.get(number, "") for number in units), unit)
    return StoredForm(kind in (_BYTES, _FIXED), unit if kind in (_INT32, _INT64) else "")


def _bare_chunk(chunk: Struct) -> Struct:
    kept = _kept(_struct(chunk[_METADATA][1]), _KEPT_OF_METADATA)
    return {**_kept(chunk, _KEPT_OF_CHUNK), _METADATA: (STRUCT, kept)}


def _kept(found: Struct, numbers: Collection[int]) -> Struct:
    return {number: value for number, value in found.items() if number in numbers}


def _struct(value: Value) -> Struct:
    return value if isinstance(value, dict) else {}


def _structs(value: Value) -> list[Struct]:
    return [_struct(each) for each in value.values] if isinstance(value, Sequence) else []


def _whole(element: Struct, number: int, default: int = 0) -> int:
    value = element.get(number, (0, default))[1]
    return value if isinstance(value, int) else default


def _name(element: Struct) -> str:
    value = element.get(_NAME, (0, b""))[1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
