"""This version of the coordinator and another one, asked the same questions by coverage.py."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from _coverage_combining import Grouped, Keyed, Searched, Shown


class Versions:
    """This version and, where a checkout of one is named, the other in a process of its own."""

    def __init__(self, other: Path | None) -> None:
        self._other = None if other is None else _started(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Without further questions it ends by itself.
        if self._other is not None:
            self._other.communicate()

    def answers(self, question: Grouped | Keyed | Searched) -> tuple[Shown, Shown | None]:
        """What either shows; the other works at the same time."""
        if self._other is None or self._other.stdin is None or self._other.stdout is None:
            return question.shown(), None
        try:
            pickle.dump(question, self._other.stdin)
            self._other.stdin.flush()
            own = question.shown()
            # From a process that was started here, over its own pipe.
            return own, pickle.load(self._other.stdout)  # noqa: S301
        except (EOFError, BrokenPipeError):
            sys.exit("the other version could not answer; what it said is above.")


def _started(other: Path) -> subprocess.Popen[bytes]:
    if not (other / "coordinator" / "combining").is_dir():
        sys.exit(f"{other} is no checkout of wardround; make one with: git worktree add PATH COMMIT")
    program = Path(__file__).with_name("_coverage_combining.py")
    # Its own code comes before whatever is installed.
    path = {**os.environ, "PYTHONPATH": str(other.resolve())}
    return subprocess.Popen([sys.executable, program], env=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
