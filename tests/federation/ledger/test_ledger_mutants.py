"""The tests would notice: each mutant breaks one rule of the ledger, and the check of that rule fails on it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.federation.ledger.ledger_bench import (
    CAP,
    DATE,
    Bench,
    asking,
    charge,
    forgotten,
    plan_id,
    spend,
    step_charge,
)
from wardround.federation.errors import (
    BudgetExceeded,
    FederationError,
    InvariantBroken,
    Mistaken,
    PlanRefused,
    SiteFrozen,
    UnpaidRelease,
    UnprovedHead,
)
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.task import Released
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.entry import EMPTY, Head
from wardround.federation.trust.identity import Identity

ROOT = Path(__file__).parents[3]
# In the order in which they import each other.
MODULES = (
    "wardround.federation.ledger.chain",
    "wardround.federation.ledger.accounts",
    "wardround.federation.ledger.site_tables",
    "wardround.federation.ledger.sqlite_file",
    "site_agent.store.charges",
    "site_agent.store.outbox",
    "site_agent.store.requests",
    "site_agent.store.closed_tables",
    "site_agent.store.ledger",
)
CHAIN, ACCOUNTS, TABLES, DATABASE, CHARGES, OUTBOX, _, CLOSED, LEDGER = MODULES


def refused(error: type[FederationError], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    pytest.fail(f"expected {error.__name__}")


def pays_before_it_keeps(bench: Bench) -> None:
    refused(UnpaidRelease, lambda: bench.ledger.keep(bench.release("a")))
    spend(bench.ledger, "a")
    refused(UnpaidRelease, lambda: bench.ledger.keep(bench.release("a", size=9)))


def keeps_one_byte_string(bench: Bench) -> None:
    first, second = bench.answer("a"), bench.answer("a")
    assert first == second == bench.ledger.find(plan_id("a"))
    assert bench.ledger.spent() == charge("a").cost


def sends_what_it_committed(bench: Bench) -> None:
    bench.answer("a")
    kept = bench.reopen().find(plan_id("a"))
    assert isinstance(kept, Released)
    assert bench.ledger.undelivered() == [kept]
    bench.ledger.delivered(kept.plan_id, bench.receipt(kept))
    assert bench.ledger.undelivered() == []


def stays_within_the_cap(bench: Bench) -> None:
    def everything() -> None:
        for number in range(100):
            spend(bench.ledger, str(number))

    refused(BudgetExceeded, everything)
    assert bench.ledger.spent().fits(CAP.allowance())
    assert bench.ledger.spent().mu_squared == charge("x").cost.mu_squared * (
        CAP.allowance().mu_squared // charge("x").cost.mu_squared
    )


def freezes_and_is_silent(bench: Bench) -> None:
    bench.answer("a")
    refused(UnprovedHead, lambda: spend(bench.ledger, "b", head=Head(3, "1" * 64)))
    refused(UnprovedHead, lambda: bench.ledger.reconcile(forgotten(Identity.generate(), 3)))
    assert bench.ledger.frozen() is None
    refused(SiteFrozen, lambda: bench.ledger.reconcile(forgotten(bench.identity, 3)))
    bench.reopen()
    assert bench.ledger.frozen() is not None
    assert bench.ledger.undelivered() == []
    refused(SiteFrozen, lambda: bench.ledger.find(plan_id("a")))
    refused(SiteFrozen, lambda: spend(bench.ledger, "b"))
    refused(SiteFrozen, lambda: bench.ledger.keep(bench.release("a")))


def never_refuses_what_was_charged(bench: Bench) -> None:
    spend(bench.ledger, "a")
    refused(InvariantBroken, lambda: bench.ledger.refuse(asking("a"), RefusalReason.PLAN))
    assert bench.reopen().keep(bench.release("a"))


def keeps_a_valid_chain(bench: Bench) -> None:
    bench.answer("a")
    bench.ledger.refuse(asking("b"), RefusalReason.PLAN)
    assert verify(bench.folder).problems == ()


def charges_a_training_once(bench: Bench) -> None:
    for word in ("step1", "step0", "step1"):
        bench.answer(word)
        assert bench.ledger.spent() == charge("step0").cost
    refused(PlanRefused, lambda: spend(bench.ledger, "liar", step_charge("liar", 0)))
    spend(bench.ledger, "other", step_charge("other", 0, block="c" * 64, scale=800))
    assert bench.ledger.spent() != charge("step0").cost
    assert verify(bench.folder).problems == ()


def closes_and_opens_a_table(bench: Bench) -> None:
    tables = bench.ledger.tables
    spend(bench.ledger, "a", head=EMPTY, table="visits")
    tables.begin_again(plan_id("a"), "visits")
    tables.begin_again(plan_id("a"), "visits")
    tables.take_back(plan_id("a"))
    assert tables.standing("visits") == (None, 2)
    tables.close("visits", source="first")
    tables.close("visits", source="later")
    refused(InvariantBroken, lambda: bench.ledger.keep(bench.release("a")))
    tables = bench.reopen().tables
    refused(InvariantBroken, lambda: spend(bench.ledger, "b", head=EMPTY, table="visits"))
    tables = bench.reopen().tables
    assert not tables.reopen_changed("visits", source="first")
    assert tables.reopen_changed("visits", source="second")
    assert tables.standing("visits") == (None, 0)
    spend(bench.ledger, "c", head=EMPTY, table="visits")
    bench.ledger.keep(bench.release("c"))
    assert tables.standing("visits") == (None, 0)
    tables.close("visits", source="second")
    assert not tables.reopen_changed("visits", source="third"), "once a day"
    tables.reopen("visits")
    refused(Mistaken, lambda: tables.reopen("visits"))
    tables.close("labs", source="")
    assert not tables.reopen_changed("labs", source="third"), "a source that cannot see changes"
    assert verify(bench.folder).problems == ()


def waits_for_the_disk(bench: Bench) -> None:
    with bench.ledger._database.reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)


LAWS = (
    pays_before_it_keeps,
    keeps_one_byte_string,
    sends_what_it_committed,
    stays_within_the_cap,
    freezes_and_is_silent,
    never_refuses_what_was_charged,
    keeps_a_valid_chain,
    charges_a_training_once,
    closes_and_opens_a_table,
    waits_for_the_disk,
)

MUTANTS: dict[str, list[tuple[str, str, str]]] = {
    "a release needs no charge": [
        (OUTBOX, "        raise UnpaidRelease\n    if not", "        facts = ()\n    if not"),
        (OUTBOX, "if not extent(release)", "if False and not extent(release)"),
        (TABLES, "plan_id  TEXT PRIMARY KEY REFERENCES charges (plan_id)", "plan_id  TEXT PRIMARY KEY"),
    ],
    "a release may be longer than paid for": [(OUTBOX, "if not extent(release)", "if False and not extent(release)")],
    "a repeat pays again": [(LEDGER, "        if paid is not None:\n", "        if False:\n")],
    "a repeat stores again": [
        (LEDGER, "if not outbox.is_released(connection, release.plan_id):", "if True:"),
        (OUTBOX, '"INSERT INTO releases', '"INSERT OR REPLACE INTO releases'),
        (
            TABLES,
            "CREATE TRIGGER releases_are_never_removed BEFORE DELETE ON releases\n",
            "CREATE TRIGGER gone BEFORE DELETE ON releases WHEN 0\n",
        ),
    ],
    "the bytes in hand are returned": [
        (
            LEDGER,
            "        match self.find(release.plan_id):\n",
            "        kept = self.find(release.plan_id)\n        match Released('', release.encode(), kept.entry):\n",
        )
    ],
    "a charge is not debited": [(ACCOUNTS, "    debit(connection, account, cost)", "    pass")],
    "the budget is not asked": [
        (
            ACCOUNTS,
            "    if not admits(cap.allowance(), before, cost) or not fits(connection, account, cost):",
            "    if False:",
        ),
        (ACCOUNTS, "    if not fits(connection, account, cost):", "    if False:"),
        (ACCOUNTS, " AND mu_squared <= cap_mu_squared", ""),
    ],
    "the budget ends one question early": [(ACCOUNTS, "found.spent, cost)", "found.spent, cost + cost)")],
    "any head is contained": [(CHAIN, "return row is not None and bool(row[0] == place.digest)", "return True")],
    "freezing is undone by its own error": [
        (
            LEDGER,
            "        # Outside the block: raising inside would undo the freezing.\n        if frozen:",
            "            if frozen:\n                raise SiteFrozen\n        if frozen:",
        )
    ],
    "an invented entry freezes": [(CHARGES, " or not proof.signed_by(identity.public)", "")],
    "freezing does not last": [
        (CHARGES, "    if frozen_reason(connection) is not None:\n        raise SiteFrozen", "    pass")
    ],
    "a frozen site still delivers": [
        (
            LEDGER,
            "if frozen_reason(connection) is not None:\n                return []",
            "if False:\n                return []",
        )
    ],
    "what was charged is refused": [
        (LEDGER, "if charges.is_paid(connection, plan_id):", "if False:"),
        (TABLES, "WHEN EXISTS (SELECT 1 FROM charges WHERE plan_id = NEW.plan_id)", "WHEN 0"),
    ],
    "entries do not point back": [
        (
            CHAIN,
            "after=head(connection)",
            "after=Head(head(connection).sequence, 64 * str(head(connection).sequence % 10))",
        )
    ],
    "every round pays for the training": [(CHARGES, "charge.continued() if", "charge if")],
    "no round pays for the training": [(CHARGES, "if begun(connection, charge.block) else charge", "")],
    "a round is taken twice": [
        (CHARGES, "        raise PlanRefused(TAKEN)", "        return charge.continued()"),
        (CHARGES, '"INSERT INTO steps', '"INSERT OR IGNORE INTO steps'),
    ],
    "rounds are not written down": [(CHARGES, "    if charge.block:\n", "    if False:\n")],
    "receipts are forgotten": [(OUTBOX, "NOT IN (SELECT plan_id FROM receipts)", "NOT IN (SELECT 1)")],
    "a table is closed twice": [
        (CLOSED, "if _find(connection, table) is None:\n                entry", "if True:\n                entry")
    ],
    "a closed table releases": [(TABLES, "JOIN closed_tables USING (name) WHERE", "WHERE 0 AND")],
    "a closed table is charged for": [
        (TABLES, "FROM closed_tables WHERE name = NEW.name", "FROM closed_tables WHERE 0")
    ],
    "a table opens without a change": [(CLOSED, 'closed.source in ("", source)', 'closed.source == ""')],
    "a table opens whose source sees no change": [(CLOSED, 'closed.source in ("", source)', "closed.source == source")],
    "a table opens again and again": [(CLOSED, " or self._reopened_today(connection, table)", "")],
    "readings are not counted anew": [(CLOSED, '"DELETE FROM readings WHERE name = ?"', '"SELECT ?"')],
    "readings that ended are counted": [(LEDGER, "closed_tables.end(connection, release.plan_id)", "pass")],
    "readings are not counted": [(CLOSED, "SET begun = begun + 1", "SET begun = begun")],
    "nothing is signed when a table opens": [
        (CLOSED, 'chain.append(connection, self.identity, kind="reopened", body=body)', "pass")
    ],
    "the disk is not awaited": [(DATABASE, "_OFF, _EXTRA = 0, 3", "_OFF, _EXTRA = 0, 1")],
}


def load(changes: list[tuple[str, str, str]]) -> types.ModuleType:
    """`site_agent.store.ledger`, and everything it stands on, with these changes of its source."""
    for name in MODULES:
        path = ROOT / (name.replace(".", "/") + ".py")
        source = path.read_text(encoding="utf-8")
        for module, old, new in changes:
            if module == name:
                assert old in source, f"the mutant no longer fits {name}: {old}"
                source = source.replace(old, new)
        module = types.ModuleType(name)
        module.__file__ = str(path)
        package, _, leaf = name.rpartition(".")
        sys.modules[name] = module
        setattr(sys.modules[package], leaf, module)
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 -- a mutant is source text
    return sys.modules[LEDGER]


@pytest.fixture
def isolated() -> Iterator[None]:
    """Put the true modules back afterwards."""
    true = {name: importlib.import_module(name) for name in MODULES}
    yield
    for name, module in true.items():
        package, _, leaf = name.rpartition(".")
        sys.modules[name] = module
        setattr(sys.modules[package], leaf, module)


def broken_laws(root: Path, ledger: types.ModuleType) -> list[str]:
    broken = []
    for law in LAWS:
        try:
            bench = make_bench(root / law.__name__, ledger, durable=law is waits_for_the_disk)
            law(bench)
            bench.ledger.close()
        except (FederationError, AssertionError, TypeError, pytest.fail.Exception):
            broken.append(law.__name__)
    return broken


def make_bench(folder: Path, module: types.ModuleType, *, durable: bool) -> Bench:
    """A bench over the ledger of this module."""

    class OverModule(Bench):
        def __post_init__(self) -> None:
            self.folder.mkdir(parents=True)
            self.identity.save(self.folder / "identity.pem")
            place = {"name": "st-mary", "study_hash": "0" * 64, "dataset": "ehr-2026"}
            keys = {"identity": self.identity, "coordinator_key": self.coordinator.public.key}
            self.ledger = module.SiteLedger.create(
                self.folder, keeping=self.keeping, today=lambda: DATE, **place, **keys
            )
            self.ledger.set_cap(CAP)

        def reopen(self) -> object:
            self.ledger.close()
            self.ledger = module.SiteLedger(self.folder, identity=self.identity, keeping=self.keeping)
            return self.ledger

    # The module's own word: it was loaded anew.
    keeping = sys.modules[DATABASE].Durability
    return OverModule(folder, keeping.DURABLE if durable else keeping.FILE)


@pytest.mark.usefixtures("isolated")
def test_the_ledger_as_it_is_breaks_no_law(tmp_path: Path) -> None:
    assert broken_laws(tmp_path, load([])) == []
    assert sys.modules[DATABASE].Database is not Database, "the laws were held by the modules under test"


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_a_law(tmp_path: Path, name: str) -> None:
    broken = broken_laws(tmp_path, load(MUTANTS[name]))
    assert broken != []
    # A mutant that breaks everything does not run at all, and shows nothing.
    assert len(broken) < len(LAWS)
