"""A real pseudo-terminal, and an emulator that shows what a person would see on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pyte

from wardround.cli.main import main

PATIENCE_SECONDS = 120.0
END = "\x1b]777;end of what was written\x07"


class Terminal:
    """So many columns and rows; whatever is written to `stream`, or by a process on it, is on the screen."""

    def __init__(self, *, columns: int = 100, rows: int = 60) -> None:
        self.columns, self.lines = columns, rows
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.stream: TextIO = os.fdopen(os.dup(self._slave), "w", encoding="utf-8", newline="\n")
        self._written = b""
        self._ends = 0
        self._closing = threading.Event()
        # Without a reader a writer would wait as soon as the terminal's buffer is full.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._closing.is_set():
            if select.select([self._master], [], [], 0.02)[0]:
                self._written += os.read(self._master, 65536)

    def close(self) -> None:
        self._closing.set()
        self._reader.join()
        self.stream.close()
        os.close(self._slave)
        os.close(self._master)

    def here(self, *words: object) -> int:
        """Run a command of ours to its end in this process, on this terminal."""
        with contextlib.redirect_stdout(self.stream), contextlib.redirect_stderr(self.stream):
            try:
                main([str(word) for word in words])
            except SystemExit as left:
                code = left.code
        assert isinstance(code, int)
        return code

    @contextlib.contextmanager
    def process(self, *words: object, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A command of ours in a process of its own, on this terminal, ended as a service is."""
        command = [sys.executable, "-m", "wardround", *map(str, words)]
        running = subprocess.Popen(command, cwd=folder, stdin=self._slave, stdout=self._slave, stderr=self._slave)
        try:
            yield running
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(PATIENCE_SECONDS)
            finally:
                running.kill()

    def until(self, shown: Callable[[list[str]], object], *, what: str) -> list[str]:
        """The rows of the screen, as soon as they are what they should be."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not shown(rows := self.screen()):
            assert time.monotonic() < end, f"never on the screen: {what}\n" + "\n".join(rows)
            time.sleep(0.02)
        return rows

    def written(self) -> str:
        """All that was written to the terminal before this call, as it was written."""
        # What is written last arrives last; no terminal shows it, and nobody else writes it.
        self.stream.write(END)
        self.stream.flush()
        self._ends += 1
        end = time.monotonic() + PATIENCE_SECONDS
        while (found := self._written).count(END.encode()) < self._ends:
            assert time.monotonic() < end, "the terminal never showed what was written to it"
            time.sleep(0.001)
        return found.replace(END.encode(), b"").decode()

    def screen(self) -> list[str]:
        """What a person sees now: the rows down to the last one that is not empty."""
        screen = pyte.Screen(self.columns, self.lines)
        pyte.Stream(screen).feed(self.written())
        rows = [row.rstrip() for row in screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows


@contextlib.contextmanager
def terminal(*, columns: int = 100, rows: int = 60) -> Iterator[Terminal]:
    found = Terminal(columns=columns, rows=rows)
    try:
        yield found
    finally:
        found.close()
