"""What a site hands in is authentic, expected and taken once; a chain that contradicts itself is silenced."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from coordinator.accounts.accounting import question_of
from tests.coordinator.hospitals import ANALYST, Hospital, World, ask, oracle
from wardround.federation.errors import (
    AwaitingApproval,
    MalformedMessage,
    NotAuthorized,
    ReleaseConflict,
    SiteFrozen,
    UnknownTask,
)
from wardround.federation.forms.release import Release, release_hash
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import Declined, Failed, Pending, Released, Submission
from wardround.federation.question.answer import SiteState
from wardround.federation.trust.entry import Entry, Head, make_entry
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost


@pytest.fixture
def world(tmp_path: Path) -> World:
    return oracle(tmp_path)


def opened(world: World, *, nonce: str = "") -> tuple[Plan, Hospital]:
    """A plan that is open, and the hospital that has it."""
    plan_id = world.coordinator.ask(ANALYST, ask(0.2, nonce=nonce))
    return question_of(world.coordinator.ledger, plan_id).plan, world.hospitals["two"]


def frozen(world: World, name: str = "two") -> bool:
    return {site.name: site.frozen for site in world.coordinator.budget(ANALYST).sites}[name]


def refused_without_a_trace(world: World, submission: Submission, sentence: str) -> None:
    entries = world.kinds()
    with pytest.raises(MalformedMessage) as fault:
        world.coordinator.submit("two", submission)
    assert fault.value.message == sentence
    assert world.kinds() == entries
    assert not frozen(world)


def test_the_same_bytes_again_get_the_same_receipt(world: World) -> None:
    plan, two = opened(world)
    release = two.release(plan)
    first = world.coordinator.submit("two", release)
    assert first is not None
    assert first.signed_by(world.identity.public)
    assert world.coordinator.submit("two", release) == first


def test_the_receipt_names_the_sites_own_entry_and_the_bytes(world: World) -> None:
    plan, two = opened(world)
    release = two.release(plan)
    receipt = world.coordinator.submit("two", release)
    assert receipt is not None
    assert receipt.body == encode_body(
        {
            "plan_id": plan.plan_id,
            "site": "two",
            "release_hash": release_hash(release.payload),
            "sequence": release.entry.sequence,
            "digest": release.entry.digest,
        }
    )


def test_other_bytes_under_the_same_plan_freeze_the_site(world: World) -> None:
    plan, two = opened(world)
    world.coordinator.submit("two", two.release(plan))
    with pytest.raises(ReleaseConflict):
        world.coordinator.submit("two", two.release(plan, values=two.values(plan) + 1))
    assert frozen(world)
    assert world.kinds()[-1] == "frozen"
    with pytest.raises(SiteFrozen):
        world.coordinator.claim("two", wait_seconds=0)
    with pytest.raises(SiteFrozen):
        world.coordinator.submit("two", Pending(plan.plan_id))
    assert world.watch(plan.plan_id).estimates[0].value == 111, "what was received before stays"
    assert world.verified().valid


def test_a_refusal_after_a_release_freezes_the_site(world: World) -> None:
    plan, two = opened(world)
    world.coordinator.submit("two", two.release(plan))
    spent = world.spent()
    with pytest.raises(ReleaseConflict):
        world.coordinator.submit("two", two.decline(plan))
    assert frozen(world)
    assert world.spent() == spent


def test_a_frozen_site_is_left_out_of_the_next_question(world: World) -> None:
    world.coordinator.roster.freeze("two", "for the test")
    answer = world.ask()
    assert (answer.estimates[0].value, answer.answered) == (101, ("one", "three"))


def test_two_entries_at_one_place_freeze_the_site(world: World) -> None:
    first, two = opened(world)
    second, _ = opened(world, nonce="02")
    before = two.head
    world.coordinator.submit("two", two.release(first))
    two.head = before  # a cloned machine goes on from the same place
    with pytest.raises(SiteFrozen):
        world.coordinator.submit("two", two.release(second))
    assert frozen(world)


def test_two_histories_of_one_entry_freeze_the_site(world: World) -> None:
    first, two = opened(world)
    second, _ = opened(world, nonce="02")
    before = two.head
    world.coordinator.submit("two", two.release(first))
    two.head = before
    # One entry further: its own place is new, but the place before it is known with another digest.
    two.sign("charged", plan_id="x")
    with pytest.raises(SiteFrozen):
        world.coordinator.submit("two", two.release(second))
    assert frozen(world)


def test_an_answer_that_stands_before_its_plan_freezes_the_site(world: World) -> None:
    two = world.hospitals["two"]
    for number in range(5):
        two.sign("capped", account=str(number))  # places that the coordinator never sees
    world.ask()
    plan, _ = opened(world, nonce="02")
    two.head = Head(2, "ab" * 32)  # a restored snapshot that lost what it had signed
    with pytest.raises(SiteFrozen):
        world.coordinator.submit("two", two.decline(plan))
    assert frozen(world)


def test_an_honest_site_may_deliver_two_answers_in_either_order(world: World) -> None:
    first, two = opened(world)
    second, _ = opened(world, nonce="02")
    earlier, later = two.release(first), two.release(second)
    world.coordinator.submit("two", later)
    world.coordinator.submit("two", earlier)
    assert not frozen(world)
    third, _ = opened(world, nonce="03")
    signed = world.coordinator.claim("two", wait_seconds=0)
    assert signed is not None
    assert signed.task.plan == third
    assert signed.task.head == later.entry.head


def test_a_revocation_between_looking_and_writing_still_holds(world: World) -> None:
    plan, two = opened(world)
    database = world.coordinator.ledger.database
    real = database.transaction

    @contextlib.contextmanager
    def overtaken() -> Iterator[sqlite3.Connection]:
        database.transaction = real  # type: ignore[method-assign]
        world.coordinator.roster.revoke("two")
        with real() as connection:
            yield connection

    database.transaction = overtaken  # type: ignore[method-assign]
    with pytest.raises(NotAuthorized):
        world.coordinator.submit("two", two.release(plan))
    assert "received" not in world.kinds()


def test_a_task_that_was_never_opened_is_unknown(world: World) -> None:
    plan, two = opened(world)
    other = dataclasses.replace(plan, nonce="ff")
    for submission in (two.release(other), two.decline(other), Pending(other.plan_id), Failed(other.plan_id)):
        with pytest.raises(UnknownTask):
            world.coordinator.submit("two", submission)


def test_a_site_that_is_no_participant_cannot_answer(world: World) -> None:
    plan, _ = opened(world)
    four = world.enrol("four", count=1000)
    with pytest.raises(UnknownTask):
        world.coordinator.submit("four", four.release(plan))
    assert world.watch(plan.plan_id).estimates[0].value == 111


@pytest.mark.parametrize("size", [0, 2, 1000])
def test_a_release_of_another_length_is_malformed(world: World, size: int) -> None:
    plan, two = opened(world)
    refused_without_a_trace(
        world,
        two.release(plan, values=np.zeros(size, dtype=np.int64)),
        "the release does not have as many values as the plan.",
    )


def test_an_entry_under_another_key_is_malformed(world: World) -> None:
    plan, two = opened(world)
    release = two.release(plan)
    stranger = make_entry(Identity.generate(), after=two.head, kind="released", body=release.entry.body)
    sentence = "the entry is not signed by the site's enrolled identity."
    refused_without_a_trace(world, dataclasses.replace(release, entry=stranger), sentence)
    flipped = dataclasses.replace(release.entry, sequence=release.entry.sequence + 1)
    refused_without_a_trace(world, dataclasses.replace(release, entry=flipped), sentence)


def test_another_sites_release_cannot_be_handed_in(world: World) -> None:
    plan, two = opened(world)
    sentence = "the entry is not signed by the site's enrolled identity."
    refused_without_a_trace(world, world.hospitals["three"].release(plan), sentence)
    payload = Release(plan.plan_id, "three", "2026-01-31", two.values(plan)).encode()
    entry = two.sign("released", plan_id=plan.plan_id, release_hash=release_hash(payload))
    sentence = "the release names another plan or another site."
    refused_without_a_trace(world, Released(plan.plan_id, payload, entry), sentence)


def test_an_entry_about_other_bytes_is_malformed(world: World) -> None:
    plan, two = opened(world)
    release = two.release(plan)
    payload = Release(plan.plan_id, "two", "2026-01-31", two.values(plan) + 1).encode()
    refused_without_a_trace(
        world, dataclasses.replace(release, payload=payload), "the entry does not name this answer."
    )


def test_a_charge_is_no_release_and_a_release_no_refusal(world: World) -> None:
    plan, two = opened(world)
    release = two.release(plan)
    entry = two.sign("charged", plan_id=plan.plan_id, release_hash=release_hash(release.payload))
    sentence = "the entry does not name this answer."
    refused_without_a_trace(world, dataclasses.replace(release, entry=entry), sentence)
    refused_without_a_trace(world, Declined(plan.plan_id, "PlanRefused", release.entry), sentence)


@pytest.mark.parametrize("body", ["", "[]", "{", '{"plan_id": "x"}', '{"a":' * 2000])
def test_a_body_that_is_not_canonical_is_malformed(world: World, body: str) -> None:
    plan, two = opened(world)
    entry = make_entry(two.identity, after=two.head, kind="refused", body=body)
    refused_without_a_trace(
        world, Declined(plan.plan_id, "PlanRefused", entry), "the entry's body does not have its canonical form."
    )


@pytest.mark.parametrize("code", ["", "with space", "x" * 65, "<b>", "Ünicode"])
def test_a_refusal_without_a_plain_code_is_malformed(world: World, code: str) -> None:
    plan, two = opened(world)
    refused_without_a_trace(world, two.decline(plan, code), "the refusal has no valid code.")


@pytest.mark.parametrize("place", [Head(-1, "0" * 64), Head(2**80, "0" * 64), Head(3, "short"), Head(3, "Z" * 64)])
def test_an_entry_outside_every_chain_is_malformed(world: World, place: Head) -> None:
    plan, two = opened(world)
    two.head = place
    refused_without_a_trace(world, two.decline(plan), "the entry has no place in a chain.")


def test_garbage_instead_of_a_release_is_malformed(world: World) -> None:
    plan, two = opened(world)
    for payload in (b"", b"\n", b"{}\n", b"\xff" * 100):
        entry = two.sign("released", plan_id=plan.plan_id, release_hash=release_hash(payload))
        with pytest.raises(MalformedMessage):
            world.coordinator.submit("two", Released(plan.plan_id, payload, entry))
    assert world.spent() != Cost.zero()


def test_a_refusal_gives_its_charge_back_once(world: World) -> None:
    plan, two = opened(world)
    refusal = two.decline(plan)
    receipts: set[Entry | None] = {world.coordinator.submit("two", refusal) for _ in range(3)}
    assert len(receipts) == 1
    assert world.kinds().count("voided") == 1
    assert world.verified().valid


def test_a_release_is_final_whatever_is_reported_after_it(world: World) -> None:
    plan, two = opened(world)
    world.coordinator.submit("two", two.release(plan))
    world.coordinator.submit("two", Pending(plan.plan_id))
    world.coordinator.submit("two", Failed(plan.plan_id))
    assert world.states(plan)["two"] is SiteState.RELEASED


def test_no_value_is_ever_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.hospitals["two"].count = 918273645
    plan, two = opened(world)
    two.step(world.coordinator)
    with pytest.raises(ReleaseConflict) as conflict:
        world.coordinator.submit("two", two.release(plan, values=two.values(plan) + 1))
    text = caplog.text + repr(conflict.value) + conflict.value.private
    assert "918273645" not in text
    assert str(918273645 * 64) not in text


# --- what a round carries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mood", ["release", "refuse", "sleep", "hold"])
def test_a_round_that_has_ended_carries_nothing_more(world: World, mood: str) -> None:
    world.hospitals["two"].mood = mood
    plan_id = world.coordinator.ask(ANALYST, ask(0.2))
    assert world.coordinator._rounds.plans() == (plan_id,)
    with contextlib.suppress(AwaitingApproval):
        world.watch(plan_id)
    rounds = world.coordinator._rounds
    # One that waits for a steward is open still.
    assert rounds.plans() == ((plan_id,) if mood == "hold" else ())
    if mood == "hold":
        world.hospitals["two"].approve(world.coordinator)
        world.watch(plan_id)
    assert (len(rounds), rounds._queues, rounds._of) == (0, {}, {})


def test_what_comes_after_its_round_is_compared_with_the_plan_on_disk(world: World) -> None:
    hospital = world.hospitals["two"]
    hospital.mood = "hold"
    plan_id = world.coordinator.ask(ANALYST, ask(0.2))
    with pytest.raises(AwaitingApproval):
        world.watch(plan_id)
    plan = hospital.held[0]
    long = Release(plan.plan_id, "two", "2026-01-01", np.zeros(2, dtype=np.int64)).encode()
    entry = hospital.sign("released", plan_id=plan_id, release_hash=release_hash(long))
    with pytest.raises(MalformedMessage, match="as many values as the plan"):
        world.coordinator.submit("two", Released(plan_id, long, entry))
    hospital.approve(world.coordinator)
    assert world.watch(plan_id).estimates[0].value == 111
