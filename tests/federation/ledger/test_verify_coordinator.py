"""`verify` finds every edit of a coordinator's ledger, and everything it may not sign."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.coordinator.hospitals import World, ask
from tests.federation.ledger.ledger_bench import fact, step_charge
from wardround.federation import canonical
from wardround.federation.ledger.entry_body import Plain, cap_body, cost_body, encode_body, facts_body
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.evidence import Evidence, export
from wardround.federation.ledger.verify.verify import Verification, judge, verify
from wardround.federation.plan.plan import Charge
from wardround.federation.study.study import Study
from wardround.federation.trust.entry import EMPTY, make_entry
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap

CAP = Cap(3.0, 1e-6)


def codes(verification: Verification) -> set[str]:
    return {problem.code.value for problem in verification.problems}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two answered rounds; one site refused both, one was revoked afterwards."""
    world = World(tmp_path_factory.mktemp("coordinator"))
    world.enrol("one", count=1)
    world.enrol("two", count=10)
    world.enrol("three", count=100, mood="refuse")
    world.ask(ask(0.5))
    world.ask(ask(0.5, nonce="a6a1"))
    world.coordinator.roster.revoke("two")
    world.coordinator.ledger.close()
    return world.folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def edit(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)
    locks = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for (lock,) in locks:
        connection.execute(f"DROP TRIGGER {lock}")
    connection.execute(statement)
    connection.close()


def test_an_honest_coordinator_is_valid_and_its_export_too(folder: Path, tmp_path: Path) -> None:
    verdict = verify(folder)
    assert verdict.problems == ()
    assert (verdict.role, verdict.cap) == ("coordinator", CAP)
    assert verdict.spent.mu_squared > 0
    export(folder, tmp_path / "export")
    assert verify(tmp_path / "export") == verdict


EDITS = {
    "body": ("UPDATE entries SET body = replace(body, '1', '2') WHERE kind = 'reserved'", {"BadSignature"}),
    "answer": ("UPDATE answers SET answer = replace(answer, '1', '2')", {"AlteredBytes"}),
    "answer deleted": ("DELETE FROM answers", {"AlteredBytes"}),
    "payload": ("UPDATE submissions SET payload = x'00' WHERE code = ''", {"AlteredBytes"}),
    "submission deleted": ("DELETE FROM submissions WHERE code = ''", {"MissingBytes"}),
    "account lowered": ("UPDATE accounts SET mu_squared = mu_squared - 1 WHERE account = 'one'", {"WrongAccount"}),
    "cap raised": ("UPDATE accounts SET cap_mu_squared = cap_mu_squared + 1", {"WrongAllowance"}),
}


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_of_a_row_is_found(folder: Path, name: str) -> None:
    statement, expected = EDITS[name]
    edit(folder, statement)
    assert expected <= codes(verify(folder))


def test_the_overlap_comes_from_the_study_that_was_signed(folder: Path) -> None:
    text = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text(text.replace("overlap = 1", "overlap = 2"))
    assert "WrongStudy" in codes(verify(folder))
    (folder / "study.toml").unlink()
    assert "WrongStudy" in codes(verify(folder))


def test_an_export_carries_the_study_and_cannot_swap_it(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "export"
    export(folder, out)
    header, *lines = out.read_text().splitlines()
    document = json.loads(header)
    document["study"] = document["study"].replace('"overlap":1', '"overlap":2')
    changed = json.dumps(document, sort_keys=True, separators=(",", ":"))
    out.write_text("".join(f"{line}\n" for line in (changed, *lines)))
    assert changed != header
    assert "WrongStudy" in codes(verify(out))


# --- a coordinator that signs what is not true ---------------------------------------------------------------

LIAR = Identity.generate()
Said = tuple[str, dict[str, Plain]]


def study(overlap: int | None) -> Study:
    return Study("s", "patient", overlap, CAP, (), 1, 1.0, 1.0)  # type: ignore[arg-type]


def signed(*said: Said, overlap: int | None = 1) -> Evidence:
    agreed = study(overlap)
    opened: Said = (
        "opened",
        {"role": "coordinator", "name": "s", "study_hash": agreed.study_hash, "key": LIAR.public.key},
    )
    sites = [("enrolled", {"site": s, "key": "00", "patients": 1, "dataset": "d"}) for s in ("a", "b")]
    head, entries = EMPTY, []
    for kind, body in (opened, ("capped", cap_body("study", CAP)), *sites, *said):
        entries.append(make_entry(LIAR, after=head, kind=kind, body=encode_body(body)))
        head = entries[-1].head
    return Evidence(LIAR.public.key, canonical.encode(agreed).decode(), tuple(entries), (), None)


def reserved(plan: str = "p", scale: int = 400, **changed: Plain) -> Said:
    facts = (fact(scale),)
    body = {"plan_id": plan, "facts": facts_body(facts), "sites": ["a", "b"], **cost_body(Charge(plan, facts).cost)}
    return "reserved", {**body, **changed}


def by(kind: str, site: str = "a", plan: str = "p", **more: Plain) -> Said:
    return kind, {"plan_id": plan, "site": site, "sequence": 1, "digest": "0", **more}


RECEIVED = by("received", release_hash="0")
DECLINED = by("declined", code="PlanRefused")
SETTLED: Said = ("settled", {"plan_id": "p", "answered": ["a"], "refused": {}, "missing": ["b"]})
ANSWERED: Said = ("answered", {"plan_id": "p", "answer_hash": "0"})


def training_round(plan: str, place: int, *, first: bool = False, **changed: Plain) -> Said:
    whole = step_charge(plan, place)
    facts = whole.facts if first else whole.continued().facts
    body = {"plan_id": plan, "facts": facts_body(facts), "sites": ["a", "b"], **cost_body(Charge(plan, facts).cost)}
    return "reserved", {**body, **changed}


FIRST = training_round("p", 1, first=True)
GIVEN_BACK = (DECLINED, by("voided"))

LIES: dict[str, tuple[list[Said], str]] = {
    "received what was not reserved": ([RECEIVED], "UnpaidRelease"),
    "received from a stranger": ([reserved(), by("received", "c", release_hash="0")], "UnpaidRelease"),
    "received twice": ([reserved(), RECEIVED, RECEIVED], "SecondRelease"),
    "received after the void": ([reserved(), DECLINED, by("voided"), RECEIVED], "UnpaidRelease"),
    "void without a refusal": ([reserved(), by("voided")], "WrongRefusal"),
    "void after a release": ([reserved(), RECEIVED, DECLINED, by("voided")], "WrongRefusal"),
    "void of nothing": ([DECLINED, by("voided")], "WrongRefusal"),
    "void twice": ([reserved(), DECLINED, by("voided"), by("voided")], "WrongRefusal"),
    "reserved twice": ([reserved(), reserved()], "RepeatedCharge"),
    "one site twice in a plan": ([reserved(sites=["a", "a"])], "RepeatedCharge"),
    "reserved at a stranger's": ([reserved(sites=["a", "c"])], "UnknownSite"),
    "reserved too little": ([reserved(mu_squared="1")], "WrongCharge"),
    "reserved above the cap": ([reserved(f"{n}", 100) for n in range(20)], "Overspent"),
    "settled without the release": ([reserved(), SETTLED], "MissingBytes"),
    "settled out of nothing": ([SETTLED], "UnpaidRelease"),
    "answered before settled": ([reserved(), RECEIVED, ANSWERED], "SecondAnswer"),
    "answered twice": ([reserved(), RECEIVED, SETTLED, ANSWERED, ANSWERED], "SecondAnswer"),
    "a second cap": ([("capped", cap_body("study", Cap(9.0, 1e-6)))], "WrongAllowance"),
    "enrolled twice": ([("enrolled", {"site": "a", "key": "1", "patients": 1, "dataset": "d"})], "UnknownSite"),
    "froze a stranger": ([("frozen", {"site": "c", "reason": "r"})], "UnknownSite"),
    "charged like a site": ([("charged", {"plan_id": "p"})], "MalformedEntry"),
    "a round before its training": ([training_round("q", 0), FIRST], "UnpaidStep"),
    "a round where the training was not reserved": (
        [training_round("p", 1, first=True, sites=["a"]), training_round("q", 0)],
        "UnpaidStep",
    ),
    "a round where the training was given back": ([FIRST, *GIVEN_BACK, training_round("q", 0)], "UnpaidStep"),
    "a training given back under its rounds": ([FIRST, training_round("q", 0), *GIVEN_BACK], "UnpaidStep"),
    "a round taken twice": ([FIRST, training_round("q", 1)], "RepeatedStep"),
    "a training reserved twice": ([FIRST, training_round("q", 0, first=True)], "RepeatedCharge"),
    "no sites": ([reserved(sites=None)], "MalformedEntry"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_signed_lie_is_found(name: str) -> None:
    said, code = LIES[name]
    assert code in codes(judge(signed(*said)))


def test_the_truth_is_valid() -> None:
    truth = [reserved(), RECEIVED, by("declined", "b", code="PlanRefused"), by("voided", "b"), SETTLED, ANSWERED]
    truth += [("frozen", {"site": "a", "reason": "r"}), ("revoked", {"name": "a"})]
    assert judge(signed(*truth)).problems == ()


def test_the_truth_about_a_training_is_valid() -> None:
    alone = {"sites": ["b"]}
    truth = [FIRST, *GIVEN_BACK, training_round("q", 0, **alone), training_round("r", 2, **alone)]
    assert judge(signed(*truth)).problems == ()


def test_what_a_patient_loses_is_the_sum_over_as_many_sites_as_it_may_be_at() -> None:
    one = Charge("p", (fact(100),)).cost
    fitting = CAP.allowance().mu_squared // one.mu_squared
    plans = [reserved(f"{n}", 100) for n in range(fitting)]
    alone, twice = judge(signed(*plans, overlap=1)), judge(signed(*plans, overlap=2))
    assert alone.problems == ()
    assert alone.spent == Cost(one.mu_squared * fitting, 0, one.slack * fitting)
    assert twice.spent == alone.spent + alone.spent
    assert codes(twice) == codes(judge(signed(*plans, overlap=None))) == {"Overspent"}
