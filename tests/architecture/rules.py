"""The rules of the source that no linter knows, each as a function from one module to its violations.

A rule only reads syntax: it imports nothing that it judges, so it also holds for code that cannot be run here.
Exceptions are the short tables at the top; a new line there is a decision and belongs in a review.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("wardround", "protos", "coordinator", "site_agent")

MOST_LINES = 400

# One word per thing (ARCHITECTURE.md); these name no thing at all.
FORBIDDEN_IN_NAMES = frozenset(
    ("client", "server", "node", "job", "manager", "handler", "engine", "processor")
) | frozenset(("util", "helper", "common", "misc", "context", "data", "info"))
NAMES_ALLOWED = (
    ("wardround.analyst.asking.client", "client"),
    ("wardround.analyst.asking.client", "Client"),
    ("protos.tls", "caller_common_name"),  # X.509's own word
    ("wardround.analyst.flower.grid", "get_node_ids"),  # Flower's own word
    ("wardround.analyst.flower.strategies", "get_node_ids"),
)

# The top loops, where an unforeseen fault becomes one fixed sentence; and where rows may have decided what failed.
BROAD_EXCEPT_ALLOWED = (
    "wardround.cli.main",
    "site_agent.serving.agent",
    "site_agent.answering.pipeline",
    "protos.serving",
)


# Where the system's entropy may be drawn: noise, keys, nonces and one-use secrets.
ENTROPY_ALLOWED = (
    "wardround.privacy.noise*",
    "wardround.analyst.asking.client",  # the nonce of a fresh question
    "coordinator.members.enrolment",  # the secret of an invitation
    "site_agent.serving.agent",  # jitter
    "site_agent.serving.folder",  # the key of the row order
)

# A seeded generator is insecure by construction: private noise never comes from one.
SEEDED_ALLOWED = (
    "wardround.simulation*",
    # The tables a p-value is compared with: made after the noise, from the plan's id.
    "wardround.federation.statistics.crosstab",
)

# A ledger that does not wait for the disk, and objects that run code when they are read: for simulations only.
FLEETING_ALLOWED = ("wardround.simulation*", "wardround.federation.ledger.sqlite_file")
PICKLE_ALLOWED = ("wardround.simulation.processes",)

# Sources speak SQL too, about a hospital's own tables.
# Where short sentences are still to be looked through.
# More words than this say something.
FEWEST_WORDS = 3


@dataclass(frozen=True, slots=True)
class Module:
    """One source file, named as Python would import it."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text)


@functools.cache
def _parsed(text: str) -> ast.Module:
    """Once for all rules: none of them changes what it reads."""
    return ast.parse(text)


def read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text("utf-8"))


def python_files(*folders: str) -> list[Path]:
    """Hand-written files only: generated code obeys its generator."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "_generated" not in path.parts and "__pycache__" not in path.parts
    )


def allowed(module: Module, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(module.name, pattern) for pattern in patterns)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name a module imports, dotted in full, `from a import b` as `a.b`."""
    for found in ast.walk(tree):
        match found:
            case ast.Import(names=names):
                yield from ((found.lineno, name.name) for name in names)
            case ast.ImportFrom(module=str(origin), names=names):
                yield from ((found.lineno, f"{origin}.{name.name}") for name in names)


@functools.cache
def used(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Every dotted expression, with import aliases undone: `np.random.x` is `numpy.random.x`."""
    alias = {
        name.asname: name.name
        for found in ast.walk(tree)
        if isinstance(found, ast.Import)
        for name in found.names
        if name.asname is not None
    }
    dotted = [
        (found.lineno, ast.unparse(found).partition("."))
        for found in ast.walk(tree)
        if isinstance(found, ast.Attribute)
    ]
    return tuple((line, alias.get(first, first) + dot + rest) for line, (first, dot, rest) in dotted)


def within(name: str, origin: str) -> bool:
    return name == origin or name.startswith(origin + ".")


def words(name: str) -> list[str]:
    """`ClaimTask`, `claim_task` and `HTTPProxy` as lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def forbidden_names(module: Module) -> list[str]:
    named = [(1, module.name.rpartition(".")[2])]
    named += [
        (found.lineno, found.name)
        for found in ast.walk(module.tree)
        if isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [
        f"{module.name}:{line} {name}"
        for line, name in named
        for word in words(name)
        if (word in FORBIDDEN_IN_NAMES or word.removesuffix("s") in FORBIDDEN_IN_NAMES)
        and (module.name, name) not in NAMES_ALLOWED
    ]


def too_long(module: Module) -> list[str]:
    lines = len(module.text.splitlines())
    return [f"{module.name} has {lines} lines"] if lines > MOST_LINES else []


def asserts(module: Module) -> list[str]:
    """`python -O` removes an assert; a privacy check must not be removable."""
    return [f"{module.name}:{found.lineno} assert" for found in ast.walk(module.tree) if isinstance(found, ast.Assert)]


def broad_excepts(module: Module) -> list[str]:
    """Undoing and raising again is no catch: a last bare `raise` makes a handler sound."""
    if allowed(module, BROAD_EXCEPT_ALLOWED):
        return []
    broad = {"Exception", "BaseException"}
    found_at = []
    for found in ast.walk(module.tree):
        match found:
            case ast.ExceptHandler(body=[*_, ast.Raise(exc=None)]):
                continue
            case ast.ExceptHandler(type=None):
                found_at.append(found.lineno)
            case ast.ExceptHandler(type=ast.expr() as caught) if broad & {
                part.id for part in ast.walk(caught) if isinstance(part, ast.Name)
            }:
                found_at.append(found.lineno)
            case ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=caught) if any(
                isinstance(kind, ast.Name) and kind.id in broad for kind in caught
            ):
                found_at.append(found.lineno)
    return [f"{module.name}:{line} catches everything" for line in found_at]


def seeded_randomness(module: Module) -> list[str]:
    if allowed(module, SEEDED_ALLOWED):
        return []
    names = [*imported(module.tree), *used(module.tree)]
    return [
        f"{module.name}:{line} {name}" for line, name in names if within(name, "random") or within(name, "numpy.random")
    ]


def system_entropy(module: Module) -> list[str]:
    if allowed(module, ENTROPY_ALLOWED):
        return []
    sources = ("secrets", "os.urandom", "os.getrandom", "uuid.uuid4")
    return [
        f"{module.name}:{line} {name}"
        for line, name in [*imported(module.tree), *used(module.tree)]
        if any(within(name, source) for source in sources)
    ]


def fleeting_ledgers(module: Module) -> list[str]:
    if allowed(module, FLEETING_ALLOWED):
        return []
    return [
        f"{module.name}:{line} {name}"
        for line, name in used(module.tree)
        if name in ("Durability.FILE", "Durability.MEMORY")
    ]


def pickles(module: Module) -> list[str]:
    if allowed(module, PICKLE_ALLOWED):
        return []
    readers = ("pickle", "marshal", "shelve", "multiprocessing", "concurrent.futures.ProcessPoolExecutor")
    return [
        f"{module.name}:{line} {name}"
        for line, name in imported(module.tree)
        if any(within(name, reader) for reader in readers)
    ]


def untyped(module: Module) -> list[str]:
    """`Any` switches the type checker off without saying so."""
    return [
        f"{module.name}:{line} {name}"
        for line, name in [*imported(module.tree), *used(module.tree)]
        if name == "typing.Any"
    ]


# One letter of each word is in brackets, so that this file does not contain what it looks for.
FORBIDDEN_IN_TEXT = re.compile(
    r"""
    (?<![\w.$}/]) /(?:[w]ork|[r]oot|[h]ome)/ [\w.]   # a path of the machine it was written on
    | file:///[o]pt
    | py[p]i\.org | pythonh[o]sted\.org              # which index to install from is the reader's choice
    | \b(?:TOD[O]|FIXM[E]|XX[X])\b                    # an issue, or nothing
    """,
    re.VERBOSE,
)


def forbidden_text(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number} {found.group()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for found in FORBIDDEN_IN_TEXT.finditer(line)
    ]


def empty_docstrings(module: Module) -> list[str]:
    """A method that its name and types explain needs no sentence; one that does nothing says why."""
    return [
        f"{module.name}:{found.lineno} {found.name}: {text}"
        for owner in ast.walk(module.tree)
        if isinstance(owner, ast.ClassDef)
        for found in owner.body
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(found)) and not _does_nothing(found, owner)
        if len(text.split()) <= FEWEST_WORDS or re.fullmatch(r"See `[^`]+`\.", text)
    ]


def _does_nothing(method: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef) -> bool:
    return len(method.body) == 1 and "Protocol" not in {ast.unparse(base) for base in owner.bases}


def named_messages(module: Module) -> list[str]:
    """An error's sentence stands where it is raised."""
    return [
        f"{module.name}:{one.lineno} {one.targets[0].id}"
        for found in ast.walk(module.tree)
        for body in (getattr(found, "body", []), getattr(found, "orelse", []))
        if isinstance(body, list)
        for one, after in pairwise(body)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and isinstance(after, ast.Raise)
        if one.targets[0].id == "msg"
    ]
