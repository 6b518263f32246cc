"""The report that a coordinator makes from its ledger's facts."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.accounts.budget_report import MOST_POINTS, Reporting, Reserved, Tally, Voided
from coordinator.members.roster import Roster
from tests.coordinator.accounts.ledgers import SITES, books, gaussian, laplace
from tests.coordinator.hospitals import ANALYST, ask, oracle, study
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger import chain
from wardround.federation.question.study_budget import Spending
from wardround.privacy.accounting.cost import Cost, total
from wardround.privacy.accounting.events import Schedule
from wardround.privacy.budget.filter import epsilon_spent
from wardround.privacy.report.compare import compare
from wardround.privacy.report.schedules import from_facts


def test_a_study_that_spent_nothing_has_a_report(tmp_path: Path) -> None:
    report = books(tmp_path).reporting.report()
    assert {epsilon for _, epsilon in report.accountants} == {0.0}
    assert (report.by_overlap.one, report.by_overlap.declared, report.by_overlap.every) == (0.0, 0.0, 0.0)
    assert report.history == ()
    assert report.events == 0
    assert not any(site.spent.epsilon for site in report.sites)


def test_every_accountant_reads_the_facts_of_the_dearest_site(tmp_path: Path) -> None:
    kept = books(tmp_path, pure_epsilon=1)
    for _ in range(4):
        kept.charge(gaussian(50), laplace(0.1))
    kept.charge(gaussian(20), sites=("two",))
    report = kept.reporting.report()
    dearest = from_facts([gaussian(50), laplace(0.1)] * 4 + [gaussian(20)])
    assert report.accountants == tuple((line.accountant, line.epsilon) for line in compare(dearest, delta=1e-6))
    assert report.events == 5


def test_the_known_numbers_of_eight_hundred_questions(tmp_path: Path) -> None:
    kept = books(tmp_path, epsilon=10.0, delta=1e-7)
    kept.charge_many([(gaussian(25),)] * 800)
    report = kept.reporting.report()
    figures = dict(report.accountants)
    assert figures["basic"] == pytest.approx(217.2, abs=0.05)
    assert figures["zcdp"] == pytest.approx(7.064, abs=5e-4)
    assert figures["pld"] == pytest.approx(6.149, abs=5e-4)
    assert report.spent.epsilon == pytest.approx(6.149, abs=1e-3)


def test_disjoint_sites_cost_the_dearest_and_shared_patients_their_sum(tmp_path: Path) -> None:
    figures = {}
    for name, overlap in (("disjoint", "1"), ("pair", '1\ngroups = [{ sites = ["one", "two"], overlap = 2 }]')):
        folder = tmp_path / name
        folder.mkdir()
        kept = books(folder, overlap=overlap)
        for _ in range(5):
            kept.charge(gaussian(50))
        report = kept.reporting.report()
        figures[name] = dict(report.accountants)
        one, ten = (
            dict(zip(("name", "epsilon"), ("pld", line.epsilon), strict=True))["epsilon"]
            for line in (compare(from_facts([gaussian(50)] * times), delta=1e-6)[-1] for times in (5, 10))
        )
        assert figures[name]["pld"] == {"disjoint": one, "pair": ten}[name]
        assert report.overlap == {"disjoint": 1, "pair": 2}[name]
        cost = total([gaussian(50)] * 5)
        cap = kept.ledger.study.cap
        expected = [
            epsilon_spent(Cost(times * cost.mu_squared, 0, times * cost.slack), cap)
            for times in (1, {"disjoint": 1, "pair": 2}[name], 3)
        ]
        assert [report.by_overlap.one, report.by_overlap.declared, report.by_overlap.every] == expected
        assert report.spent.epsilon == report.by_overlap.declared


def test_five_questions_in_a_row_cost_five_times_five_side_by_side(tmp_path: Path) -> None:
    sites = tuple("abcde")
    kept = books(tmp_path, sites=sites, delta=0)
    for site in sites:
        kept.charge(laplace(0.5), sites=(site,))
    side_by_side = kept.reporting.report()
    assert side_by_side.spent.epsilon == pytest.approx(0.5)
    assert dict(side_by_side.accountants)["basic"] == pytest.approx(0.5)
    assert side_by_side.by_overlap.every == pytest.approx(2.5)


def test_what_was_given_back_is_in_no_figure(tmp_path: Path) -> None:
    kept, other = books(tmp_path, overlap=3), tmp_path / "other"
    other.mkdir()
    never = books(other, overlap=3)
    for number in range(6):
        plan_id = kept.charge(gaussian(30), date=float(number))
        if number % 2:
            kept.reporting.report()
        if number == 2:
            kept.void(plan_id, "two")
        standing = ("one", "three") if number == 2 else SITES
        never.charge(gaussian(30), sites=standing, date=float(number))
    assert kept.reporting.report() == never.reporting.report()


def test_a_late_refusal_changes_the_history_where_the_charge_stood(tmp_path: Path) -> None:
    kept = books(tmp_path)
    early = kept.charge(gaussian(20), date=1.0)
    kept.charge(gaussian(40), date=2.0)
    before = kept.reporting.report().history
    for site in SITES:
        kept.void(early, site)
    after = kept.reporting.report()
    cap = kept.ledger.study.cap
    assert after.history == (Spending(1.0, 1, 0.0), Spending(2.0, 2, epsilon_spent(gaussian(40).cost(), cap)))
    assert before[-1].epsilon > after.history[-1].epsilon == after.spent.epsilon
    assert after.accountants == tuple(
        (line.accountant, line.epsilon) for line in compare(from_facts([gaussian(40)]), delta=1e-6)
    )


def test_the_history_is_a_step_for_each_charge_at_its_date(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    for number in range(3):
        world.clock.pass_seconds(86_400)
        world.ask(ask(0.3, nonce=f"{number:02x}"))
    report = world.coordinator.budget(ANALYST)
    assert [(point.date, point.charges) for point in report.history] == [
        (1000.0 + 86_400 * day, day) for day in (1, 2, 3)
    ]
    assert report.history[0].epsilon < report.history[1].epsilon < report.history[2].epsilon == report.spent.epsilon
    world.restart()
    assert world.coordinator.budget(ANALYST) == report, "dates survive a restart"


def test_a_clock_set_back_does_not_turn_the_history_round(tmp_path: Path) -> None:
    kept = books(tmp_path)
    for date in (5.0, 3.0, 7.0):
        kept.charge(gaussian(50), date=date)
    assert [point.date for point in kept.reporting.report().history] == [5.0, 5.0, 7.0]


def test_a_long_history_is_thinned_and_keeps_its_last_point(tmp_path: Path) -> None:
    kept = books(tmp_path, epsilon=20.0)
    kept.charge_many([(gaussian(100),)] * (2 * MOST_POINTS + 1))
    report = kept.reporting.report()
    assert len(report.history) <= MOST_POINTS
    assert [point.charges for point in report.history[:2]] == [4, 8]
    assert report.history[-1] == Spending(2.0 * MOST_POINTS, 2 * MOST_POINTS + 1, report.spent.epsilon)


def test_what_is_a_guarantee_and_what_only_describes(tmp_path: Path) -> None:
    kept = books(tmp_path)
    kept.charge(gaussian(20))
    report = kept.reporting.report()
    promised = {each.name: each.epsilon for each in report.statements if each.guarantee}
    described = [each.name for each in report.statements if not each.guarantee]
    assert promised == {"cap": 3.0, "filter": report.spent.epsilon}
    assert described == ["basic", "advanced", "zcdp", "zcdp_tight", "rdp", "gdp", "pld"]


def test_a_frozen_site_is_shown_without_a_new_charge(tmp_path: Path) -> None:
    kept = books(tmp_path)
    kept.reporting.report()
    Roster(kept.ledger).freeze("two", "a test")
    assert [site.frozen for site in kept.reporting.report().sites] == [False, False, True]


def test_a_report_that_grew_is_the_one_read_at_once(tmp_path: Path) -> None:
    kept = books(tmp_path, overlap=2, pure_epsilon=1, epsilon=6)
    for number in range(12):
        plan_id = kept.charge(gaussian(40 + number % 3), sites=SITES[number % 2 :])
        kept.charge(laplace(0.01))
        kept.reporting.report()
        if number % 4 == 3:
            kept.void(plan_id, "three")
    assert kept.reporting.report() == Reporting(kept.ledger).report()


def test_nothing_is_computed_while_the_ledger_is_read(tmp_path: Path) -> None:
    kept = books(tmp_path)
    kept.charge(gaussian(50))
    computing, charged = threading.Event(), threading.Event()
    losses = kept.reporting._losses.epsilons

    def slow(patients: tuple[Schedule, ...]) -> tuple[tuple[str, float], ...]:
        computing.set()
        assert charged.wait(120.0), "a charge waited for a report"
        return losses(patients)

    kept.reporting._losses.epsilons = slow  # type: ignore[method-assign]
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(kept.reporting.report().events))
    reader.start()
    assert computing.wait(120.0)
    kept.charge(gaussian(50))
    charged.set()
    reader.join()
    assert found == [1]
    assert kept.reporting.report().events == 2


def test_a_report_that_failed_half_way_counts_nothing_twice(tmp_path: Path) -> None:
    kept = books(tmp_path)
    kept.charge(gaussian(50))
    kept.reporting.report()
    kept.charge(gaussian(50))
    losses = kept.reporting._losses.epsilons

    def broken(patients: tuple[Schedule, ...]) -> tuple[tuple[str, float], ...]:
        raise ArithmeticError

    kept.reporting._losses.epsilons = broken  # type: ignore[method-assign]
    with pytest.raises(ArithmeticError):
        kept.reporting.report()
    kept.reporting._losses.epsilons = losses  # type: ignore[method-assign]
    assert kept.reporting.report() == Reporting(kept.ledger).report(), "nor is the older report told again"
    kept.charge(gaussian(50))
    assert kept.reporting.report() == Reporting(kept.ledger).report()


def test_a_charge_that_does_not_say_where_is_a_corrupt_ledger(tmp_path: Path) -> None:
    kept = books(tmp_path)
    with kept.ledger.database.transaction() as connection:
        chain.append(connection, kept.ledger.identity, kind="reserved", body={"plan_id": "0" * 64})
    with pytest.raises(LedgerCorrupt):
        kept.reporting.report()


facts = st.sampled_from([gaussian(30), gaussian(60), laplace(0.1), laplace(0.02)])
subsets = st.sets(st.sampled_from(SITES), min_size=1).map(frozenset)
charges = st.lists(st.tuples(facts, subsets, st.booleans()), max_size=8)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(charges, st.integers(1, 2))
def test_the_order_never_matters_and_a_wider_overlap_never_costs_less(
    listed: list[tuple[object, frozenset[str], bool]], overlap: int
) -> None:
    tallies = {}
    for k, order in itertools.product((overlap, overlap + 1), (1, -1)):
        tally = Tally(study(overlap=k))
        for number, (fact, sites, voided) in list(enumerate(listed))[::order]:
            tally.read([Reserved(str(number), 0.0, sites, fact.cost(), (fact,))])  # type: ignore[attr-defined,arg-type]
            if voided:
                tally.read([Voided(str(number), min(sites))])
        tallies[k, order] = tally
    narrow, wide = tallies[overlap, 1], tallies[overlap + 1, 1]
    for k in (overlap, overlap + 1):
        assert tallies[k, 1].schedules() == tallies[k, -1].schedules()
        assert _spent(tallies[k, 1]) == _spent(tallies[k, -1])
    assert all(one.spent.fits(other.spent) for one, other in zip(narrow.history, wide.history, strict=True))
    dates = [level.spent for level in narrow.history]
    assert all(before.fits(after) for before, after in itertools.pairwise(dates)), "the history never falls"


def _spent(tally: Tally) -> dict[str, Cost]:
    return {site: cost for site, cost in tally.costs.items() if cost != Cost.zero()}


@pytest.mark.slow
@pytest.mark.serial
def test_ten_thousand_charges_are_reported_in_seconds_and_again_in_no_time(tmp_path: Path) -> None:
    kept = books(tmp_path, epsilon=100.0, pure_epsilon=50.0)
    kept.charge_many([(gaussian(100 + n % 50),) if n % 2 else (laplace(0.005 + n % 50 * 1e-5),) for n in range(10_000)])
    seconds = []
    for news in (lambda: None, lambda: None, lambda: kept.charge(gaussian(100)), lambda: kept.charge(laplace(0.005))):
        news()
        begun = time.process_time()
        kept.reporting.report()
        seconds.append(time.process_time() - begun)
    first, again, *more = seconds
    assert first < 15.0, seconds
    assert again < 0.1, seconds
    assert max(more) < 1.0, seconds
