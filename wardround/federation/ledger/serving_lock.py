"""The lock of the one process that serves a folder, and whether somebody holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from wardround.federation.errors import Refused
from wardround.federation.file_faults import file_fault
from wardround.federation.private_files import open_lock

_LOOKS, _LOOK_SECONDS = 5, 0.02


@contextlib.contextmanager
def serving_lock(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; `Refused` when another process serves it.

    Commands beside a serving process do not take it: the database's own locks keep them apart.
    """
    try:
        descriptor = open_lock(folder / "serving")
    except OSError as error:
        raise file_fault(str(folder), error, done="served") from None
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    """Take the lock; whoever only looks whether somebody serves holds it for no longer than a moment."""
    for _ in range(_LOOKS):
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOOK_SECONDS)
    raise Refused(f"another process is serving {folder}; stop it first.")


def is_served(folder: Path) -> bool:
    """Whether a process serves `folder` now."""
    try:
        descriptor = os.open(folder / "serving", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise file_fault(str(folder / "serving"), error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
