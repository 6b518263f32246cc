"""What the system's word about a file means to whoever must act on it: wait and try again, or correct something.

A disk without room and a process without descriptors pass: nothing is wrong with the file, or with who asked for it.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from wardround.federation.errors import ConfigurationMistaken, FederationError, Unavailable

_ROOM = "there is no room on the disk; make room, then try again."
_FILES = "too many files are open; close some, or raise the limit on open files (ulimit -n), then try again."
_PASSING: Mapping[int, str] = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: "there is no memory left; free some, then try again.",
}
PASSING = frozenset(_PASSING)
"""The numbers of errors that somebody who waits may not meet again."""


def file_fault(what: str, error: OSError, *, done: str = "read") -> FederationError:
    """The error to raise for one of the system's: `what` could not be `done`."""
    match error:
        case OSError(errno=int(number)) if number in _PASSING:
            return Unavailable(f"{what} cannot be {done} now: {_PASSING[number]}")
        case FileNotFoundError() if done == "read":
            return ConfigurationMistaken(f"{what} does not exist; name an existing file.")
        case IsADirectoryError() if done == "read":
            return ConfigurationMistaken(f"{what} is a folder; name a file.")
        case PermissionError() if done == "read":
            return ConfigurationMistaken(
                f"{what} cannot be read with this user's permissions; correct them, or be the user who owns it."
            )
        case _:
            why = error.strerror or "the system does not say why"
            return ConfigurationMistaken(f"{what} cannot be {done}: {why}.")
