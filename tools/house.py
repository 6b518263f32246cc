"""A mirror for the layout: what a newcomer meets in the source. It judges nothing and writes nothing.

make mirrors
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("wardround/", "protos/", "coordinator/", "site_agent/")
DRIVERS = frozenset(("sqlite3", "psycopg"))
ENUMERATIONS = ("Statistic", "ModelKind", "StageKind")
WIDE = 120
FEW_WORDS = 3
SHOWN_CYCLE = 4

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One file, with the name that Python imports it by."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """As an import names it."""
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.path.rpartition("/")[0]

    @property
    def stem(self) -> str:
        """Its own name."""
        return self.path.rpartition("/")[2].removesuffix(".py")


def tracked(pattern: str) -> list[str]:
    """The files of the project that match."""
    found = subprocess.run(  # noqa: S603 -- our own words
        ["git", "ls-files", pattern],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.split()


@functools.cache
def sources() -> tuple[Source, ...]:
    """What is shipped and written by hand."""
    names = [name for name in tracked("*.py") if name.startswith(SHIPPED) and "_generated" not in name]
    texts = {name: (ROOT / name).read_text("utf-8") for name in names}
    return tuple(Source(name, text, ast.parse(text)) for name, text in texts.items())


def imports(found: Iterable[Source]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Which of our own modules each one imports, and which of others."""
    modules = {source.module: source for source in found}
    ours: dict[str, set[str]] = {name: set() for name in modules}
    others: dict[str, set[str]] = {name: set() for name in modules}
    for name, source in modules.items():
        for target in _targets(source.tree):
            parent = target.rpartition(".")[0]
            mine = target if target in modules else parent if parent in modules else None
            if mine is None:
                others[name].add(target)
            elif mine != name:
                ours[name].add(mine)
    return ours, others


def _targets(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each reaches every other."""
    reached = {name: _reached(name, edges) for name in edges}
    groups = {
        frozenset(other for other in seen if name in reached[other]) for name, seen in reached.items() if name in seen
    }
    return sorted(sorted(group) for group in groups)


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def mutual(found: Iterable[Source], edges: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Folders that import each other."""
    folder = {source.module: source.folder for source in found}
    pairs = {(folder[name], folder[target]) for name, targets in edges.items() for target in targets}
    return sorted((one, other) for one, other in pairs if one < other and (other, one) in pairs)


def twice(found: Iterable[Source], names: Callable[[Source], Iterable[str]]) -> dict[str, int]:
    """Names that several files give to something, and how many do."""
    uses = Counter(name for source in found for name in set(names(source)))
    return {name: number for name, number in sorted(uses.items()) if number > 1}


def classes(source: Source) -> list[str]:
    """Its public classes."""
    return [node.name for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def functions(found: Iterable[Source]) -> Iterator[tuple[int, str]]:
    """Every function with how many lines it has."""
    for source in found:
        for node in ast.walk(source.tree):
            if isinstance(node, _Function) and node.end_lineno is not None:
                yield node.end_lineno - node.lineno + 1, f"{source.path}:{node.lineno} {node.name}"


def short_docstrings(found: Iterable[Source]) -> int:
    """Docstrings of three words or fewer: hardly more than a name."""
    nodes = (node for source in found for node in ast.walk(source.tree) if isinstance(node, _Function | ast.ClassDef))
    texts = (ast.get_docstring(node) for node in nodes)
    return sum(1 for text in texts if text and len(text.split()) <= FEW_WORDS)


def wide_lines() -> int:
    """Lines of Markdown prose above the width that editors are set to; a table's row has to be one line."""
    lines = (line for name in tracked("*.md") for line in (ROOT / name).read_text("utf-8").splitlines())
    return sum(1 for line in lines if len(line) > WIDE and not line.startswith("|"))


def show() -> Iterator[str]:
    """The numbers, a line each."""
    found = sources()
    ours, others = imports(found)
    sizes = sorted((len(source.text.splitlines()), source.path) for source in found)
    length, longest = max(functions(found))
    named = {name for source in found for name in classes(source)}
    yield (
        f"modules {len(found)}, lines {sum(size for size, _ in sizes)}, median file {sizes[len(sizes) // 2][0]}, "
        f"longest file {sizes[-1][0]} ({sizes[-1][1]}), longest function {length} ({longest}), "
        f"public classes {len(named)}"
    )
    folders = Counter(source.folder for source in found if source.stem != "__init__")
    yield "the fullest folders: " + ", ".join(f"{folder} {number}" for folder, number in folders.most_common(8))
    groups = [" <-> ".join(group[:SHOWN_CYCLE]) + " …" * (len(group) > SHOWN_CYCLE) for group in cycles(ours)]
    yield _listed("import cycles", groups)
    yield _listed("folders that import each other", [f"{one} <-> {other}" for one, other in mutual(found, ours)])
    yield _listed("public class names with two meanings or more", list(twice(found, classes)))
    modules: dict[str, int] = Counter(source.stem for source in found if source.stem != "__init__")
    again = [f"{name} ×{number}" for name, number in sorted(modules.items()) if number > 1]
    yield _listed("module names used twice or more", again)
    drivers = [name for name, targets in others.items() if DRIVERS & {target.partition(".")[0] for target in targets}]
    yield _listed("modules that know a database driver", [name for name in sorted(drivers) if ".sources" not in name])
    naming: dict[str, list[str]] = defaultdict(list)
    for source in found:
        for enumeration in ENUMERATIONS:
            if re.search(rf"\b{enumeration}\.[A-Z]", source.text):
                naming[enumeration].append(source.path)
    for enumeration in ENUMERATIONS:
        yield f"modules that name members of {enumeration}: {len(naming[enumeration])}"
    yield f"docstrings of three words or fewer {short_docstrings(found)}; wide lines of Markdown prose {wide_lines()}"


def _listed(title: str, names: list[str]) -> str:
    return f"{title} {len(names)}: {', '.join(names) or 'none'}"


if __name__ == "__main__":
    for line in show():
        print(line)
