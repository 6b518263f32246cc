"""Runs a notebook's code in one plain process, as a kernel would: cell by cell, the last expression shown.

    python tests/docs/run_notebook.py NOTEBOOK

What a cell ends with is asked for its HTML and its text, as a notebook asks. The program ends with the first error.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path


def cells(notebook: Path, kind: str = "code") -> Iterator[tuple[str, str]]:
    """The cells of one kind: where each stands, and its text."""
    for number, cell in enumerate(json.loads(notebook.read_text("utf-8"))["cells"], start=1):
        if cell["cell_type"] == kind:
            yield f"{notebook.name}, cell {number}", "".join(cell["source"])


def run(notebook: Path) -> None:
    """Execute every code cell in one namespace."""
    names: dict[str, object] = {"__name__": "__main__"}
    for place, text in cells(notebook):
        tree = ast.parse(text, place)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, place, "exec"), names)  # noqa: S102 -- our own notebooks, which a reader runs too
        if isinstance(last, ast.Expr):
            show(eval(compile(ast.Expression(last.value), place, "eval"), names))  # noqa: S307 -- as above


def show(value: object) -> None:
    if value is None:
        return
    html = getattr(value, "_repr_html_", None)
    if html is not None and "<table" not in html():
        raise ValueError(f"{type(value).__name__} shows no table in a notebook: {html()!r}")
    print(repr(value))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
