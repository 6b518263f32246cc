"""One look before a task is worked on: what was kept, whether it is paid for, and whether the chain is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.store.outbox import Kept
from tests.federation.ledger.ledger_bench import Bench, asking, forgotten, plan, spend
from wardround.federation.errors import SiteFrozen, UnprovedHead
from wardround.federation.plan.task import SignedTask, Task
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import EMPTY, Head
from wardround.federation.trust.identity import Identity


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "site")


def look(bench: Bench, word: str, head: Head) -> tuple[Kept | None, bool]:
    """What was kept and whether it is paid for; whoever asks is whoever asked."""
    kept, paid, asked_by = bench.ledger.look(SignedTask(Task(plan(word), "st-mary", head), b"", asking(word).asked_by))
    assert asked_by == asking(word).asked_by
    return kept, paid


def test_a_look_says_what_was_kept_and_what_is_paid_for(bench: Bench) -> None:
    assert look(bench, "one", EMPTY) == (None, False)
    spend(bench.ledger, "one")
    assert look(bench, "one", bench.ledger.head()) == (None, True)
    kept = bench.ledger.keep(bench.release("one"))
    # What was kept is sent again, whatever was paid.
    assert look(bench, "one", bench.ledger.head()) == (kept, False)
    assert look(bench, "two", bench.ledger.head()) == (None, False)


def test_a_look_shows_a_refusal_too(bench: Bench) -> None:
    refusal = bench.ledger.refuse(asking("one"), RefusalReason.PLAN)
    assert look(bench, "one", EMPTY) == (refusal, False)


@pytest.mark.parametrize("head", [Head(1, "f" * 64), Head(99, "0" * 64), Head(-1, "0" * 64), Head(2**70, "0" * 64)])
def test_a_head_that_nobody_proves_is_refused_and_not_obeyed(bench: Bench, head: Head) -> None:
    kept = bench.answer("one")
    before = bench.ledger.head()
    for _ in range(100):
        with pytest.raises(UnprovedHead):
            look(bench, "one", head)
    with pytest.raises(UnprovedHead):
        spend(bench.ledger, "two", head=head)
    assert (bench.ledger.frozen(), bench.ledger.head()) == (None, before)
    assert look(bench, "one", EMPTY) == (kept, False)


def test_an_entry_that_this_site_signed_and_lost_freezes_it(bench: Bench) -> None:
    bench.answer("one")
    with pytest.raises(SiteFrozen):
        bench.ledger.reconcile(forgotten(bench.identity, 99))
    assert bench.ledger.frozen() is not None
    # For good, and for the very plan that was kept.
    with pytest.raises(SiteFrozen):
        look(bench, "one", EMPTY)
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
    look(bench, "one", before)
    look(bench, "two", before)
    assert bench.ledger.head() == before


def test_whoever_asked_first_is_who_asked(bench: Bench) -> None:
    spend(bench.ledger, "one")
    stripped = SignedTask(Task(plan("one"), "st-mary", EMPTY), b"")
    assert bench.ledger.look(stripped)[2] == asking("one").asked_by
    assert bench.ledger.look(SignedTask(Task(plan("two"), "st-mary", EMPTY), b""))[2] is None
