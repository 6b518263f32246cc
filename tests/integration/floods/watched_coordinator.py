"""A coordinator that notes whose call waits and whose is taken up: FOLDER NOTES. A test's entry point, shipped nowhere.

The process is the production one; its turns are told to write each event down, in the order in which it happened.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from coordinator.serving import serve
from protos.turns import Turns
from wardround.cli.terminal.console import start_log


def main(path: Path, notes: Path) -> None:
    start_log()
    with notes.open("a", encoding="utf-8", buffering=1) as stream:
        serve.Turns = functools.partial(  # type: ignore[misc, assignment]
            Turns, watch=lambda kind, name: stream.write(f"{kind} {name}\n")
        )
        serve.serve(path, announce=print)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
