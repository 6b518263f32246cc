"""When the coordinator last answered the agent, and what the agent does since: a hint for `wardround status`.

A file beside the ledger. It decides nothing and never leaves.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wardround.federation.errors import FederationError
from wardround.federation.private_files import write_private

CALLED_FILE = "called"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Writes the hint of the site in one folder."""

    folder: Path

    def __call__(self, doing: str) -> None:
        # Without room it grows old, and whoever looks sees that.
        with suppress(FederationError):
            write_private(self.folder / CALLED_FILE, f"{doing}\n".encode())


@dataclass(frozen=True, slots=True)
class LastCall:
    """When the coordinator last answered, in seconds since 1970, and what the agent does since."""

    date: float
    doing: str


def last_call(folder: Path) -> LastCall | None:
    """What the hint says; None where there is none that can be read."""
    place = folder / CALLED_FILE
    try:
        return LastCall(place.stat().st_mtime, place.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None
