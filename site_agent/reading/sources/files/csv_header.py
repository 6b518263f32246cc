"""The first line of a CSV file: its columns and its delimiter, found without reading a row."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """The names in the header line, in order, and what separates them."""

    names: tuple[str, ...]
    delimiter: str


def read_header(path: Path, wanted: Collection[str]) -> Header | str:
    """The header with the delimiter that finds most of `wanted`, or what is wrong with the line."""
    with path.open("rb") as file:
        line = file.read(_LONGEST).replace(b"\r", b"\n").split(b"\n", 1)[0]
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "does not begin with a header line in UTF-8"
    if not text.strip():
        return "has no header line"
    if text.count('"') % 2 or "\x00" in text:
        return "has a header line that cannot be read"
    headers = [_split(text, delimiter) for delimiter in _DELIMITERS]
    return max(headers, key=lambda header: len(set(wanted) & set(header.names)))


def _split(text: str, delimiter: str) -> Header:
    names = next(csv.reader([text], delimiter=delimiter), [])
    return Header(tuple(name.strip() for name in names), delimiter)
