"""Every word of the glossary has a line of its own, the field's word beside it, and a home that exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT
from tools.house import Source, sources

PAGE = (ROOT / "docs/glossary.md").read_text("utf-8")
ROWS = re.findall(r"(?m)^\| (?!ours )([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", PAGE)


@pytest.fixture(scope="module")
def homes() -> set[str]:
    """Every module, and every name that one defines at its top."""
    found = sources()
    return {source.module for source in found} | {f"{source.module}.{name}" for source in found for name in top(source)}


def top(source: Source) -> set[str]:
    named: set[str] = set()
    for node in source.tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                named.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                named.add(name)
    return named


def test_every_line_of_a_table_is_a_word_with_a_home() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    heads = sum(line.startswith(("| ours |", "|---")) for line in lines)
    assert len(ROWS) == len(lines) - heads > 70


def test_no_word_is_explained_twice() -> None:
    words = [word for row in ROWS for word in row[0].split(", ")]
    assert sorted(words) == sorted(set(words))
    plain = re.findall(r"(?m)^- \*\*([^*]+)\*\*", PAGE.split("## Beside the words")[0])
    assert len(plain) == len(set(plain)) > 25


@pytest.mark.parametrize("home", sorted({row[2] for row in ROWS}))
def test_every_home_exists(homes: set[str], home: str) -> None:
    assert home in homes
