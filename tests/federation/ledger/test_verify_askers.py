"""`verify` knows who asked and who approved: every new column, and every chain that says what cannot be."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from site_agent.store.askers import Asking
from tests.coordinator.hospitals import World, ask, oracle
from tests.federation.ledger.ledger_bench import (
    BLOCK,
    ROUNDS,
    Bench,
    asking,
    charge,
    plan,
    plan_id,
    spend,
    step_charge,
    task,
)
from tests.federation.ledger.test_verify_site import CAPPED, Said, codes, edit, paid, signed
from tests.fixtures.asking import ADA, ANALYST, asked_by
from wardround.federation import canonical
from wardround.federation.ledger.entry_body import Plain, asked_body, cost_body, facts_body
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import judge, verify
from wardround.federation.plan.plan import Charge
from wardround.federation.plan.task import AskRequest, sign_request
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.entry import EMPTY
from wardround.federation.trust.identity import Identity
from wardround.privacy.budget.facts import StepFact

BEN = Identity.generate()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Charged at once, held and approved, held and denied, refused, still waiting; two analysts, one compared."""
    bench = Bench(tmp_path_factory.mktemp("asked") / "site")
    spend(bench.ledger, "a")
    for word in ("yes", "no", "waiting"):
        bench.ledger.hold(task(word, coordinator=bench.coordinator), summary=word)
    bench.ledger.decide(plan_id("yes"), approve=True, by="eve")
    spend(bench.ledger, "yes")
    bench.ledger.decide(plan_id("no"), approve=False, by="eve")
    bench.ledger.refuse(asking("refused"), RefusalReason.PLAN)
    bench.ledger.analysts.trust("ben", BEN.public, by="eve")
    bench.ledger.close()
    return bench


@pytest.fixture
def folder(original: Bench, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original.folder, tmp_path / "copy"))


def test_an_honest_ledger_is_valid(folder: Path) -> None:
    assert verify(folder).problems == ()
    with sqlite3.connect(folder / LEDGER_FILE) as ledger:
        kinds = [kind for (kind,) in ledger.execute("SELECT kind FROM entries ORDER BY sequence")]
    assert kinds[2:] == [
        *("pinned", "charged", "held", "held", "held", "approved", "charged", "denied", "refused", "refused", "pinned")
    ]


# By column: each of the rows is changed alone, and found. The hour is a hint.
COLUMNS: dict[str, list[str]] = {
    "plans.plan_id": ["UPDATE plans SET plan_id = 'x' || plan_id WHERE rowid = {row}"],
    "plans.plan": [
        "UPDATE plans SET plan = CAST(replace(plan, 'encounters', 'encounterz') AS BLOB) WHERE rowid = {row}",
        "UPDATE plans SET plan = CAST(plan || ' ' AS BLOB) WHERE rowid = {row}",
        "UPDATE plans SET plan = x'' WHERE rowid = {row}",
    ],
    "plans.asked_by": [
        "UPDATE plans SET asked_by = x'' WHERE rowid = {row}",
        "UPDATE plans SET asked_by = x'00' WHERE rowid = {row}",
        "UPDATE plans SET asked_by = CAST(replace(asked_by, 'ada', 'ben') AS BLOB) WHERE rowid = {row}",
        "UPDATE plans SET asked_by = (SELECT asked_by FROM plans WHERE rowid <> {row} LIMIT 1) WHERE rowid = {row}",
    ],
}
OTHERS = {
    "pins.analyst": "UPDATE pins SET analyst = 'carl' WHERE analyst = 'ben'",
    "pins.key": f"UPDATE pins SET key = '{BEN.public.key}' WHERE analyst = 'ada'",
    "pins.sequence": "UPDATE pins SET sequence = 4 WHERE analyst = 'ada'",
    "a pin is gone": "DELETE FROM pins WHERE analyst = 'ben'",
    "a pin that nobody wrote": f"INSERT INTO pins VALUES ('carl', '{'0' * 64}', 5)",
    "decisions.plan_id": f"UPDATE decisions SET plan_id = '{plan_id('waiting')}' WHERE plan_id = '{plan_id('yes')}'",
    "decisions.sequence": f"UPDATE decisions SET sequence = 4 WHERE plan_id = '{plan_id('yes')}'",
    "a decision is gone": "DELETE FROM decisions",
    "a decision that nobody made": f"INSERT INTO decisions VALUES ('{plan_id('waiting')}', 4)",
    "a yes that was a no": f"UPDATE requests SET state = 'approved' WHERE plan_id = '{plan_id('no')}'",
    "a no that was a yes": f"UPDATE requests SET state = 'denied' WHERE plan_id = '{plan_id('yes')}'",
    "a yes that waits": f"UPDATE requests SET state = 'pending' WHERE plan_id = '{plan_id('yes')}'",
    "when it began to wait": "UPDATE requests SET asked_on = '2026-02-28'",
    "when it was refused": "UPDATE refusals SET date = '2026-02-28'",
    "a plan is gone": "DELETE FROM plans WHERE rowid = 2",
    "a plan that nobody asked": "INSERT INTO plans VALUES ('p', x'00', x'', '2026-03-01 09')",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_every_change_of_what_was_asked_is_found(folder: Path, tmp_path: Path, column: str) -> None:
    rows = 5
    for number, statement in enumerate(COLUMNS[column]):
        for row in range(1, rows + 1):
            copy = Path(shutil.copytree(folder, tmp_path / f"{number}-{row}"))
            edit(copy, statement.format(row=row))
            assert "WrongIndex" in codes(verify(copy)), (statement, row)


@pytest.mark.parametrize("change", OTHERS)
def test_every_other_change_of_a_table_is_found(folder: Path, change: str) -> None:
    edit(folder, OTHERS[change])
    assert "WrongIndex" in codes(verify(folder))


def test_the_hour_is_a_hint(folder: Path) -> None:
    edit(folder, "UPDATE plans SET hour = 'yesterday'")
    assert verify(folder).problems == ()


# --- a hospital that signs what is not true -------------------------------------------------------------------

FIRST: Said = ("pinned", {"analyst": ANALYST, "key": ADA.public.key, "how": "first sight", "date": "2026-03-01"})
STEWARD: Said = ("pinned", {**FIRST[1], "how": "steward", "by": "eve"})
BY_ADA = asked_body(asked_by(plan("a")))
BY_BEN = asked_body(asked_by(plan("a"), BEN))
NOBODY = asked_body(None)


def held(word: str = "a", asked: dict[str, Plain] = BY_ADA) -> Said:
    return "held", {"plan_id": word, "date": "2026-03-01", **asked}


def decided(kind: str, word: str = "a", by: str = "eve") -> Said:
    return kind, {"plan_id": word, "by": by, "date": "2026-03-01"}


def refused(word: str = "a", code: str = "PlanRefused", **more: Plain) -> Said:
    return "refused", {"plan_id": word, "code": code, "date": "2026-03-01", "asked": BY_ADA["asked"], **more}


def charged(word: str = "a", asked: dict[str, Plain] = BY_ADA, **more: Plain) -> Said:
    return paid(word, **asked, **more)


def step(place: int, asked: dict[str, Plain] | None, **more: Plain) -> Said:
    """A round of one training; the first pays for all of it. Without who asked it is as an earlier version wrote it."""
    whole = step_charge("x", place)
    facts = whole.facts if place == 0 else (StepFact(BLOCK, place, whole.dimension),)
    word = f"step {place}"
    body = {"plan_id": word, "account": "d", "facts": facts_body(facts), **cost_body(Charge(word, facts).cost)}
    return "charged", {**body, **(asked or {}), **more}


TRUE: dict[str, list[Said]] = {
    "known and charged": [FIRST, charged()],
    "known by a steward's word": [STEWARD, charged()],
    "another key by a steward's word": [("pinned", {**FIRST[1], "key": BEN.public.key}), STEWARD, charged()],
    "nobody signed and approved": [held(asked=NOBODY), decided("approved"), charged(asked=NOBODY, approved_by="eve")],
    "another key and approved": [
        FIRST,
        held(asked=BY_BEN),
        decided("approved"),
        charged(asked=BY_BEN, approved_by="eve"),
    ],
    "approved under an earlier version": [decided("approved", by=""), charged(asked=NOBODY, approved_by="")],
    "a charge of an earlier version": [paid("a")],
    "a refusal of an earlier version": [("refused", {"plan_id": "a", "code": "ApprovalDenied"})],
    "denied": [FIRST, held(), decided("denied"), refused(code="ApprovalDenied")],
    "denied without the plan, which could not be read": [
        decided("denied"),
        ("refused", {"plan_id": "a", "code": "ApprovalDenied", "date": "2026-03-01"}),
    ],
    "approved and then refused": [FIRST, held(), decided("approved"), refused(code="BudgetExceeded")],
    "approved and then denied": [FIRST, held(), decided("approved"), decided("denied"), refused(code="ApprovalDenied")],
    "a training": [FIRST, *(step(place, BY_ADA) for place in range(ROUNDS))],
    "a training that was approved": [
        decided("approved", "step 0"),
        step(0, NOBODY, approved_by="eve"),
        *(step(place, NOBODY) for place in range(1, ROUNDS)),
    ],
    "a training of an earlier version goes on": [step(0, None), step(1, NOBODY)],
    "a training of an earlier version goes on, signed": [step(0, None), FIRST, step(1, BY_ADA)],
}
LIES: dict[str, tuple[list[Said], str]] = {
    "a charge for nobody": ([charged(asked=NOBODY)], "WrongAsker"),
    "a charge for somebody who is not known": ([charged()], "WrongAsker"),
    "a charge under another key": ([FIRST, charged(asked=BY_BEN)], "WrongAsker"),
    "a charge under a key of before": ([FIRST, ("pinned", {**STEWARD[1], "key": BEN.public.key}), charged()],
                                       "WrongAsker"),
    "a second first sight": ([FIRST, ("pinned", {**FIRST[1], "key": BEN.public.key})], "WrongAsker"),
    "a steward without a name": ([("pinned", {**FIRST[1], "how": "steward"})], "MalformedEntry"),
    "a key by another way": ([("pinned", {**FIRST[1], "how": "telephone"})], "MalformedEntry"),
    "a key that is none": ([("pinned", {**FIRST[1], "key": "k"})], "MalformedEntry"),
    "another who asked than the one who waited": ([FIRST, held(asked=NOBODY), charged()], "WrongAsker"),
    "another who was refused than the one who waited": ([FIRST, held(asked=NOBODY), refused()], "WrongAsker"),
    "held twice": ([FIRST, held(), held()], "WrongAsker"),
    "held after its charge": ([FIRST, charged(), held()], "WrongDecision"),
    "approved after its charge": ([FIRST, charged(), decided("approved")], "WrongDecision"),
    "approved twice": ([FIRST, held(), decided("approved"), decided("approved")], "WrongDecision"),
    "approved after it was denied": ([held(), decided("denied"), decided("approved")], "WrongDecision"),
    "denied and not refused": ([FIRST, held(), decided("denied")], "WrongDecision"),
    "denied and charged": ([FIRST, held(), decided("denied"), charged()], "WrongDecision"),
    "refused as denied, and nobody denied it": ([FIRST, refused(code="ApprovalDenied")], "WrongDecision"),
    "denied and refused for something else": ([FIRST, held(), decided("denied"), refused()], "WrongDecision"),
    "approved, and the charge names nobody": ([FIRST, held(), decided("approved"), charged()], "WrongDecision"),
    "approved by another": ([FIRST, held(), decided("approved"), charged(approved_by="ann")], "WrongDecision"),
    "approved by somebody, and nobody was asked": ([FIRST, charged(approved_by="eve")], "WrongDecision"),
    "a decision without a name": ([("approved", {"plan_id": "a", "date": "2026-03-01"})], "MalformedEntry"),
    "a decision without a date": ([("approved", {"plan_id": "a", "by": "eve"})], "MalformedEntry"),
    "a round for nobody": ([FIRST, step(0, BY_ADA), step(1, NOBODY)], "WrongAsker"),
    "a round under another key": ([FIRST, step(0, BY_ADA), step(1, BY_BEN)], "WrongAsker"),
    "a round for another than was approved": (
        [decided("approved", "step 0"), step(0, NOBODY, approved_by="eve"), FIRST, step(1, BY_BEN)],
        "WrongAsker",
    ),
    "an asker without a digest": ([FIRST, charged(asked={**BY_ADA, "asked": "x"})], "MalformedEntry"),
}  # fmt: skip


@pytest.mark.parametrize("truth", TRUE)
def test_what_can_be_is_valid(truth: str) -> None:
    assert judge(signed(CAPPED, *TRUE[truth])).problems == ()


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_is_found(lie: str) -> None:
    said, code = LIES[lie]
    assert code in codes(judge(signed(CAPPED, *said)))


# --- a coordinator --------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = oracle(tmp_path)
    for request in (ask(), ask(nonce="ab"), ask(0.25)):
        made.ask(sign_request(request, ADA, analyst=ANALYST, study_hash=made.study.study_hash, purpose="a pilot"))
    made.ask(AskRequest(ask().query, 0.125))
    made.close()
    return made


CHANGES = {
    "rounds.analyst": "UPDATE rounds SET analyst = 'ben' WHERE number = {row}",
    "rounds.epsilon": "UPDATE rounds SET epsilon = epsilon / 2 WHERE number = {row}",
    "rounds.delta": "UPDATE rounds SET delta = delta / 2 WHERE number = {row}",
    "askers.asked_by": "UPDATE askers SET asked_by = CAST(replace(asked_by, 'a pilot', 'a pilOt') AS BLOB)"
    " WHERE plan_id = (SELECT plan_id FROM rounds WHERE number = {row})",
    "askers.plan_id": "DELETE FROM askers WHERE plan_id = (SELECT plan_id FROM rounds WHERE number = {row})",
}


@pytest.mark.parametrize("column", CHANGES)
def test_every_change_of_who_asked_a_coordinator_is_found(world: World, column: str) -> None:
    assert world.verified().problems == ()
    content = (world.folder / LEDGER_FILE).read_bytes()
    for row in (1, 2, 3):
        with sqlite3.connect(world.folder / LEDGER_FILE) as ledger:
            for lock in ("askers_are_never_changed", "askers_are_never_removed"):
                ledger.execute(f"DROP TRIGGER {lock}")
            ledger.execute(CHANGES[column].format(row=row))
        ledger.close()
        assert codes(world.verified()) == {"WrongIndex"}
        (world.folder / LEDGER_FILE).write_bytes(content)
    assert world.verified().problems == ()


def test_a_signature_that_an_entry_does_not_name_is_found(world: World) -> None:
    """The fourth question was not signed; somebody says afterwards that it was."""
    with sqlite3.connect(world.folder / LEDGER_FILE) as ledger:
        (unsigned,) = ledger.execute("SELECT plan_id FROM rounds WHERE number = 4").fetchone()
        row = (unsigned, canonical.encode(asked_by(plan("a"))))
        ledger.execute("INSERT INTO askers VALUES (?, ?)", row)
    ledger.close()
    assert codes(world.verified()) == {"WrongIndex"}


def test_a_charge_in_a_name_whose_signature_is_on_another_question_is_found(tmp_path: Path) -> None:
    """Whatever the site signs: the analyst's own signature lies beside the plan."""
    bench = Bench(tmp_path / "site")
    bench.ledger.spend(charge("a"), Asking(plan("a"), asking("b").asked_by), head=EMPTY)
    bench.ledger.close()
    assert codes(verify(bench.folder)) == {"WrongIndex"}
