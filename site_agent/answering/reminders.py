"""What stays wrong for long is said once an hour, not at every attempt: a log that repeats itself is not read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

REMINDER_SECONDS = 3600.0

log = logging.getLogger("wardround.site")


@dataclass(slots=True)
class Reminders:
    """Which lines were said, and when."""

    now_seconds: Callable[[], float] = time.monotonic
    _said: dict[str, float] = field(default_factory=dict, repr=False)

    def say(self, line: str, *, level: int = logging.WARNING) -> None:
        """A line in the log, and not the same one again for an hour."""
        if self.now_seconds() - self._said.get(line, -REMINDER_SECONDS) >= REMINDER_SECONDS:
            self.note(line)
            log.log(level, "%s", line)

    def note(self, line: str) -> None:
        """Take a line as said just now, in other words."""
        self._said[line] = self.now_seconds()

    def forget(self, line: str) -> bool:
        """Say a line anew the next time, because what it is about is over; whether it had been said."""
        return self._said.pop(line, None) is not None
