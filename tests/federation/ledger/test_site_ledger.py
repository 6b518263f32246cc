"""The site's ledger: pay, keep and send the same bytes for ever."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from site_agent.store.ledger import SiteLedger
from site_agent.store.requests import RequestState
from tests.federation.ledger.ledger_bench import CAP, DATE, Bench, asking, charge, plan_id, spend, task
from wardround.federation.errors import (
    BudgetExceeded,
    ConfigurationMistaken,
    InvariantBroken,
    LedgerCorrupt,
    MalformedMessage,
    Mistaken,
    PlanRefused,
    UnknownTask,
    UnpaidRelease,
)
from wardround.federation.forms.release import Release
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Charge
from wardround.federation.plan.task import Declined, Released
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap, epsilon_spent


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "site")


def kinds(bench: Bench) -> list[str]:
    with sqlite3.connect(bench.folder / LEDGER_FILE) as connection:
        found = [row[0] for row in connection.execute("SELECT kind FROM entries ORDER BY sequence")]
    connection.close()
    return found


def test_a_plan_is_charged_kept_sent_and_acknowledged(bench: Bench) -> None:
    kept = bench.answer("a")
    assert bench.ledger.undelivered() == [kept]
    bench.ledger.delivered(kept.plan_id, bench.receipt(kept))
    assert bench.ledger.undelivered() == []
    assert bench.ledger.find(kept.plan_id) == kept
    assert kinds(bench) == ["opened", "capped", "pinned", "charged", "released"]
    assert verify(bench.folder).problems == ()


def test_a_thousand_repeats_give_one_byte_string_and_one_charge(bench: Bench) -> None:
    first = bench.answer("a")
    spent = bench.ledger.spent()
    assert {bench.answer("a").payload for _ in range(1000)} == {first.payload}
    assert bench.ledger.spent() == spent == charge("a").cost
    assert kinds(bench) == ["opened", "capped", "pinned", "charged", "released"]


def test_only_what_the_disk_holds_is_returned(bench: Bench) -> None:
    kept = bench.answer("a")
    with sqlite3.connect(bench.folder / LEDGER_FILE) as connection:
        connection.execute("DROP TRIGGER releases_are_never_changed")
        connection.execute("UPDATE releases SET payload = ?", (kept.payload[:-1] + b"\x7f",))
    connection.close()
    with pytest.raises(LedgerCorrupt):
        bench.ledger.find(kept.plan_id)
    with pytest.raises(LedgerCorrupt):
        bench.ledger.undelivered()


def test_a_release_without_a_charge_is_impossible(bench: Bench) -> None:
    with pytest.raises(UnpaidRelease):
        bench.ledger.keep(bench.release("a"))
    assert bench.ledger.find(plan_id("a")) is None


def test_a_release_longer_than_what_was_paid_for_is_impossible(bench: Bench) -> None:
    spend(bench.ledger, "a")
    with pytest.raises(UnpaidRelease):
        bench.ledger.keep(bench.release("a", size=4))
    assert bench.ledger.find(plan_id("a")) is None


def test_a_release_in_another_sites_name_is_impossible(bench: Bench) -> None:
    spend(bench.ledger, "a")
    with pytest.raises(InvariantBroken):
        bench.ledger.keep(Release(plan_id("a"), "st-paul", DATE.isoformat(), np.zeros(3, dtype=np.int64)))


def test_an_exhausted_budget_charges_nothing_and_says_what_remains(bench: Bench) -> None:
    dear = Charge(plan_id("dear"), charge("dear", 80).facts * 9)
    with pytest.raises(BudgetExceeded) as refusal:
        spend(bench.ledger, "dear", dear)
    assert refusal.value.asked > refusal.value.remaining > 0
    assert bench.ledger.spent() == Cost.zero()
    assert not bench.ledger.charged(plan_id("dear"))
    assert kinds(bench) == ["opened", "capped"]


def test_the_last_of_the_budget_can_be_spent_and_nothing_after_it(bench: Bench) -> None:
    one = charge("x", 200).cost
    admitted = CAP.allowance().mu_squared // one.mu_squared
    for number in range(admitted):
        spend(bench.ledger, f"plan {number}", charge(f"plan {number}", 200))
    with pytest.raises(BudgetExceeded):
        spend(bench.ledger, "one more", charge("one more", 200))
    spent = bench.ledger.spent()
    assert spent == Cost(one.mu_squared * admitted, 0, one.slack * admitted)
    assert spent.fits(CAP.allowance())
    assert not (spent + one).fits(CAP.allowance())
    assert epsilon_spent(spent, CAP) <= CAP.epsilon


def test_without_a_cap_nothing_can_be_spent(tmp_path: Path) -> None:
    identity = Identity.generate()
    ledger = SiteLedger.create(
        tmp_path, identity=identity, name="a", study_hash="0" * 64, dataset="d", coordinator_key="00" * 32
    )
    with pytest.raises(ConfigurationMistaken, match="no budget"):
        spend(ledger, "a")
    assert ledger.spent() == Cost.zero()


def test_a_cap_is_written_when_it_changes_only(bench: Bench) -> None:
    bench.ledger.set_cap(CAP)
    bench.ledger.set_cap(Cap(2.0, 1e-6))
    bench.ledger.set_cap(Cap(2.0, 1e-6))
    assert bench.ledger.cap() == Cap(2.0, 1e-6)
    assert kinds(bench) == ["opened", "capped", "capped"]


def test_a_cap_lowered_below_what_is_spent_refuses_and_still_verifies(bench: Bench) -> None:
    bench.answer("a", 200)
    bench.ledger.set_cap(Cap(0.1, 1e-6))
    with pytest.raises(BudgetExceeded) as refusal:
        spend(bench.ledger, "b")
    assert refusal.value.remaining == 0.0
    assert bench.ledger.keep(bench.release("a")).payload
    assert verify(bench.folder).problems == ()


def test_other_facts_under_the_same_plan_stop_the_process(bench: Bench) -> None:
    spend(bench.ledger, "a", charge("a", 400))
    with pytest.raises(InvariantBroken):
        spend(bench.ledger, "a", charge("a", 401))


def test_a_refusal_is_signed_stored_once_and_free(bench: Bench) -> None:
    first = bench.ledger.refuse(asking("a"), RefusalReason.PLAN)
    assert bench.ledger.refuse(asking("a"), RefusalReason.OWN_BUDGET) == first
    assert first.code == "PlanRefused"
    assert first.entry.signed_by(bench.identity.public)
    assert bench.ledger.spent() == Cost.zero()
    with pytest.raises(PlanRefused):
        spend(bench.ledger, "a")
    assert bench.ledger.undelivered() == [first]
    bench.ledger.delivered(first.plan_id, bench.receipt(first))
    assert bench.ledger.undelivered() == []
    assert verify(bench.folder).problems == ()


def test_what_was_charged_is_never_refused(bench: Bench) -> None:
    spend(bench.ledger, "a")
    with pytest.raises(InvariantBroken):
        bench.ledger.refuse(asking("a"), RefusalReason.PLAN)
    assert bench.ledger.keep(bench.release("a"))


def test_answers_are_delivered_in_the_order_they_were_kept(bench: Bench) -> None:
    order = [bench.answer("b"), bench.ledger.refuse(asking("c"), RefusalReason.PLAN), bench.answer("a")]
    assert bench.ledger.undelivered() == order


def test_a_receipt_for_anything_else_is_not_accepted(bench: Bench) -> None:
    kept, other = bench.answer("a"), bench.answer("b")
    refused = bench.ledger.refuse(asking("c"), RefusalReason.PLAN)
    wrong = [
        bench.receipt(kept, signer=Identity.generate()),
        bench.receipt(kept, signer=bench.identity),
        bench.receipt(kept, site="st-paul"),
        bench.receipt(kept, release_hash="0" * 64),
        bench.receipt(kept, digest="0" * 64),
        bench.receipt(other),
        bench.receipt(refused),
    ]
    for receipt in wrong:
        with pytest.raises(MalformedMessage):
            bench.ledger.delivered(kept.plan_id, receipt)
    with pytest.raises(UnknownTask):
        bench.ledger.delivered(plan_id("never"), bench.receipt(kept))
    assert kept in bench.ledger.undelivered()


def test_the_first_receipt_stays(bench: Bench) -> None:
    kept = bench.answer("a")
    for _ in range(2):
        bench.ledger.delivered(kept.plan_id, bench.receipt(kept))
    assert verify(bench.folder).problems == ()


def test_a_steward_approves_and_the_task_runs_once(bench: Bench) -> None:
    signed = task("w", coordinator=bench.coordinator)
    waiting = signed.task.plan.plan_id
    assert bench.ledger.hold(signed, summary="COUNT(*)") is RequestState.PENDING
    assert bench.ledger.hold(signed, summary="again") is RequestState.PENDING
    assert [(r.plan_id, r.summary, r.state, r.asked_on) for r in bench.ledger.requests()] == [
        (waiting, "COUNT(*)", RequestState.PENDING, DATE.isoformat())
    ]
    assert bench.ledger.decided() == []
    bench.ledger.decide(waiting, approve=True, by="ann")
    assert bench.ledger.hold(signed, summary="again") is RequestState.APPROVED
    assert bench.ledger.decided() == [signed]
    spend(bench.ledger, "w")
    assert bench.ledger.decided() == [signed]
    bench.ledger.keep(bench.release("w"))
    assert bench.ledger.decided() == []
    with pytest.raises(Mistaken, match="already answered"):
        bench.ledger.decide(waiting, approve=False, by="ann")


def test_a_steward_denies_and_the_denial_is_delivered(bench: Bench) -> None:
    waiting = (signed := task("w", coordinator=bench.coordinator)).task.plan.plan_id
    bench.ledger.hold(signed, summary="COUNT(*)")
    bench.ledger.decide(waiting, approve=False, by="ann")
    assert bench.ledger.hold(signed, summary="again") is RequestState.DENIED
    (refusal,) = bench.ledger.undelivered()
    assert isinstance(refusal, Declined)
    assert bench.ledger.decided() == [signed]
    bench.ledger.delivered(waiting, bench.receipt(refusal))
    assert bench.ledger.decided() == []
    with pytest.raises(Mistaken):
        bench.ledger.decide(waiting, approve=True, by="ann")
    with pytest.raises(PlanRefused):
        spend(bench.ledger, "w")


def test_nothing_can_be_decided_that_was_not_asked(bench: Bench) -> None:
    with pytest.raises(Mistaken, match="no request"):
        bench.ledger.decide(plan_id("a"), approve=True, by="ann")


def test_history_shows_everything_that_left(bench: Bench) -> None:
    kept = bench.answer("a")
    bench.ledger.refuse(asking("b"), RefusalReason.PLAN)
    spend(bench.ledger, "c")
    bench.ledger.delivered(kept.plan_id, bench.receipt(kept))
    lines = [(x.date, x.plan_id, x.kind, x.values, x.delivered, x.cost) for x in bench.ledger.history()]
    assert lines == [
        ("2026-03-01", plan_id("a"), "released", 3, True, charge("a").cost),
        ("2026-03-01", plan_id("b"), "refused", 0, False, Cost.zero()),
    ]


def test_a_ledger_is_opened_by_its_own_identity_only(bench: Bench) -> None:
    with pytest.raises(LedgerCorrupt):
        SiteLedger(bench.folder, identity=Identity.generate())


def test_making_a_ledger_again_changes_nothing_and_another_cannot_take_its_place(bench: Bench) -> None:
    same = {"study_hash": "0" * 64, "dataset": "ehr-2026", "coordinator_key": bench.coordinator.public.key}
    head = bench.ledger.head()
    assert SiteLedger.create(bench.folder, identity=bench.identity, name="st-mary", **same).head() == head
    with pytest.raises(ConfigurationMistaken, match="another site"):
        SiteLedger.create(bench.folder, identity=bench.identity, name="st-paul", **same)


def test_an_empty_file_is_no_ledger_and_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / LEDGER_FILE).touch()
    with pytest.raises(ConfigurationMistaken, match="is empty; a lost ledger is never replaced by a new one: restore"):
        SiteLedger(tmp_path, identity=Identity.generate())
    assert (tmp_path / LEDGER_FILE).stat().st_size == 0


def test_threads_racing_for_one_plan_get_one_answer(bench: Bench) -> None:
    payloads: set[bytes] = set()
    threads = [threading.Thread(target=lambda: payloads.add(bench.answer("a").payload)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(payloads) == 1
    assert bench.ledger.spent() == charge("a").cost


WRITER = """
import pathlib, sys
from site_agent.store.ledger import SiteLedger
from tests.federation.ledger.ledger_bench import charge, spend
from wardround.federation.errors import BudgetExceeded
from wardround.federation.trust.identity import Identity
from wardround.federation.trust.entry import EMPTY
from wardround.federation.refusal import RefusalReason
folder = pathlib.Path(sys.argv[1])
ledger = SiteLedger(folder, identity=Identity.load(folder / "identity.pem"))
admitted = 0
for number in range(200):
    try:
        spend(ledger, f"{sys.argv[2]}.{number}", charge(f"{sys.argv[2]}.{number}", 300))
        admitted += 1
    except BudgetExceeded:
        break
print(admitted)
"""


def test_two_processes_share_one_budget(bench: Bench) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(bench.folder), who], stdout=subprocess.PIPE)
        for who in ("one", "two")
    ]
    admitted = [int(writer.communicate(timeout=300)[0]) for writer in writers]
    one = charge("x", 300).cost
    assert sum(admitted) == CAP.allowance().mu_squared // one.mu_squared
    assert bench.ledger.spent() == Cost(sum(admitted) * one.mu_squared, 0, sum(admitted) * one.slack)
    assert verify(bench.folder).problems == ()


def test_a_release_that_is_kept_says_whose_it_is(bench: Bench) -> None:
    kept = bench.answer("a")
    assert isinstance(kept, Released)
    assert kept.entry.signed_by(bench.identity.public)
    assert kept.entry.kind == "released"
