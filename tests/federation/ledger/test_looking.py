"""One look before a task is worked on: what was kept, whether it is paid for, and whether the chain is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.federation.ledger.ledger_bench import Bench, charge, forgotten, plan_id
from wardround.federation.errors import SiteFrozen, UnprovedHead
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import EMPTY, Head
from wardround.federation.trust.identity import Identity


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "site")


def test_a_look_says_what_was_kept_and_what_is_paid_for(bench: Bench) -> None:
    assert bench.ledger.look(plan_id("one"), head=EMPTY) == (None, False)
    bench.ledger.spend(charge("one"), head=EMPTY)
    assert bench.ledger.look(plan_id("one"), head=bench.ledger.head()) == (None, True)
    kept = bench.ledger.keep(bench.release("one"))
    # What was kept is sent again, whatever was paid.
    assert bench.ledger.look(plan_id("one"), head=bench.ledger.head()) == (kept, False)
    assert bench.ledger.look(plan_id("two"), head=bench.ledger.head()) == (None, False)


def test_a_look_shows_a_refusal_too(bench: Bench) -> None:
    refusal = bench.ledger.refuse(plan_id("one"), RefusalReason.PLAN)
    assert bench.ledger.look(plan_id("one"), head=EMPTY) == (refusal, False)


@pytest.mark.parametrize("head", [Head(1, "f" * 64), Head(99, "0" * 64), Head(-1, "0" * 64), Head(2**70, "0" * 64)])
def test_a_head_that_nobody_proves_is_refused_and_not_obeyed(bench: Bench, head: Head) -> None:
    kept = bench.answer("one")
    before = bench.ledger.head()
    for _ in range(100):
        with pytest.raises(UnprovedHead):
            bench.ledger.look(plan_id("one"), head=head)
    with pytest.raises(UnprovedHead):
        bench.ledger.spend(charge("two"), head=head)
    assert (bench.ledger.frozen(), bench.ledger.head()) == (None, before)
    assert bench.ledger.look(kept.plan_id, head=EMPTY) == (kept, False)


def test_an_entry_that_this_site_signed_and_lost_freezes_it(bench: Bench) -> None:
    kept = bench.answer("one")
    with pytest.raises(SiteFrozen):
        bench.ledger.reconcile(forgotten(bench.identity, 99))
    assert bench.ledger.frozen() is not None
    # For good, and for the very plan that was kept.
    with pytest.raises(SiteFrozen):
        bench.ledger.look(kept.plan_id, head=EMPTY)
    assert bench.reopen().undelivered() == []


def test_an_entry_that_somebody_else_signed_proves_nothing(bench: Bench) -> None:
    with pytest.raises(UnprovedHead):
        bench.ledger.reconcile(forgotten(Identity.generate(), 99))
    assert bench.ledger.frozen() is None


def test_a_proof_of_another_place_than_the_one_that_is_named_proves_that_place(bench: Bench) -> None:
    bench.answer("one")
    standing = forgotten(bench.identity, 99)
    with pytest.raises(SiteFrozen):
        bench.ledger.reconcile(Standing(EMPTY, standing.proof))


def test_a_look_writes_nothing(bench: Bench) -> None:
    bench.answer("one")
    before = bench.ledger.head()
    bench.ledger.look(plan_id("one"), head=before)
    bench.ledger.look(plan_id("two"), head=before)
    assert bench.ledger.head() == before
