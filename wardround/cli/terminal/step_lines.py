"""How far a command is that counts its steps, or can only name them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from wardround.cli.terminal.bar import bar_for
from wardround.cli.terminal.console import note

EVERY_SECONDS = 10.0


class Steps:
    """A bar on a terminal; elsewhere a line for each step that has a name, and now and then for one that is counted."""

    def __init__(self, text: str, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet, self._clock = quiet, clock
        self._told = clock()
        self._named = text
        self._bar = bar_for(text, quiet=quiet)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def count(self, text: str, *, done: int = 0, total: int = 0) -> None:
        """One of many steps, which is no line of its own."""
        if self._bar is not None:
            self._bar.show(text, done=done, total=total)
        elif not self._quiet and self._clock() - self._told >= EVERY_SECONDS:
            self._told = self._clock()
            note(text)

    def pages(self, left: int, total: int) -> None:
        """How much of a file is copied."""
        self.count(f"{self._named}: {total - left} of {total} pages", done=total - left, total=total)

    def thousands(self, rows: int) -> None:
        """How many rows so far, in thousands: for the screen of whoever owns them, and in no line that stays."""
        if self._bar is not None:
            self._bar.show(f"{self._named}, {rows // 1000},000 so far")

    def make_room(self) -> None:
        """What is written next may go to the same terminal."""
        if self._bar is not None and sys.stdout.isatty():
            self._bar.restart()

    def name(self, text: str) -> None:
        """A step that is worth a line."""
        self._named = text
        if self._bar is not None:
            self._bar.show(text)
        elif not self._quiet:
            note(text)
