"""kill −9 of a site between any two steps of the write order.

After a restart by the ordinary command: charged once, one release, the same bytes on both sides, and a round
that ends with the right number.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Make
from tests.integration.faulty_site import POINTS
from tests.integration.stage import Federation, eventually, is_about, sites_in, value

# Paid and nothing read; sent and nothing noted. Every other point is tried by `make test-all`.
QUICK = ("after_spend", "after_submit")
CASES = [pytest.param(point, marks=[] if point in QUICK else [pytest.mark.slow]) for point in POINTS]

# What the site's own ledger holds at the moment of death: charges and releases of the plan, and receipts.
EXPECTED = {
    "after_claim": (0, 0, 0),
    "before_spend_commit": (0, 0, 0),
    "after_spend": (1, 0, 0),
    "after_read": (1, 0, 0),
    "before_keep_commit": (1, 0, 0),
    "after_keep": (1, 1, 0),
    "before_submit": (1, 1, 0),
    "after_submit": (1, 1, 0),
    "before_receipt_commit": (1, 1, 0),
    "after_receipt": (1, 1, 1),
}


@pytest.fixture
def kept(federation: Federation) -> Federation:
    """The shared federation with every ordinary process running."""
    for name in federation.sites:
        if name not in federation.running:
            federation.start_site(name)
    return federation


def holds(federation: Federation, name: str) -> tuple[int, ...]:
    counts = "SELECT (SELECT count(*) FROM charges), (SELECT count(*) FROM releases), (SELECT count(*) FROM receipts)"
    return tuple(int(str(count)) for count in federation.rows(name, counts)[0])


@pytest.mark.parametrize("point", CASES)
def test_a_site_killed_at_any_step_is_charged_once_and_answers_once(kept: Federation, point: str) -> None:
    kept.stop("two")
    before = holds(kept, "two")
    kept.start_site("two", failpoint=point)
    asked = kept.asking(fresh=True)
    kept.await_death("two")
    dead = holds(kept, "two")
    assert tuple(now - then for now, then in zip(dead, before, strict=True)) == EXPECTED[point]
    payloads = kept.rows("two", "SELECT plan_id, payload FROM releases")
    kept.start_site("two")
    answer = asked.answer()
    assert is_about(answer, 111), value(answer)
    assert sites_in(answer) == {"answered": ["one", "three", "two"], "refused": {}, "missing": [], "left_out": []}
    eventually(lambda: len(set(holds(kept, "two"))) == 1, what="every release has its receipt")
    assert set(payloads) <= set(kept.rows("two", "SELECT plan_id, payload FROM releases"))
    kept.check_charged_once(str(answer["plan_id"]))
    kept.check_ledgers()


@pytest.mark.slow
def test_a_site_that_stays_dead_is_reported_missing_and_its_late_release_changes_nothing(
    make_federation: Make,
) -> None:
    federation = make_federation()
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("three")
    federation.start_site("two", failpoint="after_keep")
    asked = federation.asking()
    federation.await_death("two")
    answer = federation.after_the_deadline(
        asked, when=lambda: federation.received() == 2, what="one and three answered"
    )
    assert is_about(answer, 101), value(answer)
    assert sites_in(answer) == {"answered": ["one", "three"], "refused": {}, "missing": ["two"], "left_out": []}
    federation.start_site("two")
    eventually(lambda: federation.rows("two", "SELECT * FROM receipts"), what="the late release has a receipt")
    again = federation.ask()
    assert (again["replayed"], again["estimates"]) == (True, answer["estimates"])
    federation.check_charged_once(str(answer["plan_id"]))
    federation.check_ledgers()


def test_without_noise_the_oracle_is_exact(make_federation: Make) -> None:
    federation = make_federation()
    federation.start_coordinator()
    for name in federation.sites:
        federation.start_site(name, failpoint="zero")
    assert value(federation.ask()) == 111.0
    grouped = federation.ask("SELECT diagnosis, COUNT(*) FROM encounters WHERE age >= 31 GROUP BY diagnosis")
    assert [estimate["value"] for estimate in grouped["estimates"]] == [107.0, 107.0]  # type: ignore[index,union-attr,call-overload]
    federation.check_ledgers()
