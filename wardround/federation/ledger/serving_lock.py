"""One serving process for each folder, held by the operating system, so that a crash releases it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken, Refused
from wardround.federation.private_files import open_lock


@contextlib.contextmanager
def serving_lock(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; `Refused` when another process serves it.

    Commands beside a serving process do not take it: the database's own locks keep them apart.
    """
    try:
        descriptor = open_lock(folder / "serving")
    except OSError as error:
        raise ConfigurationMistaken(f"{folder} cannot be served: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"another process is serving {folder}; stop it first.") from None
        yield
    finally:
        os.close(descriptor)
