"""A coordinator that dies: reserves a training's rounds and is killed before any SQL statement.

    python -m tests.coordinator.store.reserving_process FOLDER

One child dies before each statement of asking two rounds, in a folder of its own; the number of deaths is printed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.coordinator.hospitals import ANALYST, World, oracle
from tests.coordinator.rounds.test_trainings import step
from tests.federation.ledger.dying import Dying


def reserve(world: World) -> None:
    """What an analyst's two calls do, whether or not they were made before."""
    for turn in (1, 0):
        world.coordinator.ask(ANALYST, step(turn))


def die_before_each_statement(root: Path) -> int:
    """One child for each statement; the number of deaths."""
    import coordinator.store.ledger

    coordinator.store.ledger.Database = Dying  # type: ignore[misc]
    for number in range(1, 1000):
        folder = root / str(number)
        folder.mkdir(parents=True)
        pid = os.fork()
        if pid == 0:
            try:
                world = oracle(folder)
                Dying.left = number
                reserve(world)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            return number - 1
    return -1


if __name__ == "__main__":
    print(die_before_each_statement(Path(sys.argv[1])))
