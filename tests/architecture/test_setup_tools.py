"""A fresh machine gets exactly what was tested, or one sentence that says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT

LOCK = (ROOT / "requirements.lock").read_text("utf-8")
DOCS_LOCK = (ROOT / "docs" / "requirements.lock").read_text("utf-8")
BASH = shutil.which("bash") or "/bin/bash"


def find_python(path: Path) -> subprocess.CompletedProcess[str]:
    command = [BASH, str(ROOT / "tools" / "find-python")]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def pretend_python(folder: Path, name: str, *, version: str, has_venv: bool) -> None:
    """A Python that tells its version truthfully and has venv or not."""
    major, minor = version.split(".")
    suitable = (3, 11) <= (int(major), int(minor)) <= (3, 14)
    script = f"""#!{BASH}
case "$2" in
    *ensurepip*) exit {0 if has_venv else 1} ;;
    *) echo {version}; exit {0 if suitable else 1} ;;
esac
"""
    (folder / name).write_text(script, "utf-8")
    (folder / name).chmod(0o755)


def test_the_first_suitable_python_is_chosen(tmp_path: Path) -> None:
    pretend_python(tmp_path, "python3", version="3.9", has_venv=True)
    pretend_python(tmp_path, "python3.11", version="3.11", has_venv=False)
    pretend_python(tmp_path, "python3.12", version="3.12", has_venv=True)
    pretend_python(tmp_path, "python3.13", version="3.13", has_venv=True)
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3.12")


def test_a_real_python_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3")


def test_a_python_without_venv_names_the_package_to_install(tmp_path: Path) -> None:
    pretend_python(tmp_path, "python3", version="3.12", has_venv=False)
    answer = find_python(tmp_path)
    assert answer.returncode == 1
    assert "python3.12-venv" in answer.stderr


def test_no_python_says_which_versions_would_do(tmp_path: Path) -> None:
    pretend_python(tmp_path, "python3", version="3.10", has_venv=True)
    answer = find_python(tmp_path)
    assert answer.returncode == 1
    assert "Python 3.11 to 3.14" in answer.stderr


@pytest.mark.parametrize("lock", [LOCK, DOCS_LOCK], ids=["project", "docs"])
def test_every_locked_package_has_one_version_and_hashes(lock: str) -> None:
    entries = [block for block in re.split(r"\n(?=[a-z])", lock) if "==" in block]
    names = [entry.partition("==")[0] for entry in entries]
    assert len(names) == len(set(names)) > 0
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", [LOCK, DOCS_LOCK], ids=["project", "docs"])
def test_the_lock_names_no_index_and_no_path(lock: str) -> None:
    requirements = [line for line in lock.splitlines() if not line.startswith("#")]
    foreign = [line for line in requirements if "/" in line or line.startswith("-")]
    assert foreign == []


def locked(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, flags=re.MULTILINE))


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["dependencies"] + [one for extra in extras for one in project["optional-dependencies"][extra]]
    return {re.match(r"[a-z0-9-]+", requirement)[0] for requirement in wanted} - {"wardround"}  # type: ignore[index]


def test_every_declared_dependency_is_locked() -> None:
    assert declared("analyst", "dev", "duckdb", "flower", "plot", "postgresql") - set(locked(LOCK)) == set()
    assert declared("analyst", "docs", "duckdb", "plot") - set(locked(DOCS_LOCK)) == set()


def test_the_documentation_is_made_with_the_versions_that_were_tested() -> None:
    tested, documented = locked(LOCK), locked(DOCS_LOCK)
    assert {name: documented[name] for name in tested.keys() & documented.keys()} == {
        name: tested[name] for name in tested.keys() & documented.keys()
    }


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_bare_make_lists_every_target() -> None:
    command = ["make", "--no-print-directory"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    assert phony is not None
    assert [line.split()[0] for line in listed.splitlines()] == phony[1].split()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_what_make_runs_keeps_what_it_compiled() -> None:
    command = ["make", "--no-print-directory", "--eval", "probe: ; @echo [$$PYTHONDONTWRITEBYTECODE]", "probe"]
    surroundings = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
