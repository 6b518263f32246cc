"""A file system of a megabyte, made by the kernel for one process and gone with it: full is really full.

It needs no root, but a kernel that lets users have namespaces of their own; `absent` says where there is none.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_MOUNT = 'mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" && shift && exec "$@"'
_SECONDS = 300.0


def run_on(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command for which `folder` is the small disk; nobody else sees it."""
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", str(folder), *words]
    return subprocess.run(inside, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS)


def run_script(folder: Path, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tests' scripts so; its first word is the folder."""
    return run_on(folder, sys.executable, "-m", ".".join(script.relative_to(ROOT).with_suffix("").parts), *words)


@functools.cache
def absent(folder: Path = Path("/tmp")) -> str:
    """Why there is no small disk here; empty where there is."""
    try:
        found = run_on(folder, "true")
    except FileNotFoundError:
        return "there is no unshare, which would make a small disk"
    return "" if found.returncode == 0 else "this kernel lets no user mount a small disk"


class Ballast:
    """A file that takes all the room there is, and gives it back."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def fill(self) -> None:
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            for size in (65536, 4096, 1):
                while _wrote(descriptor, size):
                    pass
        finally:
            os.close(descriptor)

    def free(self) -> None:
        self._path.unlink(missing_ok=True)


def _wrote(descriptor: int, size: int) -> bool:
    try:
        return os.write(descriptor, bytes(size)) == size
    except OSError:
        return False
