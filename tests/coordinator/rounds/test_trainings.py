"""A training at the coordinator: reserved whole, asked of those who began it, and never of who declined it."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.coordinator.hospitals import ANALYST, TRUTH, World, ask, oracle
from wardround.federation.errors import BudgetExceeded, PlanRefused, QueryMistaken, TooFewSites, UnknownTask
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.models.step_layout import LENGTH, pack
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Loss, Progress, SiteState
from wardround.privacy.accounting.cost import Cost

MODEL = Model(ModelKind.LOGISTIC, "encounters", "smoker", ("age", "sbp"))
ROUNDS = 3


def training(scale: int = 20, **changes: object) -> Training:
    stage = Stage(StageKind.GRADIENT, Fraction(scale * LENGTH), rounds=ROUNDS)
    return dataclasses.replace(Training(MODEL, (stage,)), **changes)  # type: ignore[arg-type]


def step(
    turn: int, *, weight: float = 0.0, of: Training | None = None, nonce: str = "", **changes: object
) -> AskRequest:
    centre, spread, weights = np.zeros(2), np.full(2, 0.5), np.full(3, weight)
    made = Step(of or training(), 0, turn, pack(centre), pack(spread), pack(weights))
    return AskRequest(dataclasses.replace(made, **changes), nonce=nonce)  # type: ignore[arg-type]


def numbers(answer: Answer) -> dict[str, list[int]]:
    return {update.site: np.frombuffer(update.total, dtype="<i8").tolist() for update in answer.updates}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = oracle(tmp_path)
    yield made
    made.close()


def test_a_step_is_answered_with_the_sum_of_the_sites_integers(world: World) -> None:
    answer = world.ask(step(0))
    assert numbers(answer) == {"": [111, 111, 111]}
    assert answer.estimates == ()
    assert answer.answered == ("one", "three", "two")


def test_with_by_site_each_site_s_integers_are_told_in_the_order_of_names(world: World) -> None:
    answer = world.ask(step(0, of=training(by_site=True)))
    assert [update.site for update in answer.updates] == ["one", "three", "two"]
    assert numbers(answer) == {name: [count] * 3 for name, count in TRUTH.items()}


def test_a_site_at_the_end_of_the_range_does_not_turn_the_sum_round(world: World) -> None:
    world.hospitals["two"].count = 2**63 - 1
    assert numbers(world.ask(step(0))) == {"": [2**63 - 1] * 3}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_training_is_reserved_once_whichever_round_comes_first(world: World, order: tuple[int, ...]) -> None:
    answers = [world.ask(step(turn)) for turn in order]
    whole = answers[0].privacy.charged
    assert 0.0 < whole.epsilon < 1.0
    assert [answer.privacy.charged for answer in answers[1:]] == [Loss(0.0, 0.0)] * 2
    assert {answer.privacy.spent.epsilon for answer in answers} == {answers[0].privacy.spent.epsilon}
    assert world.verified().problems == ()
    assert world.verified().spent == world.spent()


def test_a_dry_run_says_what_is_still_to_pay(world: World) -> None:
    before = world.coordinator.preview(ANALYST, step(1))
    assert world.spent() == Cost.zero()
    assert before.privacy.charged == world.ask(step(0)).privacy.charged
    assert world.coordinator.preview(ANALYST, step(1)).privacy.charged == Loss(0.0, 0.0)
    assert before.expected == ()


def test_a_repeated_round_is_the_stored_answer(world: World) -> None:
    first = world.ask(step(0))
    kinds = world.kinds()
    again = world.ask(step(0))
    assert again.replayed
    assert again.updates == first.updates
    assert world.kinds() == kinds


def test_the_same_round_with_other_numbers_is_refused_before_anybody_is_asked(world: World) -> None:
    world.ask(step(0))
    kinds = world.kinds()
    with pytest.raises(PlanRefused, match="--fresh"):
        world.ask(step(0, weight=0.5))
    assert world.kinds() == kinds
    assert all(len(hospital.seen) == 1 for hospital in world.hospitals.values())


def test_a_fresh_training_is_charged_again(world: World) -> None:
    world.ask(step(0))
    once = world.spent()
    assert world.ask(step(0, weight=0.5, nonce="01")).privacy.charged.epsilon > 0.0
    assert world.spent() == once + once


# --- who takes part -------------------------------------------------------------------------------------------


def test_a_site_that_was_away_for_the_first_round_joins_later(world: World) -> None:
    world.hospitals["two"].mood = "sleep"
    first = world.ask(step(0))
    assert (numbers(first), first.missing) == ({"": [101] * 3}, ("two",))
    world.hospitals["two"].mood = "release"
    # What it missed is settled without it; only the round that is open now counts it.
    assert numbers(world.ask(step(1))) == {"": [111] * 3}
    assert world.verified().problems == ()


def test_a_site_that_declines_the_first_round_is_not_asked_again_and_gets_its_charge_back(world: World) -> None:
    world.hospitals["two"].mood = "refuse"
    first = world.ask(step(0))
    assert first.refused == (("two", "PlanRefused"),)
    world.hospitals["two"].mood = "release"
    for turn in (1, 2):
        answer = world.ask(step(turn))
        assert numbers(answer) == {"": [101] * 3}
        assert (answer.refused, answer.missing) == ((("two", "PlanRefused"),), ())
    assert len(world.hospitals["two"].seen) == 1
    assert world.coordinator._accounting.balances().sites["two"] == Cost.zero()
    assert world.verified().problems == ()


def test_a_site_that_declines_in_the_middle_gets_nothing_back_and_is_not_asked_again(world: World) -> None:
    world.ask(step(0))
    spent = world.coordinator._accounting.balances().sites
    world.hospitals["two"].mood = "refuse"
    assert world.ask(step(1)).refused == (("two", "PlanRefused"),)
    world.hospitals["two"].mood = "release"
    assert numbers(world.ask(step(2))) == {"": [101] * 3}
    assert len(world.hospitals["two"].seen) == 2
    assert world.coordinator._accounting.balances().sites == spent
    assert world.verified().problems == ()


def test_a_refusal_gives_nothing_back_while_another_round_of_the_training_is_open(world: World) -> None:
    world.hospitals["two"].mood = "refuse"
    plans = [world.coordinator.ask(ANALYST, step(turn)) for turn in (0, 1)]
    two, claimed = world.hospitals["two"], world.coordinator.claim("two", wait_seconds=0.0)
    assert claimed is not None
    world.coordinator.submit("two", two.answer(claimed.task.plan))
    two.mood = "release"
    assert [numbers(world.watch(plan)) for plan in plans] == [{"": [101] * 3}, {"": [111] * 3}]
    assert "voided" not in world.kinds()
    assert world.verified().problems == ()


def test_a_site_that_is_not_asked_cannot_answer(world: World) -> None:
    world.hospitals["two"].mood = "refuse"
    world.ask(step(0))
    plan_id = world.coordinator.ask(ANALYST, step(1))
    one = world.coordinator.claim("one", wait_seconds=0.0)
    assert one is not None
    assert world.coordinator.claim("two", wait_seconds=0.0) is None
    with pytest.raises(UnknownTask):
        world.coordinator.submit("two", world.hospitals["two"].release(one.task.plan))
    assert world.states(one.task.plan)["two"] is SiteState.REFUSED
    assert numbers(world.watch(plan_id)) == {"": [101] * 3}


def test_too_few_that_still_take_part_end_the_training_before_anything_is_opened(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2)
    world.ask(step(0))
    for name in ("one", "two"):
        world.hospitals[name].mood = "refuse"
    with pytest.raises(TooFewSites):
        world.ask(step(1))
    kinds = world.kinds()
    with pytest.raises(TooFewSites, match=r"one \(its policy [^)]*\), two \(its policy [^)]*\).*--fresh"):
        world.ask(step(2))
    assert world.kinds() == kinds
    assert numbers(world.ask(step(0))) == {"": [111] * 3}, "what was answered stays answered"
    world.close()


def test_a_hospital_that_enrols_later_makes_no_second_training(world: World) -> None:
    world.ask(step(0))
    spent = world.spent()
    world.enrol("four", count=1000)
    assert numbers(world.ask(step(1))) == {"": [111] * 3}
    assert world.spent() == spent
    assert numbers(world.ask(step(0, nonce="02"))) == {"": [1111] * 3}


@pytest.mark.parametrize("end", ["freeze", "revoke"])
def test_a_training_goes_on_without_a_site_that_may_not_take_part_any_more(world: World, end: str) -> None:
    world.ask(step(0))
    spent = world.spent()
    roster = world.coordinator.roster
    roster.freeze("two", "a test") if end == "freeze" else roster.revoke("two")
    answer = world.ask(step(1))
    assert (numbers(answer), answer.missing) == ({"": [101] * 3}, ("two",))
    assert world.spent() == spent


def test_a_restart_in_the_middle_goes_on_and_charges_nothing_more(world: World) -> None:
    first = world.ask(step(0))
    plan_id = world.coordinator.ask(ANALYST, step(1))
    spent = world.spent()
    world.restart()
    assert world.ask(step(0)).updates == first.updates
    assert numbers(world.watch(plan_id)) == {"": [111] * 3}
    assert numbers(world.ask(step(2))) == {"": [111] * 3}
    assert world.spent() == spent
    assert world.verified().problems == ()


def test_progress_counts_who_declined_as_refused(world: World) -> None:
    world.hospitals["two"].mood = "refuse"
    world.ask(step(0))
    world.hospitals["one"].mood = "hold"
    plan_id = world.coordinator.ask(ANALYST, step(1))
    with pytest.raises(Exception, match="waiting for approval at one"):
        world.watch(plan_id)
    progress = world.states(world.hospitals["one"].held[0])
    assert progress == {"one": SiteState.PENDING, "three": SiteState.RELEASED, "two": SiteState.REFUSED}


# --- the budget -----------------------------------------------------------------------------------------------


def test_of_two_trainings_for_the_last_of_the_budget_one_is_reserved(world: World) -> None:
    first, second = training(3), training(3, clip=2.0)
    world.ask(step(0, of=first))
    spent = world.spent()
    with pytest.raises(BudgetExceeded) as caught:
        world.ask(step(0, of=second))
    assert caught.value.asked > caught.value.remaining
    assert world.spent() == spent
    with pytest.raises(BudgetExceeded):
        world.ask(ask(2.9))
    assert numbers(world.ask(step(1, of=first))) == {"": [111] * 3}, "nothing stops a training that is paid"


def test_a_training_above_the_study_s_cap_is_refused_with_what_it_asks(world: World) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        world.ask(step(0, of=training(1)))
    assert caught.value.asked > 3.0
    assert "reserved" not in world.kinds()


MISTAKES = {
    "ε beside a step": dataclasses.replace(step(0), epsilon=1.0),
    "δ beside a step": dataclasses.replace(step(0), delta=1e-7),
    "a nonce that is none": dataclasses.replace(step(0), nonce="xyz"),
    "weights that are no numbers": step(0, weight=math.nan),
    "too few weights": step(0, weights=pack(np.zeros(2))),
    "a learning rate that is no number": step(0, learning_rate=math.nan),
    "a batch of nobody": step(0, batch=0.0),
    "a round beyond the last": step(ROUNDS),
    "a stage beyond the last": step(0, stage=1),
    "a stage before the first": step(0, stage=-1),
    "a table that is none": step(0, of=training(model=dataclasses.replace(MODEL, table="staff"))),
    "a target that is no yes or no": step(0, of=training(model=dataclasses.replace(MODEL, target="diagnosis"))),
    "scores of nobody": step(0, of=training(stages=(Stage(StageKind.SCORES, Fraction(20 * LENGTH)),))),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistaken_step_is_one_sentence_and_nothing_is_opened(world: World, name: str) -> None:
    with pytest.raises(QueryMistaken) as caught:
        world.ask(MISTAKES[name])
    assert caught.value.message.endswith(".")
    assert "reserved" not in world.kinds()


def test_a_study_without_gaussian_noise_trains_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path, pure_epsilon=3.0)
    with pytest.raises(QueryMistaken, match="δ above 0"):
        world.ask(step(0))
    world.close()


def test_the_report_counts_a_training_once(world: World) -> None:
    for turn in range(ROUNDS):
        world.ask(step(turn))
    report = world.coordinator.budget(ANALYST)
    assert report.spent == world.ask(step(0)).privacy.spent
    assert [(spending.charges, spending.epsilon) for spending in report.history] == [(1, report.spent.epsilon)]
    assert report.events == 1
    described = dict(report.accountants)["gdp"]
    assert 0.999 * report.spent.epsilon < described <= report.spent.epsilon


# --- ledgers from before there were trainings -----------------------------------------------------------------


def test_a_coordinator_s_older_ledger_gains_its_tables_when_it_is_opened(world: World) -> None:
    world.ask()
    world.coordinator.ledger.close()
    connection = sqlite3.connect(world.folder / LEDGER_FILE, isolation_level=None)
    for table in ("left_out", "steps", "trainings"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA application_id = 0")
    connection.close()
    assert verify(world.folder).problems == ()
    world.restart()
    assert numbers(world.ask(step(0))) == {"": [111] * 3}
    assert world.verified().problems == ()


def test_watching_a_step_shows_its_sites(world: World) -> None:
    world.hospitals["two"].mood = "fail"
    plan_id = world.coordinator.ask(ANALYST, step(0))
    told = world.coordinator.watch(ANALYST, plan_id, seen=0, wait_seconds=0.0)
    assert isinstance(told, Answer | Progress)
