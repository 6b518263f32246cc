"""A file that is nowhere but in memory, and that nobody but this process can open."""

from __future__ import annotations

import os
import weakref


class MemoryFile:
    """Its memory is free again when nothing refers to it any more.

    Whoever reads it by its path must hold on to it meanwhile: the next file that is opened could have its number.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("wardround")
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def path(self) -> str:
        """Where this process can open it."""
        return f"/proc/self/fd/{self.descriptor}"

    @property
    def held_bytes(self) -> int:
        """The memory that it takes; holes take none."""
        return os.fstat(self.descriptor).st_blocks * 512
