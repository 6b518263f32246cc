"""A bar on standard error for what takes longer than a second: how far it is, for how long, and what it waits for.

It is one row, drawn over and over and taken away at the end. Its text is cut to that row and has no markup, so that
nobody's words can move it or begin a row of their own. rich, which draws it, is loaded when it is first drawn: whoever
is answered at once, or has no terminal, never loads it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from wardround.cli.terminal.console import columns, laid_out, note
from wardround.federation.plain_text import fitted

if TYPE_CHECKING:
    from rich.progress import Progress as Drawn
    from rich.progress import TaskID

AFTER_SECONDS = 1.0
_BAR_COLUMNS = 12
# The bar, the time as in 0:00:12, and a blank before each text.
_TAKEN = _BAR_COLUMNS + 9


class Bar:
    """What is under way, drawn from the first second on until it is closed."""

    def __init__(self, stream: TextIO, text: str) -> None:
        self._stream = stream
        self._text, self._done, self._total = text, 0, 0
        self._drawn: tuple[Drawn, TaskID] | None = None
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self.restart()

    def restart(self) -> None:
        """Take the bar away, so that something else can be written, and draw it again in a second."""
        with self._lock:
            self.close()
            self._timer = threading.Timer(AFTER_SECONDS, self._draw)
            self._timer.daemon = True
            self._timer.start()

    def show(self, text: str, *, done: int = 0, total: int = 0) -> None:
        """So much of a known total is done; without one the bar only moves."""
        with self._lock:
            self._text, self._done, self._total = text, done, total
            if self._drawn is not None:
                bar, task = self._drawn
                bar.update(task, completed=done, total=total or None, text=self._fitted())

    def line(self, text: str) -> None:
        """A line that stays, above the bar."""
        with self._lock:
            if self._drawn is None:
                note(text)
            else:
                from rich.text import Text

                self._drawn[0].console.print(Text(laid_out(text, self._stream)), soft_wrap=True)

    def close(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._drawn is not None:
                self._drawn[0].stop()
                self._drawn = None

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._timer is None:
                return
            console = Console(
                file=self._stream, force_terminal=True, width=columns(self._stream), markup=False, emoji=False
            )
            parts = (BarColumn(_BAR_COLUMNS), TimeElapsedColumn(), TextColumn("{task.fields[text]}", markup=False))
            bar = Progress(*parts, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
            task = bar.add_task("", completed=self._done, total=self._total or None, text=self._fitted())
            # It has been under way since before the bar was.
            bar.tasks[0].start_time = self._began
            self._drawn = (bar, task)
            bar.start()

    def _fitted(self) -> str:
        return fitted(self._text, max((columns(self._stream) or 0) - _TAKEN, 1))


def bar_for(text: str, *, quiet: bool) -> Bar | None:
    """A bar where there is a person to see it: on a terminal that can be redrawn, unless told to be quiet."""
    drawable = columns(sys.stderr) is not None and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return Bar(sys.stderr, text) if drawable and not quiet else None
