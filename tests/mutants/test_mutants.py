"""Every named mutant dies: in a copy of the tree one line is changed, and a test of that promise fails.

`make test-mutants` runs them, `ARGS="-k noise"` some of them. In `make test` each must still fit the source.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import mutants
from tests.mutants.durability import DURABILITY
from tests.mutants.mutants import Mutant

MUTANTS = mutants.MUTANTS | DURABILITY
ROOT = Path(__file__).parents[2]
PACKAGES = ("wardround", "protos", "coordinator", "site_agent")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "folders", "*.json")
FAILED = 1
_SECONDS = 300.0


def sources(root: Path) -> list[Path]:
    return [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]


def home(mutant: Mutant, root: Path) -> Path:
    """The one file that holds the line."""
    found = [file for file in sources(root) if mutant.old in file.read_text(encoding="utf-8")]
    assert len(found) == 1, f"expected once, found {len(found)} times: {mutant.old!r}"
    assert found[0].read_text(encoding="utf-8").count(mutant.old) == 1, mutant.old
    return found[0]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_the_source(name: str) -> None:
    home(MUTANTS[name], ROOT)
    for test in MUTANTS[name].tests:
        assert (ROOT / test).is_file(), test


def test_there_are_sixty() -> None:
    assert len(mutants.MUTANTS) >= 30
    assert len(DURABILITY) >= 25
    assert len(MUTANTS) == len(mutants.MUTANTS) + len(DURABILITY)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of everything that the tests of the mutants need."""
    copy = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT)
    shutil.copy(ROOT / "pyproject.toml", copy)
    yield copy
    shutil.rmtree(copy)


def run(tree: Path, tests: tuple[str, ...]) -> int:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    # Two mutants of a line may have its length and its second: what one was compiled to must not run as the other.
    surroundings = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(words, cwd=tree, env=surroundings, capture_output=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        # What waits for ever does not pass.
        return FAILED
    return done.returncode


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_dies(name: str, tree: Path) -> None:
    mutant = MUTANTS[name]
    file = home(mutant, tree)
    source = file.read_text(encoding="utf-8")
    file.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        assert run(tree, mutant.tests) == FAILED
    finally:
        file.write_text(source, encoding="utf-8")
    print(f"{name}: dead")


@pytest.mark.slow
def test_the_copy_itself_passes(tree: Path) -> None:
    """Otherwise everything would look dead."""
    tests = sorted({test for mutant in MUTANTS.values() for test in mutant.tests})
    assert run(tree, tuple(tests)) == 0
