"""One look before a task is worked on: what was kept, whether it is paid for, and whether the chain is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.federation.ledger.ledger_bench import Bench, charge, plan_id
from wardround.federation.errors import SiteFrozen
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.entry import EMPTY, Head


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
def test_a_look_at_a_chain_that_lacks_the_head_freezes_it(bench: Bench, head: Head) -> None:
    kept = bench.answer("one")
    with pytest.raises(SiteFrozen):
        bench.ledger.look(plan_id("one"), head=head)
    assert bench.ledger.frozen() is not None
    # For good, and for the very plan that was kept.
    with pytest.raises(SiteFrozen):
        bench.ledger.look(kept.plan_id, head=EMPTY)
    assert bench.reopen().undelivered() == []


def test_a_look_writes_nothing(bench: Bench) -> None:
    bench.answer("one")
    before = bench.ledger.head()
    bench.ledger.look(plan_id("one"), head=before)
    bench.ledger.look(plan_id("two"), head=before)
    assert bench.ledger.head() == before
