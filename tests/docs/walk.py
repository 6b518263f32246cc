"""Following the pages as a newcomer would: one folder, plain processes, in the order of the pages.

In a console block

    $ command               is run by bash and must leave with 0
    $ command   # exit 3    must leave with 3
    $ command &             keeps running until the walk ends, and must then stop cleanly on SIGTERM
    text                    after a command must be printed by it, line by line and in this order

A command that only looks is given again until it shows what it should: a reader looks again, too, when another
process has not come so far.

In a line of text `…` stands for anything, a line that is only `…` for any lines, blanks for any blanks; in a line with
`±` or `[` every number stands for any number, because answers are noised.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import ROOT, Block, blocks

PATIENCE_SECONDS = 300.0
_LOOKING_SECONDS = 60.0
_ASK_AGAIN = 3
_EXIT = re.compile(r"#\s*exit (\d)\s*$")
_LOOKS = re.compile(r"wardround (?:site (?:check|requests|history)|budget|describe|ledger verify)\b")
_NUMBER = re.compile(r"(?:\\-)?\d+(?:\\\.\d+)?")


@dataclass
class Walk:
    """One folder and the processes started in it; programs in `programs` are found before those on the PATH."""

    folder: Path
    programs: Path | None = None
    running: list[tuple[Block, str, subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, _, process, _ in reversed(self.running):
            process.send_signal(signal.SIGTERM)
        codes = []
        for _, command, process, log in self.running:
            try:
                codes.append((process.wait(timeout=PATIENCE_SECONDS), command, log))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append((process.wait(), command, log))
        if error is None:
            for code, command, log in codes:
                assert code == 0, f"`{command}` ended with {code}:\n{log.read_text('utf-8')}"

    def follow(self, page: Path, *, until_the_first_command: bool = False) -> None:
        """Do everything the page says, or only what prepares its first command."""
        for block in blocks(page):
            match block.language:
                case "console" if until_the_first_command:
                    return
                case "toml" | "python" if block.title:
                    (self.folder / block.title).write_text(block.text, encoding="utf-8")
                case "python":
                    self._finish(block, ["python", "-W", "error", "-c", block.text], block.place, code=0)
                case "console":
                    for command, shown in session(block):
                        self._command(block, command, shown)
                case _:
                    pass

    def _command(self, block: Block, command: str, shown: list[str]) -> None:
        if command.endswith(" &"):
            self._start(block, command.removesuffix(" &"), shown)
            return
        code = int(found[1]) if (found := _EXIT.search(command)) else 0
        until = time.monotonic() + _LOOKING_SECONDS
        while True:
            printed = self._finish(block, ["bash", "-euo", "pipefail", "-c", command], command, code=code)
            fault = difference(shown, printed)
            if fault is None or not _LOOKS.match(command) or time.monotonic() > until:
                break
            time.sleep(0.5)
        assert fault is None, f"{block.place}: `{command}` does not print {fault!r}; it prints:\n{printed}"

    def _finish(self, block: Block, command: list[str], title: str, *, code: int) -> str:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            # A reader who is told to ask again later does so: a site needs a moment to hear of its steward's yes.
            if done.returncode == code or done.returncode != _ASK_AGAIN or time.monotonic() > until:
                break
            time.sleep(0.5)
        printed = done.stdout.decode()
        assert "leaked" not in printed, f"{block.place}: `{title}` ends with a library's complaint:\n{printed}"
        assert done.returncode == code, f"{block.place}: `{title}` left with {done.returncode}:\n{printed}"
        return printed

    def _start(self, block: Block, command: str, shown: list[str]) -> None:
        log = self.folder / f"background-{len(self.running)}.log"
        with log.open("wb") as stream:
            # `exec`, so that the signal reaches the command and not the shell.
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self._environment(),
                stdout=stream,
                stderr=stream,
            )
        self.running.append((block, command, process, log))
        until = time.monotonic() + PATIENCE_SECONDS
        while (fault := difference(shown, log.read_text("utf-8"))) is not None:
            assert process.poll() is None, f"{block.place}: `{command}` ended:\n{log.read_text('utf-8')}"
            assert time.monotonic() < until, f"{block.place}: `{command}` does not print {fault!r}"
            time.sleep(0.05)

    def _environment(self) -> dict[str, str]:
        found = environment()
        return found if self.programs is None else found | {"PATH": f"{self.programs}{os.pathsep}{found['PATH']}"}


def environment() -> dict[str, str]:
    """The reader's environment: the project's commands on the PATH, and nothing of a proxy."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "COLUMNS": "120",
    }


def session(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with what it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ ").strip(), []))
        elif line.strip():
            assert found, f"{block.place}: output before the first command"
            found[-1][1].append(line)
    return found


def difference(shown: list[str], printed: str) -> str | None:
    """The first shown line that was not printed after the ones before it."""
    lines = iter(printed.splitlines())
    for line in shown:
        if line.strip() == "…":
            continue
        pattern = _pattern(line)
        if not any(pattern.fullmatch(candidate.strip()) for candidate in lines):
            return line
    return None


def _pattern(line: str) -> re.Pattern[str]:
    # A number that noise decides may stand alone, where it has no interval.
    noised = "±" in line or "[" in line or line.endswith(" none")
    words = [re.escape(word).replace("…", ".*") for word in line.split()]
    if noised:
        words = [_NUMBER.sub(r"-?\\d+(?:\\.\\d+)?", word) for word in words]
    if all(set(word) <= {"─"} for word in line.split()):
        words = ["─+"]
    return re.compile(r"\s+".join(words))
