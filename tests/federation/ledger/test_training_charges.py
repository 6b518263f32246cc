"""A training in a site's ledger: charged whole by whichever round comes first, and each round taken once."""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
import threading
from pathlib import Path

import pytest

from tests.federation.ledger.ledger_bench import BLOCK, ROUNDS, VALUES, Bench, charge, plan_id, spend, step_charge
from tests.federation.ledger.test_verify_site import CAPPED, Said, codes, paid, signed
from wardround.federation.errors import BudgetExceeded, InvariantBroken, PlanRefused
from wardround.federation.ledger.entry_body import Plain, cost_body, facts_body
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import judge, verify
from wardround.federation.plan.plan import Charge
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact

WHOLE = charge("step0").cost


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "site")


@pytest.mark.parametrize("order", [*itertools.permutations(range(ROUNDS))])
def test_a_training_is_charged_once_whichever_round_comes_first(bench: Bench, order: tuple[int, ...]) -> None:
    for place in order:
        bench.answer(f"step{place}")
        assert bench.ledger.spent() == WHOLE
    assert WHOLE.mu_squared > 0
    bench.ledger.close()
    assert verify(bench.folder).problems == ()


def test_a_repeated_round_is_free_and_changes_nothing(bench: Bench) -> None:
    for word in ("step1", "step0"):
        kept = bench.answer(word)
        before = bench.ledger.head()
        spend(bench.ledger, word)
        assert bench.ledger.find(plan_id(word)) == kept
        assert bench.ledger.head() == before


def test_a_round_with_other_numbers_is_refused(bench: Bench) -> None:
    bench.answer("step1")
    before = bench.ledger.head()
    with pytest.raises(PlanRefused, match="other numbers"):
        spend(bench.ledger, "liar", step_charge("liar", 1))
    assert bench.ledger.head() == before
    assert not bench.ledger.charged(plan_id("liar"))


def test_a_plan_that_was_paid_as_another_round_breaks_the_rule(bench: Bench) -> None:
    bench.answer("step1")
    for wrong in (step_charge("step1", 2), step_charge("step1", 1, block="c" * 64), charge("a")):
        other = Charge(plan_id("step1"), wrong.facts, wrong.block, wrong.place, wrong.dimension)
        with pytest.raises(InvariantBroken):
            spend(bench.ledger, "step1", other)


def test_the_same_rounds_of_another_training_are_charged_again(bench: Bench) -> None:
    spend(bench.ledger, "mine", step_charge("mine", 0, scale=800))
    spend(bench.ledger, "yours", step_charge("yours", 0, block="c" * 64, scale=800))
    one = step_charge("mine", 0, scale=800).cost
    assert bench.ledger.spent() == one + one


def test_a_training_that_does_not_fit_charges_nothing_and_takes_no_round(bench: Bench) -> None:
    with pytest.raises(BudgetExceeded):
        spend(bench.ledger, "dear", step_charge("dear", 0, scale=40))
    assert bench.ledger.spent() == Cost.zero()
    assert bench.ledger.charges() == []
    spend(bench.ledger, "step0")
    assert [charge.block for charge in bench.ledger.charges()] == [BLOCK]


def test_of_two_trainings_for_the_last_of_the_budget_one_is_charged(bench: Bench) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(2)

    def race(block: str) -> None:
        start.wait()
        try:
            spend(bench.ledger, block, step_charge(block, 0, block=block * 64, scale=185))
            outcomes.append("charged")
        except BudgetExceeded:
            outcomes.append("refused")

    threads = [threading.Thread(target=race, args=(block,)) for block in "cd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged", "refused"]
    assert bench.ledger.spent() == step_charge("c", 0, scale=185).cost


def test_nothing_can_stop_a_training_once_it_is_paid(bench: Bench) -> None:
    spend(bench.ledger, "first", step_charge("first", 0, scale=185))
    with pytest.raises(BudgetExceeded):
        spend(bench.ledger, "other", step_charge("other", 0, block="c" * 64, scale=185))
    spend(bench.ledger, "second", step_charge("second", 1, scale=185))
    assert bench.ledger.charged(plan_id("second"))


# --- ledgers from before there were trainings -----------------------------------------------------------------


def forget_the_table(folder: Path) -> None:
    """The file as an earlier version made it."""
    connection = sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)
    connection.execute("DROP TABLE steps")
    connection.execute("PRAGMA application_id = 0")
    connection.close()


def test_an_older_ledger_is_valid_as_it_is_and_gains_the_table_when_it_is_opened(bench: Bench) -> None:
    bench.answer("a")
    bench.ledger.close()
    forget_the_table(bench.folder)
    assert verify(bench.folder).problems == ()
    bench.reopen()
    bench.answer("step0")
    bench.answer("step2")
    bench.ledger.close()
    assert verify(bench.folder).problems == ()
    assert verify(bench.folder).spent == WHOLE + charge("a").cost


def test_a_training_whose_table_is_gone_is_found(bench: Bench) -> None:
    bench.answer("step0")
    bench.ledger.close()
    forget_the_table(bench.folder)
    assert codes(verify(bench.folder)) == {"WrongIndex"}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM steps WHERE place = 0",
        "UPDATE steps SET place = 2 WHERE place = 1",
        "UPDATE steps SET block = 'c' || substr(block, 2)",
        "INSERT INTO steps SELECT 'c', 0, plan_id FROM charges WHERE plan_id NOT IN (SELECT plan_id FROM steps)",
    ],
)
def test_every_edit_of_the_rounds_is_found(bench: Bench, statement: str) -> None:
    for word in ("a", "step0", "step1"):
        bench.answer(word)
    bench.ledger.close()
    connection = sqlite3.connect(bench.folder / LEDGER_FILE, isolation_level=None)
    for lock in ("changed", "removed"):
        connection.execute(f"DROP TRIGGER steps_are_never_{lock}")
    connection.execute(statement)
    connection.close()
    assert codes(verify(bench.folder)) == {"WrongIndex"}


# --- a hospital that signs what is not true --------------------------------------------------------------------


def round_of(word: str, place: int, *, first: bool = False, block: str = BLOCK) -> Said:
    whole = step_charge(word, place, block=block)
    facts = whole.facts if first else whole.continued().facts
    return charged(word, facts)


def charged(word: str, facts: tuple[AnyFact, ...]) -> Said:
    body: dict[str, Plain] = {"plan_id": word, "account": "d", "facts": facts_body(facts)}
    return "charged", {**body, **cost_body(Charge(word, facts).cost)}


def bloated(**changes: int) -> Said:
    """A first round that says more of its training than was paid for."""
    (whole,) = step_charge("x", 0).facts
    return charged("x", (dataclasses.replace(whole, **changes),))  # type: ignore[arg-type]


def test_the_truth_about_a_training_is_valid() -> None:
    said = (CAPPED, round_of("x", 1, first=True), paid("a"), round_of("y", 0), round_of("z", 2))
    assert judge(signed(*said)).problems == ()


LIES: dict[str, tuple[list[Said], str]] = {
    "a round before its training is paid": ([round_of("y", 0), round_of("x", 1, first=True)], "UnpaidStep"),
    "a round of no training": ([round_of("y", 0)], "UnpaidStep"),
    "a round of another training": ([round_of("x", 1, first=True), round_of("y", 0, block="c" * 64)], "UnpaidStep"),
    "a round that the training has not": (
        [round_of("x", 1, first=True), charged("y", (StepFact(BLOCK, ROUNDS, 3),))],
        "UnpaidStep",
    ),
    "a round taken twice": ([round_of("x", 1, first=True), round_of("y", 1)], "RepeatedStep"),
    "a later round taken twice": (
        [round_of("x", 1, first=True), round_of("y", 0), round_of("z", 0)],
        "RepeatedStep",
    ),
    "a training charged twice": ([round_of("x", 1, first=True), round_of("y", 0, first=True)], "RepeatedCharge"),
    "more rounds than sums that are paid for": ([bloated(rounds=ROUNDS + 1)], "UnpaidStep"),
    "a first round of more numbers than are paid for": ([bloated(dimension=ROUNDS * VALUES + 1)], "UnpaidStep"),
    "a later round of more numbers than are left": (
        [round_of("x", 1, first=True), charged("y", (StepFact(BLOCK, 0, 2 * VALUES + 1),))],
        "UnpaidStep",
    ),
    "a round beside a question": (
        [round_of("x", 1, first=True), charged("y", (StepFact(BLOCK, 0, 3), *charge("a").facts))],
        "MalformedEntry",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_signed_lie_about_a_training_is_found(name: str) -> None:
    said, code = LIES[name]
    assert code in codes(judge(signed(CAPPED, *said)))


def test_a_training_that_is_charged_too_little_is_found() -> None:
    kind, body = round_of("x", 1, first=True)
    assert codes(judge(signed(CAPPED, (kind, {**body, "mu_squared": "1"})))) == {"WrongCharge"}


def test_a_training_that_cannot_be_accounted_is_malformed() -> None:
    (whole,) = step_charge("x", 0).facts
    assert isinstance(whole, BlockFact)
    kind, body = round_of("x", 0, first=True)
    facts = facts_body([whole])
    facts[0]["trained"][0]["scale_1024ths"] = "5"  # type: ignore[index,call-overload]
    assert codes(judge(signed(CAPPED, (kind, {**body, "facts": facts})))) == {"MalformedEntry"}
