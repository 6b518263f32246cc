"""kill −9 of the coordinator at each step of a round.

After a restart the round goes on by itself: one charge, one answer, the right number, and an analyst who only
had to wait.
"""

from __future__ import annotations

import pytest

from tests.integration.faulty_coordinator import POINTS
from tests.integration.stage import Federation, eventually, is_about, sites_in, value

# In the middle of the only step that a site waits for; every other point is tried by `make test-all`.
QUICK = ("before_accept_commit",)
CASES = [pytest.param(point, marks=[] if point in QUICK else [pytest.mark.slow]) for point in POINTS]

# How far the plan's round had come, as the coordinator's own chain tells it at the moment of death.
EXPECTED = {
    "before_reserve_commit": [],
    "after_reserve": ["reserved"],
    "before_accept_commit": ["reserved"],
    "before_conclude_commit": ["received", "received", "received", "reserved"],
    "after_conclude": ["answered", "received", "received", "received", "reserved", "settled"],
    "before_settle_commit": ["received", "received", "received", "reserved"],
    "after_settle_commit": ["received", "received", "received", "reserved", "settled"],
    "before_answer_commit": ["received", "received", "received", "reserved", "settled"],
    "after_answer": ["answered", "received", "received", "received", "reserved", "settled"],
}


@pytest.fixture
def running(federation: Federation) -> Federation:
    """The shared federation, with its coordinator back in case a test before this one failed."""
    if "consortium" not in federation.running:
        federation.start_coordinator()
    return federation


@pytest.mark.parametrize("point", CASES)
def test_a_coordinator_killed_at_any_step_continues_the_round_under_one_charge(running: Federation, point: str) -> None:
    running.stop("consortium")
    before = int(str(running.rows("consortium", "SELECT max(sequence) FROM entries")[0][0]))
    running.start_coordinator(failpoint=point)
    asked = running.asking(fresh=True)
    running.await_death("consortium")
    kinds = sorted(
        str(row[0])
        for row in running.rows("consortium", "SELECT kind FROM entries WHERE sequence > ? ORDER BY kind", before)
    )
    assert kinds == EXPECTED.get(point, kinds)
    running.start_coordinator()
    answer = asked.answer()
    assert is_about(answer, 111), value(answer)
    assert sites_in(answer) == {"answered": ["one", "three", "two"], "refused": {}, "missing": [], "left_out": []}
    running.check_charged_once(str(answer["plan_id"]))
    undelivered = "SELECT plan_id FROM releases EXCEPT SELECT plan_id FROM receipts"
    for name in running.sites:
        eventually(lambda name=name: not running.rows(name, undelivered), what=f"{name} has its receipt")  # type: ignore[misc]
    running.check_ledgers()


@pytest.mark.slow
def test_a_round_goes_on_after_a_crash_even_when_nobody_asks_again(running: Federation) -> None:
    running.stop("consortium")
    # Every site has its receipt by then: nothing but the restart itself can take the round up again.
    running.start_coordinator(failpoint="after_settle_commit")
    asked = running.asking("SELECT COUNT(*) FROM encounters WHERE age < 40")
    running.await_death("consortium")
    (settled,) = running.rows("consortium", "SELECT plan_id FROM rounds WHERE state = 'settled'")
    running.start_coordinator()
    eventually(
        lambda: running.rows("consortium", "SELECT 1 FROM answers WHERE plan_id = ?", *settled),
        what="the round is answered without a new question",
    )
    assert asked.answer()["plan_id"] == settled[0]
