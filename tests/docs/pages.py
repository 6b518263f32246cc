"""The pages of the documentation, cut into blocks.

How a page says what is to be done with a block:

    ```toml study.toml       a whole file: save it under this name; a test parses it
    ```toml                  a piece of one: valid TOML, no more is asked
    ```python                a program that stands on its own; a test runs it
    ```python name.py        a module: save it under this name; programs after it import it
    ```console               a session: `$ command`, then what it prints; a test runs it (see walk.py)
    ```sh                    commands that need what a test has not (root, containers, make); they must exist
    ```text                  something to read
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"```(\S*)\s*(.*)")
# Also as the entry point of a container.
_CALL = re.compile(r"(?:^|[\s(]|bin/)wardround(?:-site|-coordinator)? +((?:[a-z]|--version).*)")
_HEADING = re.compile(r"#{1,6} +(.*)")


@dataclass(frozen=True)
class Block:
    """One fenced block and where it stands."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page a reader may open."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    opened: tuple[int, str, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line.startswith("```") and opened is None:
            found = _FENCE.fullmatch(line)
            assert found is not None, f"{name(path)}:{number}"
            opened, lines = (number, found[1], found[2].strip()), []
        elif line.startswith("```") and opened is not None:
            yield Block(name(path), opened[0], opened[1], opened[2], "\n".join(lines) + "\n")
            opened = None
        elif opened is not None:
            lines.append(line)
    assert opened is None, f"{name(path)}: a block is not closed"


def all_blocks(language: str) -> list[Block]:
    return [block for path in pages() for block in blocks(path) if block.language == language]


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """The places of a page that a link may name, as GitHub makes them."""
    found = [match[1] for line in prose(path).splitlines() if (match := _HEADING.fullmatch(line))]
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in found}


def commands(block: Block) -> list[str]:
    """The `wardround …` commands in an sh or console block, continuation lines joined."""
    text = block.text.replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        words = line.removeprefix("$ ") if block.language == "console" else line
        if block.language == "console" and not line.startswith("$ "):
            continue
        if match := _CALL.search(words):
            found.append(match[1])
    return found
