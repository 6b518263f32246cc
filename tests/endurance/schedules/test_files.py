"""System calls on the ledgers' files that fail: EIO, ENOSPC and EMFILE where a role opens, writes, syncs and removes.

A full disk and a full process pass: whoever met them goes on by itself. After any other error a role ends, is started
again, and decides from what is on the disk. `make test-endurance ARGS="-k files"` runs two hundred schedules.
"""

from __future__ import annotations

import errno
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.endurance.schedules.failing_files import COMPILER, Call, Failing, drawn, library
from tests.endurance.schedules.forked import COORDINATOR, Forked, forked
from tests.endurance.seeds import say, schedules
from tests.integration.stage import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to make the library that fails calls")

MISTAKEN, BROKEN = 2, 4
SERVES = " serv"


def planned_for(federation: Forked, chance: random.Random) -> dict[str, Failing]:
    """One to three roles whose files fail."""
    return {name: drawn(chance) for name in chance.sample(federation.roles, k=chance.randint(1, 3))}


def run(federation: Forked, chance: random.Random, planned: dict[str, Failing], *, seconds: float) -> Counter[str]:
    """One schedule, of so many seconds unless every failure was met before; how often which was, and who ended."""
    for name, failing in planned.items():
        federation.failing[name].begin(failing)
    asked = federation.asking(chance)
    until = time.monotonic() + seconds
    ended: Counter[str] = Counter()
    while time.monotonic() < until and any(federation.failing[name].met < each.times for name, each in planned.items()):
        ended += again(federation, planned)
        time.sleep(0.05)
    failed: Counter[str] = Counter()
    for name, failing in planned.items():
        failed[f"{failing.calls.name} {errno.errorcode[failing.error]}"] += federation.failing[name].end()
    until = time.monotonic() + PATIENCE_SECONDS
    while not all(question.ends(within_seconds=0.05) for question in asked):
        assert time.monotonic() < until, f"no progress once faults stop: {planned}"
        ended += again(federation, planned)
    federation.collect(asked)
    ended += again(federation, planned)
    return failed + ended


def again(federation: Forked, planned: dict[str, Failing]) -> Counter[str]:
    """Start whoever ended, which nobody may do without a reason."""
    ended = federation.start_again()
    for name, code in ended.items():
        failing = planned.get(name)
        assert failing is not None, f"{name} ended with {code} although its files did not fail\n{federation.log(name)}"
        assert not failing.passes, f"{name} ended with {code}: {failing}\n{federation.log(name)}"
        # Before it serves, it says which of its notes it cannot write.
        unwritten = code == MISTAKEN and "Input/output error" in federation.log(name)
        assert code == BROKEN or unwritten, f"{name} ended with {code}: {failing}\n{federation.log(name)}"
    return Counter(f"{name} ended" for name in ended)


def run_all(folder: Path, *, first: int = 0, count: int) -> Counter[str]:
    found: Counter[str] = Counter()
    folder.mkdir()
    with forked(folder / "federation", made=library(folder)) as federation:
        for _, chance in schedules("files", first=first, count=count):
            found += run(federation, chance, planned_for(federation, chance), seconds=chance.uniform(0.2, 2.0))
            federation.oracle.check()
        federation.stop()
        federation.oracle.check()
    say(f"  {dict(found)}")
    return found


def test_a_coordinator_that_cannot_write_a_site_without_room_and_one_that_is_killed(tmp_path: Path) -> None:
    tmp_path.joinpath("all").mkdir()
    planned = {
        COORDINATOR: Failing(Call.WRITE, errno.EIO, skip=1, times=1),
        "two": Failing(Call.WRITE, errno.ENOSPC, skip=1, times=1),
    }
    with forked(tmp_path / "all" / "federation", made=library(tmp_path)) as federation:
        for name in planned:
            eventually(lambda name=name: SERVES in federation.log(name), what=f"{name} serves")  # type: ignore[misc]
        found = run(federation, random.Random(1), planned, seconds=PATIENCE_SECONDS)
        federation.kill("three")
        federation.start("three")
        federation.stop()
        federation.oracle.check()
    assert found == {"WRITE EIO": 1, "WRITE ENOSPC": 1, f"{COORDINATOR} ended": 1}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4), ids="part{}".format)
def test_schedules_of_failing_files_break_no_invariant(tmp_path: Path, part: int) -> None:
    run_all(tmp_path / "all", first=50 * part, count=50)
