"""A ledger that forgot: restored snapshots and cloned machines freeze, and are silent."""

from __future__ import annotations

import shutil

import pytest

from tests.integration.conftest import Make
from tests.integration.stage import AGES, Federation, eventually, is_about, sites_in, value
from wardround.federation.ledger.verify.verify import verify


def snapshot(federation: Federation, name: str) -> bytes:
    return (federation.site(name) / "ledger.sqlite").read_bytes()


def test_a_restored_ledger_freezes_and_is_silent(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("two")
    first = federation.ask()
    federation.stop("two")
    old = snapshot(federation, "two")
    federation.start_site("two")
    second = federation.ask(fresh=True)
    assert sites_in(second)["missing"] == []
    eventually(lambda: len(federation.rows("two", "SELECT 1 FROM receipts")) == 2, what="two has its receipt")
    federation.stop("two")
    (federation.site("two") / "ledger.sqlite").write_bytes(old)
    federation.start_site("two")

    third = federation.after_the_deadline(
        federation.asking(fresh=True),
        when=lambda: federation.received() == 5 and "frozen" in federation.log("two"),
        what="one answered and two froze",
    )
    assert is_about(third, 1), value(third)
    assert sites_in(third)["missing"] == ["two"]
    assert federation.entries("two", "charged", str(third["plan_id"])) == []
    (frozen,) = federation.entries("two", "frozen")
    assert "does not contain an entry that this site signed" in str(frozen["reason"])
    done = federation.run("site", "check", federation.site("two"))
    wrong, heads = [line.split(maxsplit=2) for line in done.out.splitlines() if not line.startswith("ok")]
    assert (done.code, wrong[:2], wrong[2].startswith("frozen: ")) == (1, ["FAIL", "ledger"], True)
    assert heads[:2] == ["FAIL", "heads"]
    assert "recover it first: wardround site recover" in heads[2]

    # Silent for good: a restart changes nothing, and nothing that was kept is sent again.
    federation.stop("two")
    entries = federation.rows("two", "SELECT count(*) FROM entries")
    federation.start_site("two")
    fourth = federation.after_the_deadline(
        federation.asking(fresh=True),
        when=lambda: federation.received() == 6 and "frozen" in federation.log("two"),
        what="one answered and two said why it does not",
    )
    assert sites_in(fourth)["missing"] == ["two"]
    assert federation.rows("two", "SELECT count(*) FROM entries") == entries
    # What was answered before stays answered.
    assert federation.ask()["estimates"] == first["estimates"]
    for name in ("consortium", "one", "two"):
        assert verify(federation.folder / name).valid, name


@pytest.mark.slow
def test_a_cloned_site_that_answers_twice_is_frozen_by_the_coordinator(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start_coordinator()
    federation.start_site("two", failpoint="after_spend")
    asked = federation.asking(AGES)
    federation.await_death("two")
    clone = federation.folder / "clone"
    shutil.copytree(federation.site("two"), clone)
    # Each of the two draws its own noise for the plan that was paid for once, and keeps it.
    for folder in (federation.site("two"), clone):
        federation.start_site("two", folder=folder, failpoint="before_submit")
        federation.await_death(folder.name)
    (mine,), (other,) = (federation.rows(name, "SELECT payload FROM releases") for name in ("two", "clone"))
    assert mine != other
    federation.start_site("two")
    eventually(lambda: federation.rows("two", "SELECT 1 FROM receipts"), what="the original has its receipt")
    federation.start_site("two", folder=clone)
    eventually(lambda: federation.entries("consortium", "frozen"), what="the coordinator freezes the site")
    assert federation.entries("consortium", "frozen") == [{"site": "two", "reason": "two answers to one plan"}]
    federation.start_site("one")
    first = asked.answer()
    assert sites_in(first)["answered"] == ["one", "two"]
    assert len(federation.entries("consortium", "received")) == 2

    second = federation.ask(fresh=True)
    assert sites_in(second)["answered"] == ["one"]
    budget = federation.run("budget", "--profile", federation.profile(), "--json").document
    assert budget["sites"]["two"]["frozen"] is True  # type: ignore[index,call-overload]
    assert federation.run("ledger", "verify", federation.consortium).code == 0
