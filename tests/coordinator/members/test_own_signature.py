"""An analyst's own signature at the coordinator: checked before anything is charged, remembered, and handed on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from tests.coordinator.rounds.test_trainings import step
from tests.fixtures.asking import ADA
from wardround.federation import canonical
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.ledger.entry_body import decode_body
from wardround.federation.plan.task import AskRequest, sign_request
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost

BEN = Identity.generate()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = oracle(tmp_path)
    made.coordinator.roster.add_analyst("ben")
    return made


def signed(
    world: World, request: AskRequest, identity: Identity = ADA, *, analyst: str = ANALYST, purpose: str = ""
) -> AskRequest:
    study_hash = world.study.study_hash
    return sign_request(request, identity, analyst=analyst, study_hash=study_hash, purpose=purpose)


def reserved(world: World) -> list[dict[str, object]]:
    with world.coordinator.ledger.database.reading() as connection:
        rows = connection.execute("SELECT body FROM entries WHERE kind = 'reserved' ORDER BY sequence").fetchall()
    return [decode_body(body) for (body,) in rows]


def test_who_asked_is_in_the_charge_and_goes_to_every_site(world: World) -> None:
    request = signed(world, ask(0.5, delta=1e-7), purpose="a pilot")
    world.ask(request)
    asked_by = request.asked_by
    assert asked_by is not None
    (body,) = reserved(world)
    assert {key: body[key] for key in ("analyst", "analyst_key", "asked", "epsilon", "delta")} == {
        "analyst": ANALYST,
        "analyst_key": ADA.public.key,
        "asked": canonical.digest(asked_by),
        "epsilon": "0.5",
        "delta": "1e-07",
    }
    for hospital in world.hospitals.values():
        (seen,) = hospital.seen
        assert seen.asked_by == asked_by
        assert seen.signed_by(world.identity.public)
    world.close()
    assert world.verified().problems == ()


def test_every_kind_of_question_is_handed_on_with_its_signature(world: World) -> None:
    by_error = AskRequest(ask().query, None, None, "ab", (20.0,))
    for request in (ask(nonce="cd"), by_error, step(0)):
        world.ask(signed(world, request))
    for hospital in world.hospitals.values():
        assert [task.asked_by is not None for task in hospital.seen] == [True] * 3
    world.close()


def test_an_analyst_of_an_earlier_version_asks_as_before(world: World) -> None:
    world.ask(ask())
    (body,) = reserved(world)
    assert (body["analyst"], body["asked"]) == (ANALYST, "")
    assert "analyst_key" not in body
    assert all(task.asked_by is None for hospital in world.hospitals.values() for task in hospital.seen)
    world.close()
    assert world.verified().problems == ()


def test_whoever_asks_first_is_remembered(world: World) -> None:
    first = signed(world, ask(), purpose="a pilot")
    plan_id = world.coordinator.ask(ANALYST, first)
    assert world.coordinator.ask("ben", signed(world, ask(), BEN, analyst="ben", purpose="an audit")) == plan_id
    assert world.coordinator.ask(ANALYST, ask()) == plan_id
    question = world.coordinator.ledger.rounds.question(plan_id)
    assert question is not None
    assert (question.analyst, question.asked_by) == (ANALYST, first.asked_by)
    world.restart()
    assert world.coordinator.ledger.rounds.asked_by(plan_id) == first.asked_by
    world.close()


def test_a_signature_under_another_name_than_the_callers_is_refused(world: World) -> None:
    stolen = signed(world, ask())
    with pytest.raises(MalformedMessage, match="under another name"):
        world.coordinator.ask("ben", stolen)
    assert reserved(world) == []
    assert world.spent() == Cost.zero()
    world.close()


@pytest.mark.parametrize("other", ["another question", "another nonce", "another study", "another key"])
def test_a_signature_that_no_site_would_accept_charges_nothing(world: World, other: str) -> None:
    changed = {
        "another question": lambda: signed(world, ask(query=Query("encounters", (Aggregate(Statistic.COUNT),)))),
        "another nonce": lambda: signed(world, ask(nonce="ab")),
        "another study": lambda: sign_request(ask(), ADA, analyst=ANALYST, study_hash="0" * 64),
        "another key": lambda: signed(world, ask(), BEN),
    }[other]()
    asked_by = changed.asked_by
    assert asked_by is not None
    if other == "another key":
        asked_by = dataclasses.replace(asked_by, key=ADA.public)
    with pytest.raises(QueryMistaken, match="does not cover it"):
        world.coordinator.ask(ANALYST, dataclasses.replace(ask(), asked_by=asked_by))
    assert reserved(world) == []
    world.close()


def test_a_question_that_a_site_would_read_otherwise_is_told_before_it_is_charged(world: World) -> None:
    """A literal of another type is another question in a signature, though the coordinator would type it."""
    loose = Query("encounters", (Aggregate(Statistic.COUNT),), Comparison("sbp", Operator.GREATER, 140))
    assert world.coordinator.preview(ANALYST, ask(query=loose)).sites
    with pytest.raises(QueryMistaken, match="bring wardround on this machine to the coordinator's version"):
        world.coordinator.ask(ANALYST, signed(world, ask(query=loose)))
    assert reserved(world) == []
    world.close()
