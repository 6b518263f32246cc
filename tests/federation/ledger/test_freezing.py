"""A site whose ledger lacks an entry that it signed itself is frozen, and is silent from then on."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from site_agent.store.ledger import SiteLedger
from tests.federation.ledger.ledger_bench import Bench, asking, forgotten, spend, task
from wardround.federation.errors import (
    SiteFrozen,
    UnprovedHead,
)
from wardround.federation.ledger import chain
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import EMPTY
from wardround.privacy.budget.filter import Cap


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "site")


def kinds(bench: Bench) -> list[str]:
    with sqlite3.connect(bench.folder / LEDGER_FILE) as connection:
        found = [row[0] for row in connection.execute("SELECT kind FROM entries ORDER BY sequence")]
    connection.close()
    return found


def test_a_restored_snapshot_freezes_the_site(bench: Bench) -> None:
    bench.answer("a")
    bench.ledger.close()
    shutil.copy(bench.folder / LEDGER_FILE, bench.folder / "snapshot")
    later = Bench.reopen(bench).head()
    acknowledged = bench.answer("b").entry
    bench.ledger.close()
    shutil.copy(bench.folder / "snapshot", bench.folder / LEDGER_FILE)
    assert Bench.reopen(bench).head() == later
    with pytest.raises(UnprovedHead):
        spend(bench.ledger, "c", head=acknowledged.head)
    with pytest.raises(SiteFrozen):
        bench.ledger.reconcile(Standing(acknowledged.head, acknowledged))
    assert bench.ledger.frozen() is not None
    assert not bench.ledger.undelivered()
    assert kinds(bench)[-1] == "frozen"
    assert verify(bench.folder).problems == ()


def test_a_forked_clone_freezes(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "original")
    bench.ledger.close()
    shutil.copytree(bench.folder, tmp_path / "clone")
    ours = SiteLedger(bench.folder, identity=bench.identity)
    spend(ours, "a")
    clone = SiteLedger(tmp_path / "clone", identity=bench.identity)
    spend(clone, "b")
    assert ours.head().sequence == clone.head().sequence
    with ours._database.reading() as connection:
        standing = Standing(ours.head(), chain.entry_at(connection, ours.head().sequence))
    with pytest.raises(SiteFrozen):
        clone.reconcile(standing)
    ours.reconcile(standing)


def test_a_frozen_site_is_silent(bench: Bench) -> None:
    kept = bench.answer("a")
    spend(bench.ledger, "b")
    bench.ledger.hold(task("w", coordinator=bench.coordinator), summary="s")
    with pytest.raises(SiteFrozen):
        bench.ledger.reconcile(forgotten(bench.identity, 99))
    for _ in range(2):
        silent = bench.ledger
        head = silent.head()
        with pytest.raises(SiteFrozen):
            silent.find(kept.plan_id)
        with pytest.raises(SiteFrozen):
            spend(silent, "c")
        with pytest.raises(SiteFrozen):
            spend(silent, "a")
        with pytest.raises(SiteFrozen):
            silent.keep(bench.release("b"))
        with pytest.raises(SiteFrozen):
            silent.refuse(asking("d"), RefusalReason.PLAN)
        with pytest.raises(SiteFrozen):
            silent.reconcile(Standing(EMPTY))
        with pytest.raises(SiteFrozen):
            silent.hold(task("v", coordinator=bench.coordinator), summary="s")
        with pytest.raises(SiteFrozen):
            silent.decide(silent.requests()[0].plan_id, approve=False, by="ann")
        silent.set_cap(Cap(1.0, 1e-6))
        assert silent.undelivered() == []
        assert silent.decided() == []
        assert silent.head() == head
        assert len(silent.history()) == 1
        bench.reopen()
    assert verify(bench.folder).problems == ()
