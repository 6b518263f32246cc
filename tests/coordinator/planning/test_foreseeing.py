"""What published limits tell beforehand: who would refuse, who lets a person decide, and when nothing is begun."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from tests.coordinator.rounds.test_trainings import step
from wardround.federation.errors import BudgetExceeded, TooFewSites
from wardround.federation.question.answer import Foreseen
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.trust.public_limits import PublicLimits

OPEN = PublicLimits(("count", "mean", "histogram", "training"), 3.0, 1e-6, by_person=False)
MEAN = Query("encounters", (Aggregate(Statistic.MEAN, "sbp"), Aggregate(Statistic.HISTOGRAM, "age", bins=5)))


def publish(world: World, **limits: PublicLimits | None) -> None:
    for site, each in limits.items():
        world.coordinator.note_limits(site, each)


def said(world: World, request: object = None) -> tuple[Foreseen, ...]:
    return world.coordinator.preview(ANALYST, request or ask()).foreseen  # type: ignore[arg-type]


def test_each_limit_is_said_in_words_and_silence_says_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    assert said(world) == ()
    publish(
        world,
        one=dataclasses.replace(OPEN, statistics=("count",)),
        two=dataclasses.replace(OPEN, max_epsilon=0.1, delta=1e-7),
        three=dataclasses.replace(OPEN, by_person=True),
    )
    assert [(each.code, each.sentence) for each in said(world, ask(query=MEAN))] == [
        ("StatisticNotAllowed", "one does not allow AVG, HISTOGRAM"),
        ("AwaitingApproval", "three: each question waits for a person"),
        ("EpsilonTooLarge", "two allows ε = 0.1 a question (at δ = 1e-07) and this one takes ε = 0.5618"),
    ]
    publish(world, one=None, two=None, three=None)
    assert said(world, ask(query=MEAN)) == ()


def test_a_question_of_exactly_the_limit_is_not_foreseen_to_be_refused(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    publish(world, one=dataclasses.replace(OPEN, max_epsilon=0.5))
    assert said(world, ask(0.5)) == ()
    assert [each.code for each in said(world, ask(0.5000001))] == ["EpsilonTooLarge"]


def test_every_hospital_is_asked_though_one_is_foreseen_to_refuse(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2, moods={"two": "refuse"})
    publish(world, two=dataclasses.replace(OPEN, statistics=("mean",)))
    answer = world.ask()
    assert (answer.answered, [site for site, _ in answer.refused]) == (("one", "three"), ["two"])


def test_where_too_few_would_answer_nothing_is_charged_or_opened(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2)
    publish(world, one=dataclasses.replace(OPEN, statistics=()), two=dataclasses.replace(OPEN, max_epsilon=0.1))
    kinds = world.kinds()
    for refused in (lambda: world.coordinator.ask(ANALYST, ask()), lambda: said(world)):
        with pytest.raises(TooFewSites) as few:
            refused()
        assert few.value.message == (
            "1 of 3 hospitals would answer this question and the study needs 2: one does not allow COUNT; "
            "two allows ε = 0.1 a question (at δ = 1e-06) and this one takes ε = 0.5. Nothing was charged."
        )
    assert world.kinds() == kinds
    # A hospital says what it allows whenever it starts.
    publish(world, one=OPEN)
    assert world.ask().estimates[0].value == 111


def test_what_the_budget_refuses_is_refused_for_that(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2)
    world.ask(ask(2.5))
    publish(world, **{name: dataclasses.replace(OPEN, statistics=()) for name in ("one", "two", "three")})
    with pytest.raises(BudgetExceeded):
        world.coordinator.ask(ANALYST, ask(2.9))
    assert world.coordinator.preview(ANALYST, ask(2.9)).excess is not None


def test_a_person_who_decides_is_no_refusal(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=3)
    publish(world, **{name: dataclasses.replace(OPEN, by_person=True) for name in ("one", "two", "three")})
    assert world.ask().estimates[0].value == 111


def test_what_is_answered_or_begun_goes_on_whatever_is_published_later(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2)
    first = world.ask()
    world.ask(step(0))
    publish(world, **{name: dataclasses.replace(OPEN, statistics=()) for name in ("one", "two", "three")})
    assert world.ask().plan_id == first.plan_id
    assert world.ask(step(1)).answered == ("one", "three", "two")
    with pytest.raises(TooFewSites, match="one does not allow models to be trained"):
        world.ask(dataclasses.replace(step(0), nonce="ab"))


def test_limits_are_durable_and_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    publish(world, one=OPEN, two=OPEN)
    world.restart()
    assert world.coordinator.ledger.members.limits() == {"one": OPEN, "two": OPEN}
    with world.coordinator.ledger.database.transaction() as connection:
        connection.execute("UPDATE public_limits SET limits = x'7b7d' WHERE site = 'one'")
    assert world.coordinator.ledger.members.limits() == {"two": OPEN}
    assert {site.name: site.limits for site in world.coordinator.hospitals(ANALYST)} == {
        "one": None,
        "two": OPEN,
        "three": None,
    }
    assert world.verified().valid


def test_a_greeting_that_says_the_same_again_writes_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    publish(world, one=OPEN)
    file = tmp_path / "ledger.sqlite"
    before = file.read_bytes()
    publish(world, one=OPEN, two=None)
    assert file.read_bytes() == before
    publish(world, one=None)
    assert file.read_bytes() != before


def test_hospitals_are_told_with_their_standing_and_without_the_revoked(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    publish(world, one=OPEN)
    world.coordinator.roster.freeze("two", "a fork")
    world.coordinator.roster.revoke("three")
    told = world.coordinator.hospitals(ANALYST)
    assert [(each.name, each.patients, each.active, each.limits) for each in told] == [
        ("one", 1000, True, OPEN),
        ("two", 1000, False, None),
    ]


def test_a_statistic_that_only_a_later_version_knows_is_kept_as_a_word(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    later = dataclasses.replace(OPEN, statistics=("count", "wavelet"))
    publish(world, one=later)
    assert world.coordinator.ledger.members.limits() == {"one": later}
    assert said(world) == ()
