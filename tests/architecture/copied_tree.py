"""A copy of what is shipped, changed in a few lines, and Python run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.architecture.rules import ROOT, SHIPPED


def changed_copy(
    folder: Path, *, added: Mapping[str, str], lines: Iterable[tuple[str, str, str]], beside: Iterable[str] = ()
) -> Path:
    """The tree in `folder`, with new files, and in each named file a new text for one that is there once."""
    for name in (*SHIPPED, "tools", *beside):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, text in added.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, old, new in lines:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, old
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    run(folder, "-m", "tools.generate_protos")
    return folder


def run(folder: Path, *arguments: str) -> str:
    """What Python prints in the copy: nothing of it may come from the tree it was copied from."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
