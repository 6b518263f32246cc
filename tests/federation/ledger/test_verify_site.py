"""`verify` finds every edit of a site's ledger, and never falls over its bytes."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.federation.ledger.ledger_bench import Bench, asking, charge, fact, plan_id, spend
from wardround.federation.errors import ConfigurationMistaken, LedgerBusy
from wardround.federation.ledger.entry_body import Plain, cap_body, cost_body, encode_body, facts_body
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify import evidence
from wardround.federation.ledger.verify.evidence import Evidence, export
from wardround.federation.ledger.verify.problems import Code
from wardround.federation.ledger.verify.verify import Verification, judge, verify
from wardround.federation.plan.plan import Charge
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.entry import EMPTY, Entry, Head, make_entry
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap
from wardround.privacy.noise.distribution import Mechanism

CAP = Cap(3.0, 1e-6, 1.0)
LOCKS = ("entries_are_never_changed", "entries_are_never_removed", "releases_are_never_changed")
LOCKS += ("releases_are_never_removed", "refusals_are_never_changed")
LOCKS += ("plans_are_never_changed", "plans_are_never_removed")


def codes(verification: Verification) -> set[str]:
    return {problem.code.value for problem in verification.problems}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Charges in both lanes, releases, a refusal, receipts, a changed cap, one charge without a release."""
    bench = Bench(tmp_path_factory.mktemp("original") / "site")
    bench.ledger.set_cap(CAP)
    for word in "abcd":
        kept = bench.answer(word)
        bench.ledger.delivered(kept.plan_id, bench.receipt(kept))
    refused = bench.ledger.refuse(asking("no"), RefusalReason.PLAN)
    bench.ledger.delivered(refused.plan_id, bench.receipt(refused))
    laplace = Charge(plan_id("pure"), (fact(640, mechanism=Mechanism.DISCRETE_LAPLACE),))
    spend(bench.ledger, "pure", laplace)
    bench.ledger.keep(bench.release("pure"))
    spend(bench.ledger, "open")
    bench.ledger.close()
    return bench


@pytest.fixture
def folder(original: Bench, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original.folder, tmp_path / "copy"))


def edit(folder: Path, *statements: str) -> None:
    """Edit the rows as somebody would who owns the disk."""
    connection = sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)
    for lock in LOCKS:
        connection.execute(f"DROP TRIGGER {lock}")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_an_honest_ledger_is_valid(original: Bench, folder: Path) -> None:
    verdict = verify(folder)
    assert verdict.valid
    assert (verdict.role, verdict.entries, verdict.cap) == ("site", 16, CAP)
    assert verdict.head == original.reopen().head()
    assert verdict.spent == original.ledger.spent()
    original.ledger.close()
    edit(folder)
    assert verify(folder).valid, "dropping the triggers alone changes nothing that was said"


def test_an_empty_ledger_is_not_opened(tmp_path: Path) -> None:
    assert codes(judge(Evidence("00" * 32, "", (), (), None))) == {"NotOpened"}


EDITS = {
    "body": ("UPDATE entries SET body = replace(body, 'a', 'b') WHERE sequence = 5", {"BadSignature", "BadDigest"}),
    "kind": ("UPDATE entries SET kind = 'refused' WHERE kind = 'charged'", {"BadSignature"}),
    "digest": ("UPDATE entries SET digest = 'x' || digest WHERE sequence = 5", {"BadDigest"}),
    "previous": ("UPDATE entries SET previous = 'x' || previous WHERE sequence = 5", {"BrokenChain", "BadSignature"}),
    "signature": ("UPDATE entries SET signature = randomblob(64) WHERE sequence = 5", {"BadSignature"}),
    "no signature": ("UPDATE entries SET signature = x'' WHERE sequence = 5", {"BadSignature"}),
    "renumbered": ("UPDATE entries SET sequence = 99 WHERE sequence = 16", {"Unreadable"}),
    "first deleted": ("DELETE FROM entries WHERE sequence = 1", {"BrokenChain", "NotOpened"}),
    "cap deleted": ("DELETE FROM entries WHERE sequence = 2", {"BrokenChain"}),
    "charge deleted": ("DELETE FROM entries WHERE sequence = 5", {"Unreadable"}),
    "last deleted": ("DELETE FROM entries WHERE sequence = 16", {"Unreadable"}),
    "account lowered": ("UPDATE accounts SET mu_squared = mu_squared - 1", {"WrongAccount"}),
    "account raised": ("UPDATE accounts SET pure = pure + 1", {"WrongAccount"}),
    "cap raised": ("UPDATE accounts SET cap_mu_squared = cap_mu_squared * 2", {"WrongAccount"}),
    "account deleted": ("DELETE FROM accounts", {"WrongAccount"}),
    "account added": ("INSERT INTO accounts VALUES ('other', 0, 0, 0, 9, 9, 9)", {"WrongAccount"}),
    "payload": ("UPDATE releases SET payload = CAST(payload || x'00' AS BLOB)", {"AlteredBytes"}),
    "release deleted": ("DELETE FROM releases WHERE sequence = 6", {"MissingBytes"}),
    "charge row deleted": ("DELETE FROM charges WHERE sequence = 16", {"WrongIndex"}),
    "refusal row deleted": ("DELETE FROM refusals", {"WrongIndex"}),
    "receipt body": ("UPDATE receipts SET body = replace(body, 'st-mary', 'st-paul')", {"BadReceipt"}),
    "receipt kind": ("UPDATE receipts SET kind = 'declined' WHERE kind = 'received'", {"BadReceipt"}),
    "receipt moved": (
        "UPDATE receipts SET plan_id = (SELECT plan_id FROM charges WHERE sequence = 16) WHERE kind = 'declined'",
        {"BadReceipt"},
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_of_a_row_is_found(folder: Path, name: str) -> None:
    statement, expected = EDITS[name]
    edit(folder, statement)
    found = verify(folder)
    assert not found.valid
    assert expected <= codes(found)


def test_two_entries_cannot_change_places(folder: Path) -> None:
    edit(
        folder,
        "UPDATE entries SET sequence = 100 WHERE sequence = 5",
        "UPDATE entries SET sequence = 5 WHERE sequence = 7",
        "UPDATE entries SET sequence = 7 WHERE sequence = 100",
    )
    assert {"BrokenChain", "BadSignature", "WrongIndex"} <= codes(verify(folder))


def test_two_releases_cannot_change_places(folder: Path) -> None:
    edit(
        folder,
        "CREATE TEMP TABLE two AS SELECT plan_id, payload FROM releases ORDER BY sequence LIMIT 2",
        """UPDATE releases SET payload = (SELECT payload FROM two WHERE two.plan_id != releases.plan_id)
           WHERE plan_id IN (SELECT plan_id FROM two)""",
    )
    assert codes(verify(folder)) == {"AlteredBytes"}


def test_bytes_that_no_entry_names_are_found(folder: Path) -> None:
    edit(folder, "INSERT INTO releases SELECT plan_id, 3, x'00' FROM charges WHERE sequence = 16")
    assert codes(verify(folder)) == {"UnlistedBytes"}


def test_a_cut_tail_is_found_by_whoever_knows_a_later_head(folder: Path) -> None:
    later = verify(folder).head
    edit(
        folder,
        "DELETE FROM plans WHERE plan_id = (SELECT plan_id FROM charges WHERE sequence = 16)",
        "DELETE FROM charges WHERE sequence = 16",
        "DELETE FROM entries WHERE sequence = 16",
        f"UPDATE accounts SET mu_squared = mu_squared - {charge('x').cost.mu_squared}, slack = slack - 1",
    )
    with sqlite3.connect(folder / LEDGER_FILE) as ledger:
        ledger.execute("UPDATE chain_end SET sequence = 15")
    assert codes(verify(folder, containing=later)) == {"MissingHead"}
    assert verify(folder, containing=verify(folder).head).valid


def test_another_key_is_found(folder: Path) -> None:
    Identity.generate().save(folder / "identity.pem")
    assert codes(verify(folder)) == {"WrongKey", "BadSignature"}
    (folder / "identity.pem").unlink()
    assert codes(verify(folder)) == {"WrongKey", "BadSignature"}


def test_a_study_that_is_not_the_one_signed_is_found(folder: Path) -> None:
    (folder / "study.toml").write_text("nonsense")
    assert codes(verify(folder)) == {"WrongStudy"}


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\x00" * 5000])
def test_a_file_that_is_no_ledger_is_unreadable(folder: Path, content: bytes) -> None:
    (folder / LEDGER_FILE).write_bytes(content)
    assert codes(verify(folder)) == {"Unreadable"}


def test_a_place_without_a_ledger_is_a_wrong_call(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ConfigurationMistaken):
            verify(place)


def test_verifying_beside_a_serving_agent_waits_for_it(
    original: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert verify(folder).valid
    writer.execute("ROLLBACK")
    writer.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(evidence, "BUSY_SECONDS", 0.05)
    with pytest.raises(LedgerBusy):
        verify(folder)
    writer.close()


# --- every flipped bit ----------------------------------------------------------------------------------------

COLUMNS = ("previous", "kind", "body", "signature", "digest")


def flip_entries(folder: Path, *, times: int) -> None:
    """Flip one random bit of one column of one entry, verify, and put it back."""
    chance = random.Random(7)
    edit(folder)
    connection = sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    for _ in range(times):
        number, column = chance.randint(1, 16), chance.choice(COLUMNS)
        (value,) = connection.execute(f"SELECT {column} FROM entries WHERE sequence = ?", (number,)).fetchone()
        flipped = flip(value if isinstance(value, bytes) else value.encode(), chance)
        changed = flipped if isinstance(value, bytes) else flipped.decode("latin-1")
        connection.execute(f"UPDATE entries SET {column} = ? WHERE sequence = ?", (changed, number))
        assert not verify(folder).valid, (number, column, changed)
        connection.execute(f"UPDATE entries SET {column} = ? WHERE sequence = ?", (value, number))
    connection.close()
    assert verify(folder).valid


def flip(content: bytes, chance: random.Random) -> bytes:
    place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def said(folder: Path) -> list[list[tuple[object, ...]]]:
    """Everything a ledger says, apart from the steward's notes."""
    connection = sqlite3.connect(folder / LEDGER_FILE)
    tables = ["accounts", "charges", "entries", "releases", "receipts", "refusals", "pins", "decisions"]
    rows = [sorted(connection.execute(f"SELECT * FROM {table}").fetchall()) for table in tables]
    # The hour is a hint.
    rows.append(sorted(connection.execute("SELECT plan_id, plan, asked_by FROM plans").fetchall()))
    connection.close()
    return rows


def flip_file(folder: Path, *, times: int) -> int:
    """Flip one random bit of the file: it is found, or nothing that the ledger says has changed."""
    chance, path, truth = random.Random(11), folder / LEDGER_FILE, said(folder)
    content, found = path.read_bytes(), 0
    for _ in range(times):
        path.write_bytes(flip(content, chance))
        if verify(folder).valid:
            assert said(folder) == truth
        else:
            found += 1
    return found


def flip_export(folder: Path, *, times: int) -> None:
    chance, path = random.Random(13), folder / "ledger.jsonl"
    export(folder, path)
    content = path.read_bytes()
    assert verify(path).valid
    for _ in range(times):
        path.write_bytes(flip(content, chance))
        assert not verify(path).valid


FLIPS: list[Callable[..., object]] = [flip_entries, flip_file, flip_export]


@pytest.mark.parametrize("flips", FLIPS)
def test_three_hundred_flipped_bits_are_found(folder: Path, flips: Callable[..., object]) -> None:
    flips(folder, times=300)


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
def test_ten_thousand_flipped_bits_are_found(folder: Path, flips: Callable[..., object]) -> None:
    flips(folder, times=10_000)


# --- an export ------------------------------------------------------------------------------------------------


def test_an_export_says_the_same_as_its_ledger(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    assert export(folder, out) == 16
    assert verify(out) == verify(folder)
    assert b"PRIVATE" not in out.read_bytes()


def test_an_export_under_another_key_is_refused_by_whoever_pins_the_right_one(
    original: Bench, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ledger.jsonl"
    export(folder, out)
    assert verify(out, key=original.identity.public.key).valid
    assert codes(verify(out, key=Identity.generate().public.key)) == {"BadSignature", "WrongKey"}


def test_an_export_without_its_last_line_is_found(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    export(folder, out)
    out.write_text("".join(line + "\n" for line in out.read_text().splitlines()[:-1]))
    assert codes(verify(out)) == {"Unreadable"}


def test_an_export_to_nowhere_is_a_wrong_call(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationMistaken, match="cannot be written"):
        export(folder, tmp_path / "absent" / "ledger.jsonl")


# --- a hospital that signs what is not true -------------------------------------------------------------------

LIAR = Identity.generate()
Said = tuple[str, dict[str, Plain]]


def signed(*said: Said) -> Evidence:
    """A chain with good signatures over whatever is said."""
    opened: Said = (
        "opened",
        {
            "role": "site",
            "name": "st-mary",
            "study_hash": "0" * 64,
            "dataset": "d",
            "key": LIAR.public.key,
            "coordinator_key": "00" * 32,
        },
    )
    head, entries = EMPTY, []
    for kind, body in (opened, *said):
        entries.append(make_entry(LIAR, after=head, kind=kind, body=encode_body(body)))
        head = entries[-1].head
    return Evidence(LIAR.public.key, "", tuple(entries), (), None)


def paid(word: str, scale: int = 400, **changed: Plain) -> Said:
    facts = (fact(scale),)
    body = {"plan_id": word, "account": "d", "facts": facts_body(facts), **cost_body(Charge(word, facts).cost)}
    return "charged", {**body, **changed}


CAPPED: Said = ("capped", cap_body("d", CAP))
RELEASED: Said = ("released", {"plan_id": "a", "release_hash": "0" * 64})
REFUSED: Said = ("refused", {"plan_id": "a", "code": "PlanRefused"})
FROZEN: Said = ("frozen", {"reason": "r", "sequence": 1, "digest": "0" * 64})
MORE_THAN_ALLOWED = cost_body(Cost(CAP.allowance().mu_squared * 2, 0, 0))

LIES: dict[str, tuple[list[Said], str]] = {
    "released before charged": ([CAPPED, RELEASED, paid("a")], "UnpaidRelease"),
    "released twice": ([CAPPED, paid("a"), RELEASED, RELEASED], "SecondRelease"),
    "charged twice": ([CAPPED, paid("a"), paid("a")], "RepeatedCharge"),
    "charged too little": ([CAPPED, paid("a", mu_squared="1")], "WrongCharge"),
    "charged elsewhere": ([CAPPED, paid("a", account="other")], "WrongAccount"),
    "charged above the cap": ([CAPPED, *(paid(f"{n}", 100) for n in range(20))], "Overspent"),
    "charged without a cap": ([paid("a")], "Overspent"),
    "a cap that allows too much": ([("capped", {**cap_body("d", CAP), **MORE_THAN_ALLOWED})], "WrongAllowance"),
    "an impossible cap": ([("capped", {**cap_body("d", CAP), "epsilon": "nan"})], "MalformedEntry"),
    "a cap for another": ([("capped", cap_body("other", CAP))], "WrongAccount"),
    "refused after the charge": ([CAPPED, paid("a"), REFUSED], "WrongRefusal"),
    "refused twice": ([REFUSED, REFUSED], "WrongRefusal"),
    "charged after the refusal": ([CAPPED, REFUSED, paid("a")], "WrongRefusal"),
    "spoke after freezing": ([CAPPED, FROZEN, paid("a")], "AfterFrozen"),
    "opened again": ([("opened", {})], "NotOpened"),
    "an unknown kind": ([("forgiven", {})], "MalformedEntry"),
    "facts without noise": ([CAPPED, paid("a", facts=[])], "WrongCharge"),
    "no facts": ([CAPPED, paid("a", facts=None)], "MalformedEntry"),
    "noise too small to account": ([CAPPED, paid("a", facts=facts_body([fact(1)]))], "MalformedEntry"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_signed_lie_is_found(name: str) -> None:
    said, code = LIES[name]
    assert code in codes(judge(signed(*said)))


def test_the_truth_is_valid() -> None:
    assert judge(signed(CAPPED, paid("a"), RELEASED, paid("b"), FROZEN)).problems == ()


def test_a_lowered_cap_allows_nothing_more() -> None:
    lowered: Said = ("capped", cap_body("d", Cap(0.1, 1e-6)))
    assert judge(signed(CAPPED, paid("a"), lowered)).problems == ()
    assert codes(judge(signed(CAPPED, paid("a"), lowered, paid("b")))) == {"Overspent"}


@pytest.mark.parametrize(
    "entry",
    [
        Entry(1, "", "", "", b""),
        Entry(1, EMPTY.digest, "opened", "{}", b"x"),
        Entry(-5, "\ud800", "opened", '{"role":"site"}', b""),
        Entry(10**30, "0", "charged", "[" * 10_000, b""),
    ],
)
def test_hostile_entries_are_judged_without_an_exception(entry: Entry) -> None:
    for key in ("", "zz", "00" * 32):
        verdict = judge(Evidence(key, "{", (entry, entry), ("", ""), None), containing=Head(1, "x"))
        assert Code.BAD_SIGNATURE in {problem.code for problem in verdict.problems}
