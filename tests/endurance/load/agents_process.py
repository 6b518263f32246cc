"""Agents of many folders in one process, each with its own ledger, key and channel: agents_process FOLDER...

A test's entry point, shipped nowhere. It serves until SIGTERM, and prints a line once all of them do.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tests.endurance.in_process import ServedSite
from wardround.cli.terminal.console import start_log


def main(folders: list[str]) -> None:
    start_log()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    sites = [ServedSite(Path(folder)) for folder in folders]
    print("serving", flush=True)
    while not stopping.wait(1.0):
        assert all(site.serves for site in sites), "an agent has ended"
    for site in sites:
        site.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
