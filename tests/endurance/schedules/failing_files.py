"""Errors of the system at a ledger's files: a library that a role is started with, and the plan that both map."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import shutil
import struct
import subprocess
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_PLAN = struct.Struct("5i")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Call(IntFlag):
    """System calls, as the library groups them."""

    OPEN = 1
    WRITE = 2
    SYNC = 4
    UNLINK = 8


@dataclass(frozen=True)
class Failing:
    """Which calls fail with what, after how many that do not, and how often."""

    calls: Call
    error: int
    skip: int
    times: int

    def __str__(self) -> str:
        return f"{self.calls.name} fails {self.times} times with {errno.errorcode[self.error]} after {self.skip}"

    @property
    def passes(self) -> bool:
        """Whether the process that meets it has to go on by itself."""
        return self.error in (errno.ENOSPC, errno.EMFILE)


def drawn(chance: random.Random) -> Failing:
    """Any of what a disk or a full process says to a ledger."""
    error = chance.choice([errno.EIO, errno.ENOSPC, errno.EMFILE])
    calls = {
        errno.EIO: [Call.WRITE, Call.SYNC, Call.UNLINK, Call.WRITE | Call.SYNC | Call.UNLINK],
        errno.ENOSPC: [Call.WRITE, Call.OPEN, Call.WRITE | Call.OPEN],
        errno.EMFILE: [Call.OPEN],
    }[error]
    return Failing(chance.choice(calls), error, chance.choice([0, 1, 2, 4, 8, 16]), chance.choice([1, 1, 2, 5, 10**6]))


def library(folder: Path) -> Path:
    """The library, made now; whoever has no compiler asks `COMPILER` before."""
    made = folder / "failing_files.so"
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


class FailingFiles:
    """The plan of one role."""

    def __init__(self, folder: Path) -> None:
        self.file = folder.with_name(f"{folder.name}.plan")
        self.file.write_bytes(bytes(mmap.PAGESIZE))
        with self.file.open("r+b") as stream:
            self._mapped = mmap.mmap(stream.fileno(), 0)

    def begin(self, failing: Failing) -> None:
        # The calls last: they are what arms it.
        _PLAN.pack_into(self._mapped, 0, 0, failing.skip, failing.times, failing.error, 0)
        struct.pack_into("i", self._mapped, 0, int(failing.calls))

    @property
    def met(self) -> int:
        """How many calls have failed."""
        return int(_PLAN.unpack_from(self._mapped, 0)[4])

    def end(self) -> int:
        """No more failures; how many there were."""
        struct.pack_into("i", self._mapped, 0, 0)
        return self.met


def let_fail(folder: Path) -> None:
    """Let this process, which was started with the library, obey the plan of its folder if there is one."""
    if (plan := folder.with_name(f"{folder.name}.plan")).exists():
        obeys: int = ctypes.CDLL(None).begin_failing(os.fsencode(plan), os.fsencode(folder))
        assert obeys == 0, "the library does not find its plan"
