"""A site from a backup: what it signed comes back, what may be missing is charged, and no noise is drawn twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from site_agent.answering.pipeline import request_text
from site_agent.serving import recover as site_recovery
from site_agent.serving.folder import SiteFolder
from site_agent.serving.recover import Recovered, recover_with
from tests.simulation.histories import STEWARD
from tests.simulation.recovering import AGES, Killed, Restored, ToCoordinator
from tests.simulation.test_recovery_histories import STEPS, history
from wardround.federation.errors import (
    BudgetExceeded,
    ConfigurationMistaken,
    FederationError,
    TooFewSites,
    Unavailable,
    UnprovedHead,
)
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Head


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.close()


def recover(stage: Restored, name: str, *, complete: bool = False) -> Recovered:
    """Recover a site that is not open, and open it."""
    kept = ToCoordinator(stage.coordinator, name)
    known = stage.coordinator.ledger.members.head(name)
    done = recover_with(SiteFolder(stage.folder / name), kept, known, complete=complete)
    stage.open_site(name)
    return done


def releases(stage: Restored, name: str) -> dict[object, object]:
    return dict(stage.rows(name, "SELECT plan_id, payload FROM releases"))


def test_what_was_answered_comes_back_with_its_bytes_and_charges(stage: Restored) -> None:
    stage.ask()
    copy = stage.copy("two")
    answer = stage.ask(AGES)
    stage.settle()
    kept, charged = releases(stage, "two"), stage.charged("two")
    stage.restore("two", copy)
    done = recover(stage, "two", complete=True)
    assert (done.back, done.charged) == (2, 0.0)
    assert (releases(stage, "two"), stage.charged("two")) == (kept, charged)
    assert stage.ask(AGES) == answer
    stage.ask(fresh=True)
    assert len(stage.charged("two")) == 3
    stage.check()


def test_a_frozen_site_goes_on(stage: Restored) -> None:
    copy = stage.copy("two")
    stage.ask(AGES)
    stage.settle()
    stage.restore("two", copy)
    stage.open_site("two")
    with suppress(FederationError):
        stage.agents["two"].meet()
    assert stage.agents["two"].ledger.frozen() is not None
    stage.agents.pop("two").ledger.close()
    recover(stage, "two", complete=True)
    assert stage.agents["two"].ledger.frozen() is None
    stage.ask(fresh=True)
    assert len(releases(stage, "two")) == 2
    stage.check()


def test_without_the_statement_all_that_is_left_is_charged(stage: Restored) -> None:
    copy = stage.copy("two")
    answer = stage.ask(AGES)
    stage.settle()
    stage.restore("two", copy)
    done = recover(stage, "two")
    assert done.charged > 390
    ledger = stage.agents["two"].ledger
    assert ledger.spent() == ledger.cap().allowance()
    (said,) = stage.bodies("two", "recovered")
    assert said["complete"] is False
    assert stage.ask(AGES) == answer
    stage.ask(fresh=True)
    assert len(stage.charged("two")) == 1
    stage.check()


def test_what_was_reserved_and_is_unknown_is_charged_once_more(stage: Restored) -> None:
    copy = stage.copy("two")
    stage.away = {"two"}
    stage.ask()
    stage.away = set()
    stage.restore("two", copy)
    done = recover(stage, "two", complete=True)
    assert 0.2 < done.charged < 0.6
    assert verify(stage.folder / "two").valid


def test_noise_is_not_drawn_again_for_what_was_paid_before(stage: Restored) -> None:
    stage.agents["two"].pipeline.dataset.failures = 1  # type: ignore[attr-defined]
    stage.away = {"three"}
    with pytest.raises(TooFewSites):
        stage.ask()
    copy = stage.copy("two")
    (plan,) = stage.charged("two")
    stage.restore("two", copy)
    recover(stage, "two", complete=True)
    stage.agents["two"].ledger.tables.reopen("visits")
    stage.away = set()
    # It is asked again, with the third, and its table is open.
    stage.ask()
    assert releases(stage, "two") == {}
    assert list(stage.charged("two")) == [plan]
    stage.check()


def test_what_was_being_read_and_was_answered_since_is_read_no_more(stage: Restored) -> None:
    copies: list[Path] = []
    stage.agents["two"].pipeline.dataset.before_reading = lambda: copies.append(stage.copy("two"))  # type: ignore[attr-defined]
    stage.ask()
    kept = releases(stage, "two")
    stage.restore("two", copies[0])
    assert len(stage.rows("two", "SELECT 1 FROM readings")) == 1
    recover(stage, "two", complete=True)
    assert releases(stage, "two") == kept
    assert stage.rows("two", "SELECT 1 FROM readings") == []
    stage.ask(fresh=True)
    stage.check()


@pytest.mark.parametrize("words", ["", " in other words"])
def test_what_a_steward_was_shown_comes_back(stage: Restored, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    copy = stage.copy("two")
    stage.stewards = {"two"}
    stage.agents.pop("two").ledger.close()
    stage.open_site("two")
    with suppress(Unavailable):
        stage.ask()
    (request,) = stage.agents["two"].ledger.requests()
    stage.agents["two"].ledger.decide(request.plan_id, approve=True, by="mary")
    stage.settle()
    stage.restore("two", copy)
    monkeypatch.setattr(site_recovery, "request_text", lambda *said: request_text(*said) + words)
    recover(stage, "two", complete=True)
    assert [found.summary for found in stage.agents["two"].ledger.requests()] == [request.summary + words]
    stage.check()


def test_to_recover_again_charges_nothing_again(stage: Restored) -> None:
    copy = stage.copy("two")
    stage.ask(AGES)
    stage.settle()
    stage.restore("two", copy)
    recover(stage, "two", complete=True)
    stage.agents.pop("two").ledger.close()
    assert recover(stage, "two").charged == 0.0
    assert len(stage.bodies("two", "recovered")) == 1
    stage.check()


def test_a_ledger_whose_entries_are_not_kept_is_not_recovered(stage: Restored) -> None:
    copy = stage.copy("two")
    stage.ask()
    stage.ask(AGES)
    stage.settle()
    with stage.coordinator.ledger.database.transaction() as connection:
        connection.execute("DROP TRIGGER site_entries_are_never_removed")
        connection.execute("DELETE FROM site_entries WHERE site = 'two' AND sequence = 4")
    before = copy.joinpath("ledger.sqlite").read_bytes()
    stage.restore("two", copy)
    with pytest.raises(ConfigurationMistaken, match="it cannot be recovered"):
        recover(stage, "two")
    assert (stage.folder / "two" / "ledger.sqlite").read_bytes() == before
    stage.open_site("two")


def test_a_forged_head_that_is_shown_again_and_again_stops_nothing(stage: Restored) -> None:
    forged = Standing(Head(9, "f" * 64))
    for _ in range(100):
        with pytest.raises(UnprovedHead):
            stage.agents["two"].ledger.reconcile(forged)
    stage.ask()
    assert len(releases(stage, "two")) == 1
    stage.check()


@pytest.mark.parametrize("at", [2, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 3, 4, 5, 6, 7))])
def test_a_recovery_that_is_killed_is_begun_again_and_ends_the_same(stage: Restored, at: int) -> None:
    copy = stage.copy("two")
    answer = stage.ask(AGES)
    stage.settle()
    kept = releases(stage, "two")
    stage.restore("two", copy)
    dying = ToCoordinator(stage.coordinator, "two", kill_at=at)
    with suppress(Killed):
        recover_with(
            SiteFolder(stage.folder / "two"), dying, stage.coordinator.ledger.members.head("two"), complete=True
        )
    recover(stage, "two", complete=True)
    assert stage.ask(AGES) == answer
    assert releases(stage, "two") == kept
    assert len(stage.bodies("two", "recovered")) == 1
    stage.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 210))
def test_a_site_comes_back_from_every_copy(seed: int, tmp_path: Path) -> None:
    made = history(tmp_path / "first", seed, STEPS)
    for number in range(STEPS):
        for name in ("one", STEWARD):
            stage = made.stage.clone(tmp_path / f"{name}{number}")
            try:
                stage.restore(name, made.copies[number][name])
                recover(stage, name, complete=True)
                stage.settle()
                with suppress(Unavailable, TooFewSites, BudgetExceeded):
                    stage.ask(fresh=True)
                stage.settle()
                stage.check()
            finally:
                stage.close()
