"""kill −9 of a coordinator, of sites and of analysts at random moments, also while they start again.

`make test-endurance ARGS="-k kills"` runs two hundred schedules.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.endurance.schedules.forked import COORDINATOR, SHARP, Forked, forked
from tests.endurance.seeds import say, schedules
from tests.integration.stage import eventually

ASKING = "SELECT COUNT(DISTINCT patient_id) FROM encounters WHERE sbp < {}"


def run(federation: Forked, chance: random.Random, number: int) -> int:
    """One schedule; how many processes were killed."""
    asked = federation.asking(chance)
    victims = chance.choices([COORDINATOR, *federation.stage.sites], k=chance.randint(1, 3))
    killed = analyst(federation, chance, number) if chance.random() < 0.3 else 0
    for name in victims:
        # A question takes a tenth of a second, and a start a whole one: both are met.
        time.sleep(chance.choice([0.0, chance.uniform(0.0, 0.2), chance.uniform(0.0, 1.0)]))
        federation.kill(name)
        killed += 1
        time.sleep(chance.choice([0.0, chance.uniform(0.0, 0.3)]))
        federation.start(name)
    federation.collect(asked)
    assert federation.start_again() == {}, "a role ended that nobody killed"
    return killed


def analyst(federation: Forked, chance: random.Random, number: int) -> int:
    """An analyst's process is killed, and asks again: the question goes on, under one charge."""
    nursery, log = federation.nursery, federation.stage.folder / f"analyst-{number}.log"
    words = ("ask", log, federation.stage.profile("bob"), ASKING.format(f"{151 + number / 10:.1f}"), SHARP / 2)
    first = nursery.start(*words)
    time.sleep(chance.uniform(0.0, 0.3))
    first.kill()
    killed = int(first.wait() != 0)

    def answered() -> bool:
        return nursery.start(*words).wait() == 0

    eventually(answered, what="the analyst's question is answered")
    answer = json.loads([line for line in log.read_text().splitlines() if line.startswith("{")][-1])
    federation.oracle.note(answer)
    return killed


def run_all(folder: Path, *, first: int = 0, count: int) -> None:
    killed = 0
    with forked(folder) as federation:
        for number, chance in schedules("kills", first=first, count=count):
            killed += run(federation, chance, number)
            federation.oracle.check()
        federation.stop()
        federation.oracle.check()
    say(f"  {killed} processes were killed")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4), ids="part{}".format)
def test_schedules_of_kills_break_no_invariant(tmp_path: Path, part: int) -> None:
    run_all(tmp_path / "federation", first=50 * part, count=50)
