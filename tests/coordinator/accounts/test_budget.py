"""The study's budget: charged before anything is opened, in parallel over sites, and never twice spent."""

from __future__ import annotations

import contextlib
import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.members.roster import Roster
from coordinator.rounds.coordinator import Coordinator
from coordinator.store.ledger import open_ledger
from tests.coordinator.hospitals import ANALYST, PATIENTS, World, ask, oracle, study
from wardround.federation.errors import BudgetExceeded, ConfigurationMistaken, NotAuthorized, TooFewSites
from wardround.federation.plan.plan import price
from wardround.federation.question.answer import Answer
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_spent
from wardround.privacy.budget.parallel import in_parallel
from wardround.privacy.report.compare import compare
from wardround.privacy.report.schedules import from_facts
from wardround.simulation.pumped import DrivenAttendant


def test_a_question_above_the_budget_says_asked_remaining_and_difference(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    world.ask(ask(2.5))
    entries, spent = world.kinds(), world.spent()
    with pytest.raises(BudgetExceeded) as refusal:
        world.coordinator.ask(ANALYST, ask(2.9))
    assert refusal.value.asked == 2.9
    assert 1.2 < refusal.value.remaining < 1.9
    assert refusal.value.difference == pytest.approx(2.9 - refusal.value.remaining)
    assert refusal.value.message == (
        f"The question asks for ε = 2.9 but ε = {refusal.value.remaining:.4g} remains, "
        f"{refusal.value.difference:.4g} too little; nothing was charged."
    )
    assert (world.kinds(), world.spent()) == (entries, spent)
    assert all(len(hospital.seen) == 1 for hospital in world.hospitals.values()), "nothing was opened"


def test_a_question_above_the_whole_cap_is_refused_before_it_is_planned(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    for epsilon in (3.1, 1e300):
        with pytest.raises(BudgetExceeded) as refusal:
            world.coordinator.ask(ANALYST, ask(epsilon))
        assert refusal.value.remaining == pytest.approx(3.0, rel=1e-4)


def test_a_question_of_exactly_the_cap_is_admitted_and_then_nothing_is_left(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    answer = world.ask(ask(3.0))
    assert answer.privacy.spent.epsilon == pytest.approx(3.0, rel=1e-4)
    assert answer.privacy.spent.epsilon <= 3.0
    assert answer.privacy.remaining.fraction < 1e-4
    with pytest.raises(BudgetExceeded):
        world.coordinator.ask(ANALYST, ask(0.1))


def test_the_remaining_epsilon_is_admitted(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    remaining = world.ask(ask(2.0)).privacy.remaining.epsilon
    assert world.ask(ask(remaining)).estimates[0].value == 111


def test_sites_compose_in_parallel_so_three_sites_cost_what_one_does(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    answer = world.ask(ask(0.5))
    assert answer.privacy.composition == "parallel"
    assert answer.privacy.charged.epsilon == pytest.approx(0.5, rel=1e-4)
    assert answer.privacy.spent == answer.privacy.charged
    assert answer.privacy.charged.delta == 1e-6


@pytest.mark.parametrize("overlap", [2, 3, None])
def test_under_overlap_the_k_dearest_sites_count_and_the_question_still_costs_what_was_asked(
    tmp_path: Path, overlap: int | None
) -> None:
    world = oracle(tmp_path, overlap=overlap)
    answer = world.ask(ask(0.5))
    k = 3 if overlap is None else overlap
    plan = world.hospitals["one"].seen[0].task.plan
    cost = price(plan, world.study).cost
    assert world.spent() == in_parallel([cost] * 3, overlap=k) == Cost(k * cost.mu_squared, 0, k * cost.slack)
    assert answer.privacy.overlap == k
    assert answer.privacy.composition == f"overlap {k}"
    assert answer.privacy.charged.epsilon == pytest.approx(0.5, rel=1e-3)
    assert answer.privacy.charged.epsilon <= 0.5


def test_hospitals_that_share_patients_pay_together_and_the_others_alone(tmp_path: Path) -> None:
    together = '1\ngroups = [{ sites = ["one", "two"], overlap = 2 }]'
    world = oracle(tmp_path, overlap=together)
    answer = world.ask(ask(0.5))
    cost = price(world.hospitals["one"].seen[0].task.plan, world.study).cost
    assert world.spent() == Cost(2 * cost.mu_squared, 0, 2 * cost.slack)
    assert answer.privacy.composition == "overlap 2"
    assert answer.privacy.charged.epsilon == pytest.approx(0.5, rel=1e-3)


def test_under_overlap_a_refusing_site_is_not_among_the_dearest(tmp_path: Path) -> None:
    world = oracle(tmp_path, overlap=3, moods={"two": "refuse"})
    world.ask(ask(0.5))
    cost = price(world.hospitals["one"].seen[0].task.plan, world.study).cost
    assert world.spent() == Cost(2 * cost.mu_squared, 0, 2 * cost.slack)


def test_a_site_that_joins_later_does_not_make_the_others_cheaper(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    world.ask(ask(2.5))
    world.enrol("four", count=1000)
    with pytest.raises(BudgetExceeded):
        world.coordinator.ask(ANALYST, ask(2.9))


def test_a_revoked_sites_spending_still_counts(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    world.ask(ask(2.5))
    spent = world.spent()
    for name in ("one", "two"):
        world.coordinator.roster.revoke(name)
    assert world.spent() == spent


def test_the_pure_lane_serves_single_counts_and_the_gaussian_lane_takes_over(tmp_path: Path) -> None:
    world = oracle(tmp_path, pure_epsilon=0.5)
    first = world.ask(ask(0.4))
    assert first.privacy.mechanism == "discrete_laplace"
    assert first.privacy.charged.delta == 0
    assert first.privacy.charged.epsilon == pytest.approx(0.4, rel=1e-3)
    second = world.ask(ask(0.4, nonce="01"))
    assert second.privacy.mechanism == "discrete_gaussian"
    assert second.privacy.charged.delta == 1e-6
    assert world.ask(ask(0.4, nonce="01")).plan_id == second.plan_id, "found although the other plan is preferred"


def test_a_pure_study_charges_epsilon_alone(tmp_path: Path) -> None:
    world = oracle(tmp_path, delta=0)
    answer = world.ask(ask(1.0))
    assert answer.privacy.charged == answer.privacy.spent
    assert answer.privacy.charged.delta == 0
    assert answer.privacy.remaining.epsilon == pytest.approx(2.0, rel=1e-3)
    with pytest.raises(BudgetExceeded):
        world.coordinator.ask(ANALYST, ask(2.5))


def test_a_preview_prices_like_the_question_and_spends_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path, noiseless=False)
    entries = world.kinds()
    preview = world.coordinator.preview(ANALYST, ask(0.5))
    assert not preview.replayed
    assert preview.sites == ("one", "three", "two")
    assert preview.privacy.spent.epsilon == 0
    assert world.kinds() == entries
    answer = world.ask(ask(0.5))
    assert answer.plan_id == preview.plan_id
    assert answer.privacy.charged == preview.privacy.charged
    assert answer.estimates[0].standard_error == pytest.approx(preview.expected[0].standard_error)
    again = world.coordinator.preview(ANALYST, ask(0.5))
    assert again.replayed


def test_a_preview_of_a_mean_speaks_of_the_declared_patients(tmp_path: Path) -> None:
    world = oracle(tmp_path, noiseless=False)
    query = Query("encounters", (Aggregate(Statistic.MEAN, "sbp"),), None, (Grouping("diagnosis"),))
    expected = world.coordinator.preview(ANALYST, ask(2.0, query=query)).expected[0]
    assert expected.groups == 3
    assert expected.note == (
        "for 3000 declared patients, spread evenly over 3 groups: a mean near a bound, where the error is largest"
    )
    assert 0 < expected.standard_error < 60


def test_the_report_adds_up(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "refuse"})
    for number in range(4):
        world.ask(ask(0.2, nonce=f"{number:02x}"))
    report = world.coordinator.budget(ANALYST)
    assert (report.study, report.unit, report.overlap, report.events) == ("cardio", "patient", 1, 4)
    assert report.cap.epsilon == 3.0
    assert report.spent.epsilon == epsilon_spent(world.spent(), world.study.cap)
    accountants = dict(report.accountants)
    assert accountants["gdp"] == pytest.approx(report.spent.epsilon, rel=1e-3)
    facts = price(world.hospitals["one"].seen[0].task.plan, world.study).facts
    expected = compare(from_facts(facts * 4), delta=1e-6)
    assert report.accountants == tuple((line.accountant, line.epsilon) for line in expected)
    assert [(site.name, site.spent.epsilon > 0) for site in report.sites] == [
        ("one", True),
        ("three", True),
        ("two", False),
    ]


def test_two_analysts_racing_for_the_last_of_the_budget_one_succeeds(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    outcomes: list[str] = []
    gate = threading.Barrier(8)

    def race(number: int) -> None:
        gate.wait()
        try:
            world.coordinator.ask(ANALYST, ask(2.5, nonce=f"{number:02x}"))
        except BudgetExceeded as refusal:
            outcomes.append(refusal.code)
        else:
            outcomes.append("asked")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["BudgetExceeded"] * 7 + ["asked"]
    assert world.kinds().count("reserved") == 1
    assert world.verified().valid


def test_who_would_be_asked_is_told_in_order_and_costs_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    assert world.coordinator.sites(ANALYST) == ("one", "three", "two")
    world.coordinator.roster.revoke("two")
    assert world.coordinator.sites(ANALYST) == ("one", "three")
    assert world.kinds().count("reserved") == 0
    with pytest.raises(NotAuthorized):
        world.coordinator.sites("stranger")


def test_too_few_participants_are_told_as_for_a_question(tmp_path: Path) -> None:
    world = World(tmp_path, min_sites=2)
    world.enrol("one", count=1)
    told = []
    for call in (world.coordinator.sites, lambda analyst: world.coordinator.ask(analyst, ask())):
        with pytest.raises(TooFewSites) as refusal:
            call(ANALYST)
        told.append(refusal.value.message)
    assert told == ["1 sites can be asked and the study needs 2; nothing was charged."] * 2
    world.close()


def _race_in_a_process(folder: Path, number: int, outcomes: multiprocessing.SimpleQueue[str]) -> None:
    ledger = open_ledger(folder, study=study(), identity=Identity.load(folder / "identity.pem"))
    coordinator = Coordinator(ledger, attendant=DrivenAttendant())
    try:
        coordinator.ask(ANALYST, ask(2.5, nonce=f"{number:02x}"))
    except BudgetExceeded as refusal:
        outcomes.put(refusal.code)
    else:
        outcomes.put("asked")
    coordinator.close()


def test_two_processes_racing_for_the_last_of_the_budget_one_succeeds(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    outcomes = spawn.SimpleQueue()
    racers = [spawn.Process(target=_race_in_a_process, args=(tmp_path, number, outcomes)) for number in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert sorted([outcomes.get(), outcomes.get()]) == ["BudgetExceeded", "asked"]
    assert world.kinds().count("reserved") == 1


def test_the_same_question_asked_at_once_is_charged_once(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    plans: list[str] = []
    threads = [threading.Thread(target=lambda: plans.append(world.coordinator.ask(ANALYST, ask()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(plans) == 8
    assert len(set(plans)) == 1
    assert world.kinds().count("reserved") == 1


def test_a_plan_that_another_reserves_between_looking_and_charging_is_charged_once(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    database = world.coordinator.ledger.database
    real = database.transaction

    @contextlib.contextmanager
    def overtaken() -> Iterator[sqlite3.Connection]:
        database.transaction = real  # type: ignore[method-assign]
        world.coordinator.ask(ANALYST, ask())
        with real() as connection:
            yield connection

    database.transaction = overtaken  # type: ignore[method-assign]
    assert world.watch(world.coordinator.ask(ANALYST, ask())).estimates[0].value == 111
    assert world.kinds().count("reserved") == 1
    assert world.verified().valid


def test_a_revocation_by_another_process_holds_from_the_next_call_on(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    beside = open_ledger(tmp_path, study=world.study, identity=world.identity)
    Roster(beside).revoke(ANALYST)
    beside.close()
    with pytest.raises(NotAuthorized):
        world.coordinator.ask(ANALYST, ask())


def test_a_ledger_begun_for_another_study_or_key_is_not_opened(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    with pytest.raises(ConfigurationMistaken, match="begun for another study"):
        open_ledger(tmp_path, study=study(epsilon=30.0), identity=world.identity)
    with pytest.raises(ConfigurationMistaken, match="signed by another identity"):
        open_ledger(tmp_path, study=world.study, identity=Identity.generate())


def test_a_stored_answer_tells_the_budget_as_of_now(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    first = world.ask(ask(0.5))
    world.ask(ask(0.5, nonce="01"))
    again = world.ask(ask(0.5))
    assert isinstance(again, Answer)
    assert again.privacy.charged == first.privacy.charged
    assert again.privacy.spent.epsilon > first.privacy.spent.epsilon
    assert again.privacy.remaining.epsilon < first.privacy.remaining.epsilon


def test_the_default_question_takes_a_tenth_of_the_study(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    assert world.ask(ask(None, query=PATIENTS)).privacy.charged.epsilon == pytest.approx(0.3, rel=1e-4)
