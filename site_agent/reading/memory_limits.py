"""What one question may use of the hospital's machine: the memory that site.toml states, and how it is shared out.

Inside it is everything that the agent's process holds while it answers one question: the interpreter and its
libraries, an embedded database, and our own arrays. What a PostgreSQL server holds is the server's own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

MEMORY_MEBIBYTES = 4096
LEAST_MEBIBYTES = 1024
_ITSELF_MEBIBYTES = 256
_KIBI, _MEBI = 2**10, 2**20
_RECORD_BYTES = 64
_THREAD_MEBIBYTES = 512


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory and threads of one question; nothing that a row holds makes it take more."""

    threads: int = max(os.cpu_count() or 1, 1)
    memory_mebibytes: int = MEMORY_MEBIBYTES

    @property
    def working_bytes(self) -> int:
        """What is left beside the process itself, before it has answered anything."""
        return max(self.memory_mebibytes - _ITSELF_MEBIBYTES, self.memory_mebibytes // 2) * _MEBI

    @property
    def database_kibibytes(self) -> int:
        """What an embedded database may take: a half of it."""
        return max(self.working_bytes // 2 // _KIBI, 1)

    @property
    def array_bytes(self) -> int:
        """What records may take beside a database: a quarter."""
        return self.working_bytes // 4

    @property
    def question_bytes(self) -> int:
        """What a question may take beside rows: the last quarter."""
        return self.working_bytes // 4

    @property
    def own_bytes(self) -> int:
        """What records may take where no database is embedded."""
        return self.working_bytes // 2

    @property
    def keys_bytes(self) -> int:
        """What the keys of an open category may take: the other half, because there are no records beside them."""
        return self.working_bytes // 2

    @property
    def training_bytes(self) -> int:
        """What the rows of a training may take beside the database and the batch that they come in."""
        return self.working_bytes * 3 // 8

    @property
    def records(self) -> int:
        """How many records fit while a choice is made among them."""
        return max(self.array_bytes // _RECORD_BYTES, 1)

    @property
    def database_threads(self) -> int:
        """Each thread of a database has buffers of its own: no more of them than there is memory for."""
        return max(min(self.threads, self.memory_mebibytes // _THREAD_MEBIBYTES), 1)
