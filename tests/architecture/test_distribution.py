"""What a hospital installs: the wheel is complete, and the containers hold locked wheels and no rights."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT, SHIPPED

CONTAINERS = sorted((ROOT / "deploy").glob("Containerfile.*"))


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_every_file_of_every_package(wheel_names: set[str]) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for package in SHIPPED
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel_names if ".dist-info/" not in name} == expected


def test_every_package_in_the_wheel_is_typed(wheel_names: set[str]) -> None:
    assert {f"{package}/py.typed" for package in SHIPPED} <= wheel_names


def test_the_wheel_holds_the_licence(wheel_names: set[str]) -> None:
    assert [name for name in wheel_names if name.endswith("licenses/LICENSE")] != []


def test_both_roles_have_a_container() -> None:
    assert [path.suffix for path in CONTAINERS] == [".coordinator", ".site"]


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.suffix[1:])
def test_a_container_installs_only_what_is_locked(path: Path) -> None:
    installs = [line for line in path.read_text("utf-8").splitlines() if "pip install" in line]
    loose = [
        line
        for line in installs
        if "--require-hashes --only-binary :all:" not in line and "--no-deps --no-index" not in line
    ]
    assert installs != []
    assert loose == []


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.suffix[1:])
def test_a_container_runs_without_rights(path: Path) -> None:
    last_stage = path.read_text("utf-8").rpartition("\nFROM ")[2]
    users = [line.split()[1] for line in last_stage.splitlines() if line.startswith("USER ")]
    assert users == ["10001:10001"]


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.suffix[1:])
def test_a_container_copies_nothing_but_the_source_and_its_locks(path: Path) -> None:
    copied = {
        name
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    role = path.suffix[1:]
    assert copied == {
        *SHIPPED,
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "deploy/build.lock",
        f"deploy/{role}.lock",
    }
