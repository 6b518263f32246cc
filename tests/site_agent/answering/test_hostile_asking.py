"""A coordinator that puts words into an analyst's mouth: nothing is charged or read unless a steward says so."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from site_agent.answering.admission import Approval
from site_agent.store.askers import Asking, Pinned
from site_agent.store.requests import RequestState
from site_agent.store.shared_account import Folder, SharedAccount
from tests.fixtures.asking import ADA, ANALYST, asked_by
from tests.site_agent.answering.test_hostile_training import TRAINED, step
from tests.site_agent.answering.test_hostile_training import plan as training_plan
from tests.site_agent.lone_site import COUNT, NAME, STUDY, LoneSite
from wardround.federation import canonical
from wardround.federation.errors import AwaitingApproval
from wardround.federation.ledger.entry_body import decode_body
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.task import Declined, Pending, Released, SignedTask, Submission
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.entry import EMPTY
from wardround.federation.trust.identity import Identity, Purpose
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_charged
from wardround.privacy.noise.distribution import Mechanism

MALLORY = Identity.generate()
AVERAGE = "SELECT AVG(sbp) FROM visits"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoneSite]:
    """A site that knows ada, who has asked before."""
    made = LoneSite(tmp_path, study=TRAINED, max_epsilon_per_plan=3.0)
    made.ledger.analysts.trust(ANALYST, ADA.public, by="ann")
    made.rows.total = 7
    yield made
    made.ledger.close()
    assert verify(tmp_path).problems == ()


def shown(site: LoneSite, plan: Plan, asked: AskedBy | None) -> SignedTask:
    """The plan as its coordinator hands it out, with this about who asked."""
    return dataclasses.replace(site.task(plan), asked_by=asked)


def run(site: LoneSite, plan: Plan, asked: AskedBy | None) -> Submission:
    return site.pipeline.run(shown(site, plan, asked))


def unhurt(site: LoneSite) -> bool:
    return not site.read and site.spent == Cost.zero()


def bodies(site: LoneSite, kind: str) -> list[dict[str, object]]:
    with site.ledger._database.reading() as connection:
        rows = connection.execute("SELECT body FROM entries WHERE kind = ? ORDER BY sequence", (kind,)).fetchall()
    return [decode_body(body) for (body,) in rows]


# --- what is refused ------------------------------------------------------------------------------------------

LIES: dict[str, Callable[[LoneSite, Plan], AskedBy]] = {
    "her signature on another question": lambda s, _: asked_by(s.plan(AVERAGE)),
    "her signature on the question with another nonce": lambda s, _: asked_by(s.plan(nonce="ab")),
    "her signature on the question in another study": lambda _, plan: asked_by(
        dataclasses.replace(plan, study_hash="0" * 64)
    ),
    "another analyst's signature under her name": lambda _, plan: dataclasses.replace(
        asked_by(plan, MALLORY, analyst="mallory"), analyst=ANALYST
    ),
    "her signature under another name": lambda _, plan: dataclasses.replace(asked_by(plan), analyst="ben"),
    "her signature beside another key": lambda _, plan: dataclasses.replace(asked_by(plan), key=MALLORY.public),
    "another's signature beside her key": lambda _, plan: dataclasses.replace(asked_by(plan, MALLORY), key=ADA.public),
    "another purpose": lambda _, plan: dataclasses.replace(asked_by(plan, purpose="a pilot"), purpose="an audit"),
    "a larger ε than she signed": lambda _, plan: dataclasses.replace(asked_by(plan, epsilon=0.1), epsilon=1.0),
    "no ε where she signed one": lambda _, plan: dataclasses.replace(asked_by(plan, epsilon=0.5), epsilon=None),
    "a larger δ than she signed": lambda _, plan: dataclasses.replace(asked_by(plan, delta=1e-9), delta=1e-6),
    "her signature as if it were on a ledger's entry": lambda _, plan: dataclasses.replace(
        asked_by(plan),
        signature=ADA.sign(
            Purpose.ENTRY, asked_by(plan).message(plan.study_hash, canonical.encode(plan.query), plan.nonce)
        ),
    ),
    "no signature at all": lambda _, plan: dataclasses.replace(asked_by(plan), signature=bytes(64)),
    "a plan that is dearer than the ε she signed": lambda _, plan: asked_by(plan, epsilon=0.49),
    "a plan that is dearer at the δ she signed": lambda _, plan: asked_by(plan, epsilon=0.5, delta=1e-9),
    "a plan that is dearer than the study's default, which she left it to": lambda _, plan: asked_by(
        plan, epsilon=None
    ),
    "a plan that is dearer than the most she would pay for an error": lambda _, plan: asked_by(
        plan, epsilon=0.25, errors=(5.0,)
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_she_did_not_sign_is_refused_before_anything_is_spent(site: LoneSite, lie: str) -> None:
    plan = site.plan()
    reply = run(site, plan, LIES[lie](site, plan))
    assert isinstance(reply, Declined), reply
    assert reply.code == "SignatureNotValid"
    assert unhurt(site)
    assert site.ledger.requests() == []


@pytest.mark.parametrize("mechanism", [Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE])
def test_a_plan_for_exactly_what_she_signed_is_answered(site: LoneSite, mechanism: Mechanism) -> None:
    for epsilon in (0.25, 0.1, 1 / 7):
        plan = site.plan(epsilon=epsilon, mechanism=mechanism)
        assert isinstance(run(site, plan, asked_by(plan, epsilon=epsilon)), Released)
    left = site.plan(epsilon=0.4, mechanism=mechanism, nonce="cd")
    assert isinstance(run(site, left, asked_by(left, epsilon=None)), Released), "a tenth of the study's ε"


def test_the_price_is_that_of_a_patient_at_all_its_sites(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=STUDY.replace("overlap = 1", "overlap = 2"))
    dear, honest = site.plan(epsilon=0.6), site.plan(epsilon=0.5)
    assert epsilon_charged(price(dear, site.study).cost, delta=1e-6) < 0.5, "here alone it is cheaper"
    assert isinstance(run(site, dear, asked_by(dear, epsilon=0.5)), Declined)
    assert isinstance(run(site, honest, asked_by(honest, epsilon=0.5)), Released)
    site.ledger.close()


def test_a_threshold_that_takes_more_of_delta_than_she_signed_is_refused(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=STUDY.replace(', values = ["a", "b", "c"]', ""))
    plan = site.plan("SELECT KEYS(code) FROM visits", epsilon=0.5, mechanism=Mechanism.DISCRETE_LAPLACE)
    assert isinstance(run(site, plan, asked_by(plan, epsilon=0.5, delta=1e-10)), Declined)
    other = dataclasses.replace(plan, nonce="ab")
    assert isinstance(run(site, other, asked_by(other, epsilon=0.5, delta=1e-6)), Released)
    site.ledger.close()


def test_a_lie_is_kept_as_it_was_told(site: LoneSite) -> None:
    plan = site.plan()
    lie = asked_by(site.plan(AVERAGE))
    run(site, plan, lie)
    (refused,) = bodies(site, "refused")
    assert refused["asked"] == canonical.digest(lie)
    assert "analyst" not in refused, "nothing is said of who asked that was not proved"


def test_only_those_whom_the_hospital_lists_may_ask(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, analysts=("amira",))
    plan = site.plan()
    reply = run(site, plan, asked_by(plan))
    assert isinstance(reply, Declined)
    assert reply.code == "AnalystNotAllowed"
    assert unhurt(site)
    assert site.ledger.analysts.listed() == [], "a stranger is not remembered"
    other = site.plan(nonce="ab")
    assert isinstance(run(site, other, asked_by(other, analyst="amira")), Released)
    site.ledger.close()


# --- what waits -----------------------------------------------------------------------------------------------

DOUBTS: dict[str, Callable[[Plan], AskedBy | None]] = {
    "the signature was left out": lambda _: None,
    "her name under a key that the coordinator made": lambda plan: asked_by(plan, MALLORY),
}


@pytest.mark.parametrize("approval", Approval)
@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_is_not_known_to_be_hers_waits_for_the_steward(tmp_path: Path, doubt: str, approval: Approval) -> None:
    site = LoneSite(tmp_path, approval=approval)
    site.ledger.analysts.trust(ANALYST, ADA.public, by="ann")
    plan = site.plan()
    task = shown(site, plan, DOUBTS[doubt](plan))
    for _ in range(3):
        assert isinstance(site.pipeline.run(task), Pending)
    assert unhurt(site)
    (request,) = site.ledger.requests()
    site.ledger.decide(request.plan_id, approve=True, by="eve")
    (decided,) = site.ledger.decided()
    assert decided == task
    released = site.pipeline.run(decided)
    assert isinstance(released, Released)
    assert site.pipeline.run(task) == released, "the same bytes, whoever is said to ask"
    (charged,) = bodies(site, "charged")
    assert charged["approved_by"] == "eve"
    # A yes to one question is no yes to the key.
    (pin,) = site.ledger.analysts.listed()
    assert (pin.key, pin.how) == (ADA.public, Pinned.STEWARD)
    again = site.plan(nonce="ab")
    assert isinstance(run(site, again, DOUBTS[doubt](again)), Pending)
    site.ledger.close()
    assert verify(tmp_path).problems == ()


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_steward_who_denies_refuses_it_for_good(site: LoneSite, doubt: str) -> None:
    plan = site.plan()
    run(site, plan, DOUBTS[doubt](plan))
    site.ledger.decide(plan.plan_id, approve=False, by="eve")
    reply = run(site, plan, asked_by(plan))
    assert isinstance(reply, Declined)
    assert reply.code == "ApprovalDenied"
    assert [body["by"] for body in bodies(site, "denied")] == ["eve"]
    assert unhurt(site)


def test_a_question_that_waits_unsigned_does_not_run_once_a_signature_is_found(site: LoneSite) -> None:
    """Whoever was said to ask when the steward looked is who asked."""
    plan = site.plan()
    assert isinstance(run(site, plan, None), Pending)
    assert isinstance(run(site, plan, asked_by(plan)), Pending)
    (request,) = site.ledger.requests()
    assert request.signed().asked_by is None
    site.ledger.decide(plan.plan_id, approve=True, by="eve")
    assert isinstance(run(site, plan, asked_by(plan, purpose="something else")), Released)
    (charged,) = bodies(site, "charged")
    assert charged["asked"] == ""
    assert "analyst" not in charged


def test_the_purpose_that_a_steward_approved_is_the_one_that_is_kept(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    plan = site.plan()
    first = asked_by(plan, purpose="a pilot")
    assert isinstance(run(site, plan, first), Pending)
    site.ledger.decide(plan.plan_id, approve=True, by="eve")
    assert isinstance(run(site, plan, asked_by(plan, purpose="an audit")), Released)
    (charged,) = bodies(site, "charged")
    assert charged["asked"] == canonical.digest(first)
    assert (charged["analyst"], charged["analyst_key"]) == (ANALYST, ADA.public.key)
    site.ledger.close()
    assert verify(tmp_path).problems == ()


def test_a_replayed_question_is_answered_once_and_with_others_it_is_another_charge(site: LoneSite) -> None:
    """Who takes part is the coordinator's to say: the ledger shows that one signature was used twice."""
    plan = site.plan()
    asked = asked_by(plan)
    first = run(site, plan, asked)
    spent = site.spent
    assert run(site, plan, asked) == first
    assert site.spent == spent
    other = site.plan(participants=(NAME, "south", "west"))
    assert isinstance(run(site, other, asked), Released)
    assert site.spent == spent + price(other, site.study).cost
    assert len({body["asked"] for body in bodies(site, "charged")}) == 1


# --- the first sight ------------------------------------------------------------------------------------------


def test_a_new_name_is_remembered_with_the_charge_logged_and_believed_from_then_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = LoneSite(tmp_path)
    plan = site.plan()
    with caplog.at_level(logging.INFO, "wardround.site"):
        assert isinstance(run(site, plan, asked_by(plan)), Released)
    assert ADA.public.fingerprint in caplog.text
    (pin,) = site.ledger.analysts.listed()
    assert (pin.analyst, pin.key, pin.how) == (ANALYST, ADA.public, Pinned.FIRST_SIGHT)
    other = site.plan(nonce="ab")
    assert isinstance(run(site, other, asked_by(other, MALLORY)), Pending)
    assert [body["key"] for body in bodies(site, "pinned")] == [ADA.public.key]
    site.ledger.close()
    assert verify(tmp_path).problems == ()


def test_a_question_that_is_not_charged_makes_nobody_known(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, max_epsilon_per_plan=8.0)
    dear = site.plan(epsilon=4.5)
    reply = run(site, dear, asked_by(dear))
    assert isinstance(reply, Declined)
    assert reply.code == "BudgetExceeded"
    assert site.ledger.analysts.listed() == []
    site.ledger.close()
    assert verify(tmp_path).problems == ()


def test_a_name_becomes_known_when_its_first_question_begins_to_wait(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    plan = site.plan()
    run(site, plan, asked_by(plan))
    (pin,) = site.ledger.analysts.listed()
    assert pin.how is Pinned.FIRST_SIGHT
    site.ledger.close()
    assert verify(tmp_path).problems == ()


def test_a_key_that_changes_between_the_look_and_the_charge_charges_nothing(site: LoneSite, tmp_path: Path) -> None:
    plan = site.plan()
    folder = Folder(NAME, site.study.study_hash, site.study.unit)
    shared = SharedAccount(tmp_path / "account.sqlite", dataset="ehr", folder=folder, cap=site.policy.cap,
                           keeping=Durability.FILE)  # fmt: skip
    pipeline = dataclasses.replace(site.pipeline, shared=shared)
    held = asked_by(plan, MALLORY)
    with pytest.raises(AwaitingApproval):
        pipeline._spend(price(plan, site.study), Asking(plan, held), EMPTY, "visits")
    assert unhurt(site)
    assert shared.spent() == Cost.zero(), "nor is the account that it shares"
    assert isinstance(pipeline.run(shown(site, plan, held)), Pending)
    shared.close()


# --- trainings ------------------------------------------------------------------------------------------------


def rounds(site: LoneSite, turn: int, asker: Callable[[Plan], AskedBy | None]) -> Submission:
    plan = training_plan(site, step(turn))
    return run(site, plan, asker(plan))


def test_every_round_of_a_training_is_signed_or_waits(site: LoneSite) -> None:
    assert isinstance(rounds(site, 0, asked_by), Released)
    for asker in DOUBTS.values():
        assert isinstance(rounds(site, 1, asker), Pending), "nobody else says where her model goes next"
    assert isinstance(rounds(site, 2, asked_by), Released)
    plan = training_plan(site, step(1, weight=1.0))
    assert isinstance(run(site, plan, asked_by(training_plan(site, step(1)))), Declined), "nor with other numbers"


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_training_that_a_steward_approved_goes_on_for_whoever_began_it(site: LoneSite, doubt: str) -> None:
    assert isinstance(rounds(site, 0, DOUBTS[doubt]), Pending)
    (request,) = site.ledger.requests()
    site.ledger.decide(request.plan_id, approve=True, by="eve")
    for turn in (0, 1, 2):
        assert isinstance(rounds(site, turn, DOUBTS[doubt]), Released)
    assert [body.get("approved_by") for body in bodies(site, "charged")] == ["eve", None, None]
    assert [each.state for each in site.ledger.requests()] == [RequestState.APPROVED]


def test_a_training_under_a_key_that_a_steward_replaced_waits(site: LoneSite) -> None:
    assert isinstance(rounds(site, 0, asked_by), Released)
    site.ledger.analysts.trust(ANALYST, MALLORY.public, by="ann")
    assert isinstance(rounds(site, 1, asked_by), Pending)


def test_another_analysts_round_of_an_approved_training_is_another_decision(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=TRAINED, approval=Approval.MANUAL)
    site.rows.total = 5
    assert isinstance(rounds(site, 0, asked_by), Pending)
    (request,) = site.ledger.requests()
    site.ledger.decide(request.plan_id, approve=True, by="eve")
    for turn in (0, 1):
        assert isinstance(rounds(site, turn, asked_by), Released)
    assert isinstance(rounds(site, 2, lambda plan: asked_by(plan, MALLORY, analyst="mallory")), Pending)
    site.ledger.close()
    assert verify(tmp_path).problems == ()


def test_the_query_of_a_count_is_one_plan_whoever_asks(site: LoneSite) -> None:
    plan = site.plan(COUNT)
    first = run(site, plan, asked_by(plan, purpose="a pilot"))
    assert run(site, plan, asked_by(plan, MALLORY, analyst="mallory", purpose="an audit")) == first
    assert len(bodies(site, "charged")) == 1
