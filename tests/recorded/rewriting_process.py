"""A folder of an earlier version that is opened to be served, and whose process dies before any SQL statement.

    python -m tests.recorded.rewriting_process FOLDER PLACE

One child for each statement dies in a copy of FOLDER of its own, PLACE/1, PLACE/2 …; the number of deaths is printed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import coordinator.store.ledger
import site_agent.store.ledger
from coordinator.members.folder import open_folder as open_coordinator
from coordinator.serving.serve import served_ledger
from protos.words import stored_task
from site_agent.serving.folder import open_folder as open_site
from site_agent.store.ledger import SiteLedger
from tests.federation.ledger.dying import Dying


def rewritten(folder: Path) -> None:
    """What whoever serves the folder does before anything else."""
    if (folder / "coordinator.toml").exists():
        served_ledger(open_coordinator(folder)).close()
        return
    place = open_site(folder)
    ledger = SiteLedger(place.ledger, identity=place.identity())
    ledger.rewrite_messages(stored_task)
    ledger.attest_rows()
    ledger.close()


def die_before_each_statement(folder: Path, root: Path) -> int:
    """The number of deaths; the last child lives."""
    coordinator.store.ledger.Database = Dying  # type: ignore[misc]
    site_agent.store.ledger.Database = Dying  # type: ignore[misc]
    for number in range(1, 1000):
        copy = shutil.copytree(folder, root / str(number))
        pid = os.fork()
        if pid == 0:
            try:
                Dying.left = number
                rewritten(copy)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            return number - 1
    return -1


if __name__ == "__main__":
    print(die_before_each_statement(Path(sys.argv[1]), Path(sys.argv[2])))
