"""Questions that waited, were approved or were paid for under a version that did not ask who asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.words import TASK, stored_task
from site_agent.store import ledger
from tests.fixtures.asking import asked_by
from tests.site_agent.answering.test_hostile_asking import bodies
from tests.site_agent.answering.test_hostile_training import TRAINED, step
from tests.site_agent.answering.test_hostile_training import plan as training_plan
from tests.site_agent.lone_site import LoneSite
from wardround.federation import canonical
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import cost_body, facts_body
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.task import Declined, Pending, Released, SignedTask


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoneSite]:
    # A ledger that was begun before entries spoke of every row.
    monkeypatch.setattr(ledger, "FROM_THE_BEGINNING", {})
    made = LoneSite(tmp_path, study=TRAINED)
    made.rows.total = 5
    yield made
    made.ledger.close()
    assert verify(tmp_path).problems == ()


def waited(site: LoneSite, plan: Plan, state: str, *, as_message: bool = False) -> SignedTask:
    """A request as that version left it: the task alone, and the steward's word."""
    signed = dataclasses.replace(site.task(plan), asked_by=None)
    content = TASK.encode(signed) if as_message else canonical.encode(signed)
    with site.ledger._database.transaction() as connection:
        connection.execute(
            "INSERT INTO requests VALUES (?, ?, 'as it was', ?, '2026-01-01')", (plan.plan_id, content, state)
        )
    return signed


def paid(site: LoneSite, plan: Plan) -> None:
    """A round of a training that was charged whole, and nobody wrote down for whom."""
    charge = price(plan, site.study)
    body = {"plan_id": plan.plan_id, "account": "ehr", "facts": facts_body(charge.facts), **cost_body(charge.cost)}
    with site.ledger._database.transaction() as connection:
        entry = chain.append(connection, site.identity, kind="charged", body=body)
        connection.execute("INSERT INTO charges VALUES (?, ?)", (plan.plan_id, entry.sequence))
        connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (charge.block, charge.place, plan.plan_id))
        connection.execute(
            "UPDATE accounts SET mu_squared = mu_squared + ?, slack = slack + ?",
            (charge.cost.mu_squared, charge.cost.slack),
        )


def test_what_was_approved_before_is_answered_and_signed_by_nobody(site: LoneSite) -> None:
    signed = waited(site, site.plan(), "approved")
    assert site.ledger.decided() == [signed]
    assert isinstance(site.pipeline.run(signed), Released)
    (approved,), (charged,) = bodies(site, "approved"), bodies(site, "charged")
    assert (approved["by"], charged["approved_by"], charged["asked"]) == ("", "", "")
    assert bodies(site, "held") == []


def test_what_waited_before_is_taken_over_by_a_signed_entry(site: LoneSite, tmp_path: Path) -> None:
    signed = waited(site, site.plan(), "pending")
    assert verify(tmp_path).unattested == ("requests",)
    site.ledger.attest_rows()
    site.ledger.attest_rows()
    assert [body["table"] for body in bodies(site, "attested")] == ["requests", ""]
    assert verify(tmp_path).unattested == ()
    with site.ledger._database.transaction() as connection:
        connection.execute("UPDATE requests SET summary = 'as it was not'")
    assert {problem.code for problem in verify(tmp_path).problems} == {"WrongIndex"}
    with site.ledger._database.transaction() as connection:
        connection.execute("UPDATE requests SET summary = 'as it was'")
    site.ledger.decide(signed.task.plan.plan_id, approve=True, by="eve")
    assert isinstance(site.pipeline.run(signed), Released)


def test_what_waited_before_is_approved_now(site: LoneSite) -> None:
    signed = waited(site, site.plan(), "pending")
    assert isinstance(site.pipeline.run(signed), Pending)
    site.ledger.decide(signed.task.plan.plan_id, approve=True, by="eve")
    assert isinstance(site.pipeline.run(signed), Released)
    (charged,) = bodies(site, "charged")
    assert charged["approved_by"] == "eve"


@pytest.mark.parametrize("as_message", [False, True])
def test_what_waited_before_is_denied_before_the_agent_is_started_again(site: LoneSite, *, as_message: bool) -> None:
    signed = waited(site, site.plan(), "pending", as_message=as_message)
    site.ledger.decide(signed.task.plan.plan_id, approve=False, by="eve")
    site.ledger.rewrite_messages(stored_task)
    assert site.ledger.decided() == [signed]
    assert isinstance(site.pipeline.run(signed), Declined)
    (refused,) = bodies(site, "refused")
    assert (refused["code"], "asked" in refused) == ("ApprovalDenied", False)


def test_a_training_that_began_before_goes_on_signed_or_not(site: LoneSite) -> None:
    first, *others = (training_plan(site, step(turn)) for turn in range(3))
    paid(site, first)
    unsigned = dataclasses.replace(site.task(others[0]), asked_by=None)
    assert isinstance(site.pipeline.run(unsigned), Released)
    signed = dataclasses.replace(site.task(others[1]), asked_by=asked_by(others[1]))
    assert isinstance(site.pipeline.run(signed), Released)
    assert isinstance(site.pipeline.run(site.task(first)), Released), "nor is what it was paid for lost"
