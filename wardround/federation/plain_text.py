r"""Plain text: what a person can be shown without being deceived by it.

An escape sequence moves the cursor, a line break begins a line that nobody wrote, a direction mark turns around what
is read: with one of them an analyst could forge the line by which a steward approves. So what people and peers send
is refused where it enters unless it is plain; and whatever is shown, logged or drawn is escaped there, whoever wrote
it, because what rows hold, or what an older version let in, is never refused.

| characters | sent | shown |
|---|---|---|
| control (Cc), direction (U+061C, 200E-F, 202A-E, 2066-9), lines (2028-9), halves (Cs) | refused | escaped |
| other invisible ones (U+200B, FEFF, tags), private use, not assigned; a ninth mark on one letter | sent | escaped |
| letters, marks, symbols and blanks of any language; U+200C-D, which Persian and Indic words need | sent | as it is |

The refused ones are listed and not looked up, so that both sides agree whatever their version of Unicode is. Those of
the second row cannot forge a line; they can hide in one, so they are made visible and stay allowed in names.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Iterator

_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LAYOUT = str.maketrans("\t\n\r", "   ")
"""What lays out a document of several lines, which is looked at without it."""

_JOINERS = "\u200c\u200d"
# Words of no language pile more marks on a letter; a thousand of them paint over the lines above and below.
_MOST_MARKS = 8


def is_plain(text: str) -> bool:
    """Whether a text can be sent: one line, and nothing in it that steers or turns what is read."""
    return _REFUSED.search(text) is None


def text_fault(text: str) -> str | None:
    """What is wrong with a text that is not plain, as the end of a sentence; otherwise None."""
    found = _REFUSED.search(text)
    if found is None:
        return None
    return f"has U+{ord(found[0]):04X} at place {found.start() + 1}, a control or direction character; leave it out"


def fault_in(word: object) -> str | None:
    """The same for all texts that a word is made of: a frozen dataclass, the words and the tuples inside it."""
    match word:
        case str():
            return text_fault(word)
        case tuple():
            parts = word
        case _ if dataclasses.is_dataclass(word):
            parts = tuple(getattr(word, field.name) for field in dataclasses.fields(word))
        case _:
            return None
    return next((fault for part in parts if (fault := fault_in(part)) is not None), None)


def escaped(text: str) -> str:
    r"""The text as it may be shown, on one line: what is hidden in it is written out, as in `\x1b` and `\u202e`.

    Backslashes stay as they are, so escaping again changes nothing, and a text that holds a written-out character
    looks like one that was escaped.
    """
    return text if text.isascii() and text.isprintable() else "".join(_shown(text))


def fitted(text: str, columns: int) -> str:
    """The text escaped, and cut to one row of any terminal with so many columns."""
    line = escaped(text)
    # Whatever a terminal thinks of a letter, it gives it two columns at most.
    widths = list(itertools.accumulate(1 if character.isascii() else 2 for character in line))
    return line if not line or widths[-1] <= columns else line[: bisect.bisect_right(widths, columns - 2)] + "…"


def rows(text: str, columns: int) -> list[str]:
    """The text escaped, in rows of so many columns, broken at blanks where there are some."""
    found: list[str] = []
    line = escaped(text)
    while True:
        widths = itertools.accumulate(_columns(character) for character in line[: columns + 1])
        end = max(bisect.bisect_right(list(widths), columns), 1)
        if end >= len(line):
            return [*found, line]
        blank = line.rfind(" ", end // 2, end + 1)
        cut = end if blank < 0 else blank + 1
        found.append(line[:cut].rstrip(" "))
        line = line[cut:]


def width_of(text: str) -> int:
    """How many columns most terminals give to the text, escaped."""
    line = escaped(text)
    return len(line) if line.isascii() else sum(map(_columns, line))


def _columns(character: str) -> int:
    """How many columns most terminals give it; a mark is counted, although it has none of its own."""
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _shown(text: str) -> Iterator[str]:
    # A mark at the beginning would stand on what is before the text.
    marks = _MOST_MARKS
    for character in text:
        kind = unicodedata.category(character)
        marks = marks + 1 if kind in ("Mn", "Me") or character in _JOINERS else 0
        seen = character.isprintable() or kind == "Zs" or character in _JOINERS
        yield character if seen and marks <= _MOST_MARKS else character.encode("unicode_escape").decode("ascii")
