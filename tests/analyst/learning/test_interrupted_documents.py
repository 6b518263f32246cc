"""Ctrl-C while a script waits: one document all the same, and the same call goes on and pays nothing twice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.analyst.learning.clinics import request_text
from tests.cli.calling import call
from wardround.analyst.asking import client
from wardround.analyst.asking.client import Client
from wardround.analyst.link.link import AnalystLink
from wardround.federation.errors import EARLIER_VERSION, ProtocolViolation
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study
from wardround.simulation.federation import DirectAnalystLink, SimulatedFederation

COUNT = "SELECT COUNT(DISTINCT patient_id) FROM visits"


@dataclasses.dataclass
class Hands:
    """A link at whose n-th question somebody presses Ctrl-C, once."""

    inner: AnalystLink
    stops_at: int = 0
    asked: int = 0
    stopped: bool = False
    # An earlier version at the other end, which knows no such question.
    earlier: bool = False

    def ask(self, request: AskRequest) -> str:
        self.asked += 1
        return self.inner.ask(request)

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        if self.asked == self.stops_at and not self.stopped:
            self.stopped = True
            raise KeyboardInterrupt
        return self.inner.watch(plan_id, seen=seen, wait_seconds=wait_seconds)

    def preview(self, request: AskRequest) -> Preview:
        if self.earlier:
            raise ProtocolViolation(EARLIER_VERSION)
        return self.inner.preview(request)

    def sites(self) -> tuple[str, ...]:
        return self.inner.sites()

    def budget(self) -> BudgetReport:
        raise KeyboardInterrupt

    def study(self) -> Study:
        return self.inner.study()

    def close(self) -> None:
        pass


@pytest.fixture
def hands(clinics: SimulatedFederation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hands:
    """What every command connects to, in a folder of its own."""
    made = Hands(DirectAnalystLink(clinics.coordinator))
    monkeypatch.setattr(client, "connect", lambda _: Client(made, signer=clinics.signer))
    monkeypatch.chdir(tmp_path)
    return made


def reserved(clinics: SimulatedFederation) -> int:
    with clinics.coordinator.ledger.database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM entries WHERE kind = 'reserved'").fetchone()[0])


def test_an_interrupted_question_is_one_document_and_goes_on(clinics: SimulatedFederation, hands: Hands) -> None:
    hands.stops_at = 1
    words = ("ask", "--profile", "me", COUNT, "--json")
    stopped = call(*words)
    assert stopped.code == 130
    sentence = "interrupted; what was asked is kept: the same command goes on from there and pays nothing twice."
    assert stopped.document() == {"error": {"code": "Interrupted", "message": sentence}}
    assert stopped.sentence() == sentence
    done = call(*words)
    assert (done.code, done.document()["sites"]["missing"], reserved(clinics)) == (0, [], 1)


def test_an_interrupted_fresh_question_goes_on_with_its_nonce(clinics: SimulatedFederation, hands: Hands) -> None:
    words = ("ask", "--profile", "me", COUNT, "--json")
    plain = call(*words).document()
    hands.stops_at = 2
    stopped = call(*words, "--fresh")
    told, _, last = stopped.err.partition("\n")
    nonce = told.removeprefix("a fresh question; if it is interrupted, go on with --resume ")
    assert f"the same command with --resume {nonce} instead of --fresh goes on from there" in last
    assert stopped.document()["error"]["message"] in last
    assert call(*words, "--resume", nonce, "--dry-run").document()["refusal"] is None
    done = call(*words, "--resume", nonce)
    assert done.document()["plan_id"] != plain["plan_id"]
    assert reserved(clinics) == 2
    assert call(*words, "--resume", nonce, "--fresh").code == 2


def test_nobody_is_told_how_to_go_on_with_what_the_other_side_refuses(
    clinics: SimulatedFederation, hands: Hands
) -> None:
    Path("request.toml").write_text(request_text(rounds=2), encoding="utf-8")
    hands.earlier = True
    for words in (("ask", "--profile", "me", COUNT), ("train", "--profile", "me", "request.toml")):
        refused = call(*words, "--fresh", "--json")
        assert (refused.code, refused.document()["error"]["code"]) == (1, "ProtocolViolation")
        assert refused.sentence() == refused.document()["error"]["message"]
        assert "--resume" not in refused.err
    assert (hands.asked, reserved(clinics)) == (0, 0)


def test_a_fresh_question_that_the_budget_refuses_is_nothing_to_go_on_with(hands: Hands) -> None:
    words = ("ask", "--profile", "me", COUNT, "--epsilon")
    for _ in range(9):
        refused = call(*words, "2.9", "--fresh")
        if refused.code:
            break
    assert refused.code == 1
    assert "--resume" not in refused.err


def test_a_dry_run_of_a_fresh_question_is_not_about_the_stored_one(hands: Hands) -> None:
    words = ("ask", "--profile", "me", COUNT, "--json")
    call(*words)
    assert hands.asked == 1
    assert call(*words, "--dry-run").document()["replayed"]
    fresh = call(*words, "--dry-run", "--fresh")
    assert (fresh.document()["replayed"], fresh.err) == (False, "")


def test_an_interrupted_training_is_one_document_and_goes_on(clinics: SimulatedFederation, hands: Hands) -> None:
    Path("request.toml").write_text(request_text(rounds=2), encoding="utf-8")
    hands.stops_at = 3
    words = ("train", "--profile", "me", "request.toml", "--json")
    stopped = call(*words)
    assert (stopped.code, stopped.document()["error"]["code"]) == (130, "Interrupted")
    assert stopped.err.endswith(
        "wardround: interrupted; what was asked is kept: the same command goes on from there and pays nothing twice.\n"
    )
    done = call(*words)
    assert (done.code, done.document()["rounds"]) == (0, {"done": 2, "planned": 2})
    assert done.document()["privacy"]["spent"]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert reserved(clinics) == len(set(done.document()["plan_ids"]))


@pytest.mark.usefixtures("hands")
def test_any_other_command_is_interrupted_with_one_document_too() -> None:
    stopped = call("budget", "--profile", "me", "--json")
    assert stopped.code == 130
    assert stopped.document() == {"error": {"code": "Interrupted", "message": "interrupted."}}
    plain = call("budget", "--profile", "me")
    assert (plain.code, plain.out, plain.err) == (130, "", "wardround: interrupted.\n")
