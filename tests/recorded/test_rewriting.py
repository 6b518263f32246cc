"""What earlier versions stored as messages is in canonical form once a folder is served, and all else as it was."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from protos.words import PLAN, TASK
from site_agent.serving.folder import open_folder
from site_agent.serving.serve import make_agent, open_ledger
from tests.cli.calling import call
from tests.recorded import recording
from tests.recorded.kept_folders import ROLES, names, unpacked
from tests.recorded.rewriting_process import rewritten
from wardround.federation.canonical import decode
from wardround.federation.ledger.attesting import ATTESTED
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import SignedTask
from wardround.privacy.mechanisms.randomness import SecureChance

Tables = dict[str, list[tuple[object, ...]]]
# The two versions that stored messages.
OLD = ("unreleased-1", "unreleased-2")
WAITED = "three"


def words(folder: Path) -> dict[str, bytes]:
    """The stored plans of a coordinator, or tasks of a site, by their plan."""
    with contextlib.closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger:
        table = "rounds" if (folder / "coordinator.toml").exists() else "requests"
        column = {"rounds": "plan", "requests": "task"}[table]
        return dict(ledger.execute(f"SELECT plan_id, {column} FROM {table}"))


# What a folder of before gains when it is opened: nobody has said anything yet.
LATELY = ("required", "answer_pages", "rejoins", "imports", "lost")
COORDINATOR = ("public_limits", "served", "windows", "site_entries", "lacking", "askers", *LATELY)
SITE = ("pins", "plans", "decisions")
GAINED: Tables = {table: [] for table in (*COORDINATOR, *SITE)}


def all_else(folder: Path) -> Tables:
    """Every row of every table, without those words; the chain, the releases and the answers among them.

    Nothing of it changes but that the chain takes over, at its end, what no entry spoke of.
    """
    with contextlib.closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger:
        tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found: Tables = {}
        for table in tables:
            columns = [
                row[1] for row in ledger.execute(f"PRAGMA table_info({table})") if row[1] not in ("plan", "task")
            ]
            found[table] = ledger.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2").fetchall()
    assert {"entries", "accounts"} <= found.keys()
    found["entries"] = [row for row in found["entries"] if row[2] != ATTESTED]
    found.pop("chain_end", None)
    return {table: rows for table, rows in found.items() if (table, rows) not in GAINED.items()}


def read(folder: Path, content: bytes) -> Plan | SignedTask:
    return decode(Plan if (folder / "coordinator.toml").exists() else SignedTask, content)


def meant(folder: Path, message: bytes) -> Plan | SignedTask:
    return PLAN.decode(message) if (folder / "coordinator.toml").exists() else TASK.decode(message)


def plan_id(word: Plan | SignedTask) -> str:
    return word.plan_id if isinstance(word, Plan) else word.task.plan.plan_id


@pytest.mark.parametrize("name", OLD)
def test_words_are_rewritten_and_nothing_else_changes(name: str, tmp_path: Path) -> None:
    place = unpacked(name, tmp_path)
    for role in ROLES:
        folder = place / role
        before, rest = words(folder), all_else(folder)
        assert (len(before) > 3) is (role in ("consortium", WAITED))
        rewritten(folder)
        after = words(folder)
        assert {key: read(folder, content) for key, content in after.items()} == {
            key: meant(folder, message) for key, message in before.items()
        }
        assert all(plan_id(read(folder, content)) == key for key, content in after.items())
        assert all_else(folder) == rest
        assert verify(folder).problems == ()
        assert verify(folder).unattested == () or role == "one", "frozen, it signs nothing any more"
        rewritten(folder)
        assert words(folder) == after


@pytest.mark.parametrize("name", OLD)
def test_what_the_version_before_writes_after_going_back_is_rewritten_when_the_newer_one_returns(
    name: str, tmp_path: Path
) -> None:
    place = unpacked(name, tmp_path)
    for role, column, table in (("consortium", "plan", "rounds"), (WAITED, "task", "requests")):
        folder = place / role
        messages = words(folder)
        rewritten(folder)
        after = words(folder)
        late = max(messages)
        with contextlib.closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger, ledger:
            ledger.execute(f"UPDATE {table} SET {column} = ? WHERE plan_id = ?", (messages[late], late))
        assert words(folder) != after
        assert call("ledger", "verify", folder).code == 0
        rewritten(folder)
        assert words(folder) == after


@pytest.mark.parametrize("name", [name for name in names() if name not in OLD])
def test_a_later_version_left_nothing_to_rewrite(name: str, tmp_path: Path) -> None:
    place = unpacked(name, tmp_path)
    for role in ("consortium", WAITED):
        found = words(place / role)
        assert len(found) > 3
        assert all(plan_id(read(place / role, content)) == key for key, content in found.items())


@pytest.mark.parametrize("name", OLD)
def test_who_only_looks_changes_nothing(name: str, tmp_path: Path) -> None:
    place = unpacked(name, tmp_path)
    before = {role: (words(place / role), all_else(place / role)) for role in ROLES}
    for role in ROLES:
        assert call("ledger", "verify", place / role).code == 0
    for role in ROLES[1:]:
        findings = call("site", "check", place / role, "--json").document()["findings"]
        (ledger,) = [finding for finding in findings if finding["subject"] == "ledger"]
        # The first hospital's was restored from a copy.
        assert ledger["ok"] is (role != "one"), ledger
        assert call("site", "history", place / role).code == 0
    assert {role: (words(place / role), all_else(place / role)) for role in ROLES} == before


@pytest.mark.parametrize("name", OLD)
def test_a_steward_sees_what_waited_before_the_agent_is_started_again(name: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path) / WAITED
    before = words(folder)
    found = call("site", "requests", folder, "--json")
    assert [found.code, found.document()] == recording.read(f"folders-{name}")[f"{WAITED}: requests"]
    (waiting,) = [line["plan_id"] for line in found.document()["requests"] if line["state"] == "pending"]
    assert call("site", "approve", folder, waiting).code == 0
    # The agent of before may serve still, and it reads what it stored.
    assert words(folder) == before


def test_an_agent_is_made_over_rewritten_requests(tmp_path: Path) -> None:
    folder = unpacked(OLD[0], tmp_path) / WAITED
    with open_ledger(folder) as ledger:
        agent = make_agent(open_folder(folder), ledger, noise=SecureChance())
        agent.link.close()
    assert all(plan_id(read(folder, content)) == key for key, content in words(folder).items())


@pytest.mark.serial
@pytest.mark.parametrize("role", ["consortium", WAITED])
@pytest.mark.parametrize("name", OLD)
def test_a_death_before_any_statement_loses_nothing(name: str, role: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path / "kept") / role
    (tmp_path / "dying").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.recorded.rewriting_process", str(folder), str(tmp_path / "dying")],
        check=True,
        capture_output=True,
        timeout=300,
    )
    deaths, before, rest = int(done.stdout), words(folder), all_else(folder)
    assert deaths > 2 * len(before)
    rewritten(folder)
    whole = words(folder)
    seen = []
    for number in range(1, deaths + 2):
        died = tmp_path / "dying" / str(number)
        # SQLite first takes back what the dead process had not finished.
        found = words(died)
        assert found in (before, whole), "all of it is rewritten, or nothing"
        seen.append(found == whole)
        rewritten(died)
        assert words(died) == whole
        assert all_else(died) == rest
        assert (verify(died).problems, verify(died).unattested) == ((), ())
    assert sorted(seen) == seen
    assert seen[0] is False
    assert seen[-1] is True
