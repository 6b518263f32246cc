"""A coordinator from a backup: what it forgot is recalled, what cannot be made again is lost, and nobody freezes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.members.folder import open_folder
from coordinator.members.recovering import recover
from coordinator.members.roster import Roster
from coordinator.rounds import stored_answers
from coordinator.store.recovery import Confirmed
from tests.roles.enrolled import hospital
from tests.simulation.recovering import AGES, COUNT, TRUTH, Killed, Restored
from wardround.federation.errors import (
    ConfigurationMistaken,
    LedgerBehind,
    NotAuthorized,
    PlanRefused,
    SitesAway,
    TooFewSites,
    Unavailable,
)
from wardround.federation.trust.enrolment import Presenting
from wardround.federation.trust.entry import EMPTY


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.close()


def test_what_was_forgotten_is_charged_again_at_the_same_amounts_and_answered_the_same(stage: Restored) -> None:
    before = stage.ask()
    copy = stage.copy("consortium")
    forgotten, sharper = stage.ask(AGES), stage.ask(epsilon=0.7)
    charges = {site: stage.charged(site) for site in TRUTH}
    stage.restore("consortium", copy)
    stage.recover()
    assert (stage.ask(), stage.ask(AGES), stage.ask(epsilon=0.7)) == (before, forgotten, sharper)
    assert {site: stage.charged(site) for site in TRUTH} == charges
    stage.ask(fresh=True)
    stage.check()
    assert stage.errors == []
    report = stage.client().budget()
    assert report.report.events == 4


def test_nothing_is_served_before_every_confirmed_site_is_back(stage: Restored) -> None:
    copy = stage.copy("consortium")
    stage.ask()
    stage.restore("consortium", copy)
    stage.away = {"three"}
    stage.recover()
    with pytest.raises(Unavailable, match=r"waits for three; ask again later. Nothing was charged"):
        stage.ask()
    assert stage.bodies("consortium", "reserved") == []
    stage.away = set()
    stage.settle()
    stage.ask()
    stage.check()


def test_a_site_that_is_gone_on_without_recalls_before_anything_else(stage: Restored) -> None:
    copy = stage.copy("consortium")
    stage.ask(AGES)
    stage.restore("consortium", copy)
    stage.away = {"three"}
    stage.recover("one", "two", without=("three",))
    # Nobody can tell whether the third was in the answer.
    with pytest.raises(PlanRefused, match=r"is lost: .* with --fresh"):
        stage.ask(AGES)
    stage.check(missing=["three"])
    assert stage.known("three") == {}
    stage.away = set()
    stage.ask(fresh=True)
    stage.check()
    assert [body["site"] for body in stage.bodies("consortium", "rejoined")] == ["one", "two", "three"]


def test_an_answer_that_may_have_been_another_one_is_lost_and_a_fresh_one_is_charged(stage: Restored) -> None:
    copy = stage.copy("consortium")
    stage.ask(AGES)
    # Its release arrived, but nobody has the receipt that says whether it was in time.
    stage.restore("consortium", copy)
    with stage.agents["two"].ledger._database.transaction() as connection:
        connection.execute("DELETE FROM receipts")
    stage.recover()
    with pytest.raises(PlanRefused, match="with --fresh, which is charged again"):
        stage.ask(AGES)
    with pytest.raises(PlanRefused, match="is lost"):
        stage.client().preview(AGES, epsilon=0.5)
    stage.ask(AGES, fresh=True)
    stage.check()


def test_a_round_that_was_open_is_settled_by_what_was_answered(stage: Restored) -> None:
    stage.away = {"two", "three"}
    with pytest.raises(TooFewSites):
        stage.ask()
    copy = stage.copy("consortium")
    stage.away = {"three"}
    told = stage.ask()
    stage.away = set()
    stage.restore("consortium", copy)
    stage.recover()
    # The third would answer now, and is not asked: the answer that was told is the one that stays.
    assert stage.ask() == told
    assert stage.charged("three") == {}
    stage.check()


def test_a_round_that_was_under_way_is_not_gone_on_with(stage: Restored) -> None:
    copies: list[Path] = []
    rows = stage.agents["one"].pipeline.dataset
    rows.before_reading = lambda: copies.append(stage.copy("consortium"))  # type: ignore[attr-defined]
    stage.away = {"three"}
    told = stage.ask()
    stage.away = set()
    stage.restore("consortium", copies[0])
    stage.recover()
    # It was open, with all of its time left; asked now, the third would make it another answer.
    assert stage.ask() == told
    assert stage.charged("three") == {}
    stage.check()


def test_too_few_answers_were_no_answer_so_the_missing_are_asked_again(stage: Restored) -> None:
    stage.away = {"two", "three"}
    with pytest.raises(TooFewSites):
        stage.ask()
    copy = stage.copy("consortium")
    stage.away = set()
    stage.restore("consortium", copy)
    stage.recover()
    stage.ask()
    stage.check()


def test_an_answer_of_fewer_than_were_required_may_have_been_told(stage: Restored) -> None:
    stage.away = {"three"}
    with pytest.raises(SitesAway, match="2 of 3 hospitals answered and this question requires 3"):
        stage.client().ask(COUNT, epsilon=0.5, require="all", limit_seconds=1000)
    copy = stage.copy("consortium")
    stage.ask()
    stage.restore("consortium", copy)
    stage.away = set()
    stage.recover()
    for require in (None, "all"):
        with pytest.raises(PlanRefused, match="--fresh"):
            stage.client().ask(COUNT, epsilon=0.5, require=require, limit_seconds=1000)
    (lost,) = stage.bodies("consortium", "lost")
    with pytest.raises(PlanRefused, match="--fresh"):
        stage.coordinator.watch("ada", str(lost["plan_id"]), seen=0, wait_seconds=0.0)
    stage.check()


def test_whoever_enrols_after_a_recovery_is_to_rejoin(stage: Restored) -> None:
    stage.restore("consortium", stage.copy("consortium"))
    stage.recover()
    hospital(open_folder(stage.folder / "consortium"), "four")
    assert [body["site"] for body in stage.bodies("consortium", "absent")] == ["four"]
    assert stage.coordinator.greet("four", Presenting()).recovered is not None
    stage.coordinator.rejoin("four", EMPTY)
    stage.coordinator.rejoin("four", EMPTY)
    assert [body["site"] for body in stage.bodies("consortium", "rejoined")].count("four") == 1
    stage.check()


def test_where_fewer_answered_than_make_an_answer_more_are_asked_for_what_is_required(stage: Restored) -> None:
    stage.away = {"two", "three"}
    with pytest.raises(SitesAway, match="1 of 3 hospitals answered and this question requires 3"):
        stage.client().ask(COUNT, epsilon=0.5, require="all", limit_seconds=1000)
    copy = stage.copy("consortium")
    stage.restore("consortium", copy)
    stage.away = set()
    stage.recover()
    answer = stage.client().ask(COUNT, epsilon=0.5, require="all", limit_seconds=1000).answer
    assert answer.answered == ("one", "three", "two")
    assert len(stage.bodies("consortium", "reserved")) == 1
    stage.check()


def test_a_long_answer_is_made_again_on_pages(stage: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_answers, "PAGE_ESTIMATES", 3)
    copy = stage.copy("consortium")
    before = stage.client().ask(AGES, epsilon=0.5).answer
    stage.restore("consortium", copy)
    stage.recover()
    assert stage.client().ask(AGES, epsilon=0.5).answer.estimates == before.estimates
    assert stage.rows("consortium", "SELECT number FROM answer_pages ORDER BY number")[-1] >= (1,)
    stage.check()


def test_what_a_steward_approves_later_was_charged_before(stage: Restored, tmp_path: Path) -> None:
    stage.stewards = {"three"}
    stage.agents.pop("three").ledger.close()
    stage.open_site("three")
    copy = stage.copy("consortium")
    with pytest.raises(Unavailable):
        stage.ask()
    (request,) = stage.agents["three"].ledger.requests()
    stage.restore("consortium", copy)
    stage.recover()
    assert list(stage.known("three")) == [request.plan_id]
    stage.agents["three"].ledger.decide(request.plan_id, approve=True, by="mary")
    stage.settle()
    assert list(stage.charged("three")) == [request.plan_id]
    assert stage.rows("consortium", "SELECT count(*) FROM submissions") == [(3,)]
    stage.check()


@pytest.mark.parametrize("approve", [True, False])
def test_a_no_of_a_steward_gives_back_what_was_imported(stage: Restored, *, approve: bool) -> None:
    stage.stewards = set(TRUTH)
    for name in TRUTH:
        stage.agents.pop(name).ledger.close()
        stage.open_site(name)
    copy = stage.copy("consortium")
    with pytest.raises(Unavailable):
        stage.ask()
    stage.restore("consortium", copy)
    stage.recover()
    for name in TRUTH:
        (request,) = stage.agents[name].ledger.requests()
        stage.agents[name].ledger.decide(request.plan_id, approve=approve, by="mary")
    stage.settle()
    assert [len(stage.known(name)) for name in TRUTH] == [int(approve)] * 3
    stage.check()


def test_whoever_is_not_confirmed_is_revoked_and_stays_so(stage: Restored) -> None:
    Roster(stage.coordinator.ledger).add_analyst("eve")
    copy = stage.copy("consortium")
    Roster(stage.coordinator.ledger).revoke("eve")
    stage.ask()
    stage.restore("consortium", copy)
    stage.recover("one", "two", expecting=("three: NotAuthorized",))
    with pytest.raises(NotAuthorized):
        stage.ask(analyst="eve")
    stage.ask(fresh=True)
    assert sorted(str(body["name"]) for body in stage.bodies("consortium", "revoked")) == ["eve", "three"]
    stage.check(missing=["three"])


def test_an_older_copy_of_a_recovered_ledger_is_found_out_and_recovered_again(stage: Restored) -> None:
    first = stage.copy("consortium")
    stage.ask()
    stage.restore("consortium", first)
    stage.recover()
    stage.ask(AGES)
    stage.restore("consortium", first)
    (stage.folder / "consortium" / "backup.json").unlink()
    stage.serve()
    with pytest.raises(LedgerBehind, match="older copy: one holds its receipt"):
        stage.agents["one"].meet()
    stage.coordinator.close()
    stage.recover()
    assert [body["incarnation"] for body in stage.bodies("consortium", "recovered")] == [2]
    stage.ask(AGES)
    stage.ask(fresh=True)
    stage.check()


def test_a_name_that_is_unknown_recovers_nothing(stage: Restored) -> None:
    stage.coordinator.close()
    with pytest.raises(
        ConfigurationMistaken, match="'four' is no active site of this ledger, which has one, three, two"
    ):
        recover(stage.folder / "consortium", Confirmed(("one", "four")))
    assert stage.bodies("consortium", "recovered") == []
    stage.serve()


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[] if at in (2, 6) else pytest.mark.slow) for at in range(1, 11)]
)
def test_a_recovery_that_is_killed_is_begun_again_and_ends_the_same(stage: Restored, at: int) -> None:
    copy = stage.copy("consortium")
    answers = stage.ask(), stage.ask(AGES)
    stage.restore("consortium", copy)
    stage.kill_at = at
    try:
        stage.recover()
    except Killed:
        stage.kill()
        stage.settle()
    assert (stage.ask(COUNT), stage.ask(AGES)) == answers
    assert len(stage.bodies("consortium", "imported")) == 6
    assert len(stage.bodies("consortium", "received")) == 6
    stage.check()
