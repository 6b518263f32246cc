"""Where a suite's chance comes from, how much of it is run, and what is said of it.

Each schedule has a number of its own under the seed, so that `SEED=7 make test-endurance ARGS="-k kills"` repeats them
all, and one that failed is run alone by `SEED=7 ONLY=31`. Chance decides what is done and when; which thread or process
is faster stays with the machine.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator

SEED = int(os.environ.get("SEED", "20261119"))


def schedules(subject: str, *, first: int = 0, count: int) -> Iterator[tuple[int, random.Random]]:
    """The number and the chance of each schedule; progress is printed as they pass."""
    numbers = range(first, first + count)
    if only := os.environ.get("ONLY"):
        numbers = range(max(first, int(only)), min(first + count, int(only) + 1))
    began = time.monotonic()
    for number in numbers:
        # Of one that fails, the last line names the number.
        say(
            f"{subject} {number} of {first} to {first + count - 1}, seed {SEED}, after {time.monotonic() - began:.0f} s"
        )
        yield number, random.Random(f"{SEED} {subject} {number}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
