"""The mirror of the layout sees what it is for."""

from __future__ import annotations

import ast

from tools.house import Source, classes, cycles, functions, imports, mutual, show, twice


def source(path: str, text: str) -> Source:
    return Source(path, text, ast.parse(text))


A = source("wardround/one/a.py", "from wardround.two.b import thing\nclass Line:\n    def f(self):\n        return 1\n")
B = source("wardround/two/b.py", "import sqlite3\nfrom wardround.one import c\nclass Line: ...\n")
C = source("wardround/one/c.py", "import wardround.one.a\nclass _Own: ...\n")


def test_cycles_folders_and_names_are_seen() -> None:
    ours, others = imports((A, B, C))
    assert cycles(ours) == [["wardround.one.a", "wardround.one.c", "wardround.two.b"]]
    assert mutual((A, B, C), ours) == [("wardround/one", "wardround/two")]
    assert others["wardround.two.b"] == {"sqlite3"}
    assert twice((A, B, C), classes) == {"Line": 2}
    assert max(functions((A, B, C)))[0] == 2
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_the_numbers_of_this_source_can_be_shown() -> None:
    first = next(show())
    assert "longest function" in first
