"""What a site recalls is believed as far as it is signed, priced and without a gap; a training goes on, or is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.members.recovering import recover
from coordinator.store.recovery import Confirmed
from tests.fixtures.asking import ADA
from tests.simulation.recovering import AGES, TRUTH, Restored
from wardround.analyst.learning.request import parse_request
from wardround.federation.errors import MalformedMessage, PeerUnreachable, PlanRefused
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.plan.recalled import Recalled
from wardround.federation.trust.enrolment import Presenting
from wardround.federation.trust.entry import Entry, Head, make_entry

REQUEST = parse_request('kind = "linear"\ntable = "visits"\ntarget = "sbp"\nfeatures = ["age"]\nepsilon = 40.0\n')


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Restored]:
    """Recovered, with what was asked forgotten, and no site back."""
    made = Restored(tmp_path)
    copy = made.copy("consortium")
    made.ask(AGES)
    made.settle()
    made.restore("consortium", copy)
    recover(tmp_path / "consortium", Confirmed(tuple(TRUTH), (), ("ada",)))
    made.serve()
    yield made
    made.close()


def recollection(stage: Restored) -> tuple[tuple[Entry, ...], Recalled, Head]:
    """What site two recalls of the one question."""
    standing = stage.coordinator.greet("two", Presenting())
    assert standing.recovered is not None
    found = stage.agents["two"].ledger.recollection(standing.known, standing.recovered)
    (plan,) = found.plans
    return found.chain, plan, found.head


def test_a_site_is_asked_nothing_and_gives_nothing_before_it_is_back(stage: Restored) -> None:
    _, plan, _ = recollection(stage)
    with pytest.raises(PeerUnreachable, match="show its ledger first"):
        stage.coordinator.claim("two", wait_seconds=0.0)
    assert plan.answer is not None
    with pytest.raises(PeerUnreachable):
        stage.coordinator.submit("two", plan.answer)


def test_a_charge_that_was_not_shown_is_not_imported(stage: Restored) -> None:
    _, plan, _ = recollection(stage)
    with pytest.raises(MalformedMessage, match="not in the ledger that the site showed"):
        stage.coordinator.recall("two", plan)
    assert stage.known("two") == {}


def test_a_charge_of_other_amounts_than_the_plan_costs_is_not_imported(stage: Restored) -> None:
    chain, plan, _ = recollection(stage)
    identity = stage.agents["two"].ledger._identity
    assert plan.charged is not None
    before = Head(plan.charged.sequence - 1, plan.charged.previous)
    body = plan.charged.body.replace('"pure":"', '"pure":"9')
    forged = make_entry(identity, after=before, kind="charged", body=body)
    stage.coordinator.show("two", (*chain[: chain.index(plan.charged)], forged))
    with pytest.raises(MalformedMessage, match="not what its facts cost"):
        stage.coordinator.recall("two", replace(plan, charged=forged))
    assert stage.known("two") == {}


def test_a_site_that_leaves_out_what_it_signed_is_not_back(stage: Restored) -> None:
    chain, plan, head = recollection(stage)
    stage.coordinator.show("two", chain[:-1])
    stage.coordinator.recall("two", replace(plan, answer=None))
    with pytest.raises(MalformedMessage, match="did not show all of its ledger"):
        stage.coordinator.rejoin("two", head)
    assert stage.coordinator.ledger.recovery.awaited() == ("one", "three", "two")


def test_what_was_charged_and_not_recalled_is_imported_all_the_same(stage: Restored) -> None:
    chain, _, head = recollection(stage)
    stage.coordinator.show("two", chain)
    stage.coordinator.rejoin("two", head)
    assert stage.known("two") == stage.charged("two")
    stage.settle()
    with pytest.raises(PlanRefused, match="is lost"):
        stage.ask(AGES)
    stage.check()


def test_a_receipt_of_somebody_else_proves_nothing_and_stops_nothing(stage: Restored) -> None:
    chain, plan, head = recollection(stage)
    assert plan.receipt is not None
    forged = make_entry(
        ADA, after=Head(plan.receipt.sequence - 1, plan.receipt.previous), kind="received", body=plan.receipt.body
    )
    stage.coordinator.greet("two", Presenting(None, forged))
    stage.coordinator.show("two", chain)
    stage.coordinator.recall("two", replace(plan, receipt=forged))
    stage.coordinator.rejoin("two", head)
    stage.settle()
    with pytest.raises(PlanRefused, match="is lost"):
        stage.ask(AGES)
    stage.ask(fresh=True)
    stage.check()


def test_a_plan_of_another_site_is_not_recalled(stage: Restored) -> None:
    _, plan, _ = recollection(stage)
    assert plan.plan is not None
    other = replace(plan.plan, participants=("one", "three"))
    with pytest.raises(MalformedMessage, match="by a site that it does not ask"):
        stage.coordinator.recall("two", Recalled(other.plan_id, other))


def test_a_recovery_that_nobody_signed_is_not_believed(stage: Restored) -> None:
    standing = stage.coordinator.greet("two", Presenting())
    assert standing.recovered is not None
    forged = make_entry(ADA, after=Head(1, "a" * 64), kind="recovered", body=encode_body({"incarnation": 1}))
    agent = stage.agents["two"]
    agent.link.upkeep = lambda _=None: replace(standing, recovered=forged)  # type: ignore[method-assign]
    with pytest.raises(Exception, match="did not sign that"):
        agent.meet()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Restored]:
    """Hospitals that allow a whole training as one plan."""
    made = Restored(tmp_path)
    for name, agent in made.agents.items():
        policy = replace(agent.pipeline.policy, max_epsilon_per_plan=100.0)
        agent.pipeline = replace(agent.pipeline, policy=policy)
        made.coordinator.note_limits(name, policy.public())
    yield made
    made.close()


def test_a_training_that_was_forgotten_is_lost_as_a_whole_and_begins_afresh(training: Restored) -> None:
    stage = training
    copy = stage.copy("consortium")
    stage.client().train(REQUEST)
    stage.settle()
    charged = {site: stage.charged(site) for site in TRUTH}
    stage.restore("consortium", copy)
    stage.recover()
    with pytest.raises(PlanRefused, match="is lost"):
        stage.client().train(REQUEST)
    stage.client().train(REQUEST, fresh=True)
    assert all(charged[site].items() < stage.charged(site).items() for site in TRUTH)
    stage.check()


def test_a_training_that_had_begun_goes_on_with_the_rounds_that_were_answered(training: Restored) -> None:
    stage = training
    copies: list[Path] = []
    first = stage.client().train(REQUEST, on_round=lambda _: copies.append(stage.copy("consortium")))
    stage.settle()
    # Of the moment before the second round.
    stage.restore("consortium", copies[1])
    stage.recover()
    again = stage.client().train(REQUEST)
    assert str(again.document()["coefficients"]) == str(first.document()["coefficients"])
    stage.check()
