"""Nothing in the source is there for its tests alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.architecture.rules import ROOT, SHIPPED, python_files, read
from tests.docs.pages import pages

# What others call: Python's and notebooks' protocols, gRPC's, fsspec's, click's and Flower's interfaces.
CALLED_BY_OTHERS = {
    "_main_shell_completion",
    "_repr_html_",
    "create_message",
    "format_commands",
    "get_node_ids",
    "intercept_service",
    "modified",
    "pull_messages",
    "send_and_receive",
    "set_run",
}
# Each with who it is for.
EXPECTED = {
    "SeededNoise": "a Noise that tests and benchmarks repeat",
    "pass_seconds": "time that tests let pass",
    "in_one_sum": "the price of a secure sum",
    "share_below": "a word of the builder, in the table of docs/sql.md",
    "BUDGET": "a word that the codec keeps by its class",
    "PREVIEW": "the same",
    "STAGE": "the same",
    "QUERY": "the same",
    "STEP": "the same",
    "HEAD": "the same",
    "HINTS": "what a chain does not attest: docs/coordinator.md and tests go by it",
}


def defined(tree: ast.Module) -> Iterator[str]:
    for found in ast.walk(tree):
        if isinstance(found, ast.FunctionDef | ast.ClassDef):
            yield found.name
    for found in tree.body:
        if isinstance(found, ast.Assign):
            yield from (target.id for target in found.targets if isinstance(target, ast.Name))


def named(tree: ast.Module) -> Iterator[str]:
    """Every name that is read; of a short text too, since methods are looked up by their names."""
    for found in ast.walk(tree):
        match found:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text


def unreached(trees: list[ast.Module], exported: set[str]) -> set[str]:
    used = Counter(name for tree in trees for name in named(tree))
    return {
        name
        for tree in trees
        for name in defined(tree)
        if not used[name] and not name.startswith("__") and name not in exported
    }


def test_every_name_of_the_source_is_used_by_the_source_or_shown_on_a_page() -> None:
    stubs = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "wardround").rglob("__init__.pyi")]
    offered = {
        name.name
        for stub in stubs
        for found in ast.walk(stub)
        if isinstance(found, ast.ImportFrom)
        for name in found.names
    }
    shown = "\n".join(path.read_text("utf-8") for path in pages())
    trees = [read(path).tree for path in python_files(*SHIPPED)]
    found = {name for name in unreached(trees, offered | CALLED_BY_OTHERS) if f"{name}(" not in shown}
    # Commands are reached by their decorator.
    commands = {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        if any(
            isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith((".command", ".callback"))
            for mark in node.decorator_list
        )
    }
    assert found - commands == EXPECTED.keys()


def test_a_function_that_nobody_calls_is_found() -> None:
    text = "def lost(): ...\ndef kept(): ...\nkept()\nLEFT = 1\n"
    assert unreached([ast.parse(text)], set()) == {"lost", "LEFT"}
