"""Who asked, in whose own signature: what it covers, and who may leave it out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.recorded.spoken import PLANS, QUERY, STEP
from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, SignedTask, Task, sign_request, sign_task
from wardround.federation.question.query import Query
from wardround.federation.trust.asked_by import MAX_PURPOSE, AskedBy, check_purpose
from wardround.federation.trust.entry import EMPTY
from wardround.federation.trust.identity import Identity, Purpose

STUDY = "ab" * 32
AMIRA, BEN = Identity.generate(), Identity.generate()
REQUEST = AskRequest(QUERY, 0.5, 1e-7, "0a")


def signed(request: AskRequest = REQUEST, *, purpose: str = "a pilot") -> AskedBy:
    asked = sign_request(request, AMIRA, analyst="amira", study_hash=STUDY, purpose=purpose).asked_by
    assert asked is not None
    return asked


def covers(asked: AskedBy, *, study_hash: str = STUDY, query: object = QUERY, nonce: str = "0a") -> bool:
    return asked.covers(study_hash=study_hash, query=canonical.encode(query), nonce=nonce)


def test_the_signature_is_over_the_canonical_bytes_of_everything_that_matters() -> None:
    asked = signed()
    whole = canonical.encode((STUDY, QUERY, 0.5, 1e-7, (), "0a", "amira", "a pilot"))
    assert asked.message(STUDY, canonical.encode(QUERY), "0a") == whole
    assert AMIRA.public.verifies(Purpose.QUESTION, whole, asked.signature)
    assert covers(asked)


@pytest.mark.parametrize("purpose", [each for each in Purpose if each is not Purpose.QUESTION])
def test_no_other_signature_of_the_analyst_is_one_on_a_question(purpose: Purpose) -> None:
    asked = signed()
    other = AMIRA.sign(purpose, asked.message(STUDY, canonical.encode(QUERY), "0a"))
    assert not covers(dataclasses.replace(asked, signature=other))


CHANGES: dict[str, Callable[[AskedBy], AskedBy]] = {
    "analyst": lambda asked: dataclasses.replace(asked, analyst="ben"),
    "key": lambda asked: dataclasses.replace(asked, key=BEN.public),
    "purpose": lambda asked: dataclasses.replace(asked, purpose=""),
    "epsilon": lambda asked: dataclasses.replace(asked, epsilon=0.75),
    "no epsilon": lambda asked: dataclasses.replace(asked, epsilon=None),
    "delta": lambda asked: dataclasses.replace(asked, delta=None),
    "errors": lambda asked: dataclasses.replace(asked, errors=(1.0,)),
    "signature": lambda asked: dataclasses.replace(asked, signature=bytes(64)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_changed_the_signature_does_not_cover(change: str) -> None:
    assert not covers(CHANGES[change](signed()))


def test_it_covers_no_other_study_question_or_nonce() -> None:
    asked = signed()
    assert not covers(asked, study_hash="cd" * 32)
    assert not covers(asked, nonce="")
    assert not covers(asked, query=STEP)
    assert not covers(asked, query=Query("visits", QUERY.aggregates, None, QUERY.group_by))


def test_whole_numbers_are_signed_as_what_travels() -> None:
    asked = signed(AskRequest(QUERY, 1, 0, "0a", (5,)))
    assert [type(each) for each in (asked.epsilon, asked.delta, *asked.errors)] == [float] * 3
    assert decode(AskedBy, canonical.encode(asked)) == asked
    assert covers(asked)


def test_a_nonce_is_signed_as_plans_write_it() -> None:
    assert covers(signed(AskRequest(QUERY, 0.5, nonce="0A")), nonce="0a")


def test_the_coordinators_signature_is_the_same_with_and_without_it() -> None:
    """A site of an earlier version reads past what it does not know, and finds the task signed."""
    coordinator = Identity.generate()
    task = Task(PLANS[0], "north", EMPTY)
    bare, full = sign_task(task, coordinator), sign_task(task, coordinator, signed())
    assert full.signature == bare.signature
    assert SignedTask(full.task, full.signature).signed_by(coordinator.public)
    assert decode(SignedTask, canonical.encode(full)) == full


def test_a_task_without_it_is_stored_as_before_and_read_again() -> None:
    bare = SignedTask(Task(PLANS[0], "north", EMPTY), bytes(64))
    assert b"asked_by" not in canonical.encode(bare)
    assert decode(SignedTask, canonical.encode(bare)) == bare


def test_neither_signature_nor_purpose_is_part_of_a_plan() -> None:
    assert {field.name for field in dataclasses.fields(Plan)}.isdisjoint({"asked_by", "purpose", "analyst"})


def test_a_fingerprint_is_sixteen_groups_of_four_digits_of_the_keys_hash() -> None:
    key = dataclasses.replace(AMIRA.public, key="00" * 32)
    assert key.fingerprint == ("6668 7aad f862 bd77 6c8f c18b 8e9f 8e20 0897 1485 6ee2 33b3 902a 591d 0d5f 2925")
    assert AMIRA.public.fingerprint != BEN.public.fingerprint


@pytest.mark.parametrize(
    ("purpose", "sentence"),
    [
        ("p" * (MAX_PURPOSE + 1), "the purpose has 501 characters; it may have 500; say it shorter."),
        ("two\nlines", "a purpose has U+000A at place 4, a control or direction character; leave it out."),
    ],
)
def test_a_purpose_that_cannot_be_signed_is_said_in_one_sentence(purpose: str, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as caught:
        check_purpose(purpose)
    assert caught.value.message == sentence
    assert check_purpose("p" * MAX_PURPOSE) == "p" * MAX_PURPOSE
