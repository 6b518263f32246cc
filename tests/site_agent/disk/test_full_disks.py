"""A site whose disk is full waits, says so once, and goes on: nothing is lost, read twice, charged twice or closed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from site_agent.serving.agent import FULL
from tests.site_agent.disk import agent_on_small_disk, snapshot_on_small_disk
from tests.site_agent.disk.small_disk import absent, run_script

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "there is a small disk")

# What reaches the coordinator in the end, how often rows are read, and what was charged.
MOMENTS = {
    "start": (["Released"], 1, 1),
    "charge": (["Released"], 1, 1),
    "keep": (["Released"], 1, 1),
    "receipt": (["Released"], 1, 1),
    "hold": (["Pending"], 0, 0),
    "refuse": (["Declined"], 0, 0),
    "close": (["Failed"], 1, 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_site_waits_for_room_wherever_it_writes(moment: str, tmp_path: Path) -> None:
    done = run_script(tmp_path, Path(agent_on_small_disk.__file__), str(tmp_path), moment)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    submitted, reads, charges = MOMENTS[moment]
    if moment == "receipt":
        # The same bytes again and again, until the receipt could be kept.
        assert len(seen["submitted"]) > 1
        assert set(seen["submitted"]) == {"Released"}
    else:
        assert seen["submitted"] == submitted
    assert seen["same"]
    assert (seen["reads"], seen["charges"], seen["owed"]) == (reads, charges, 0)
    assert seen["closed"] == (["visits"] if moment == "close" else [])
    assert seen["waited"]
    again = [] if moment == "start" else ["there is room again; questions are answered"]
    assert seen["lines"] == [FULL, *again]
    assert seen["problems"] == []


def test_a_snapshot_that_finds_no_room_says_so_leaves_none_of_it_and_the_earlier_one(tmp_path: Path) -> None:
    done = run_script(tmp_path, Path(snapshot_on_small_disk.__file__), str(tmp_path))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    says = "cannot be written now: there is no room on the disk; make room, then try again."
    assert seen["error"] == ["Unavailable", f"The snapshot of the table 'visits' {says}"]
    assert seen["used_before"] == seen["used_after"], "what was written of it is gone"
    assert seen["counted"] == [[3 * 64]], "the earlier snapshot answers"
