"""What is on disk is our own form: canonical words, releases, signatures, and no message of the wire."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from coordinator.store import ledger as coordinator_ledger
from coordinator.store.rounds import encode_plan
from protos.words import PLAN, TASK, stored_plan, stored_task
from site_agent.answering.admission import Approval
from tests.coordinator.hospitals import World, ask, oracle
from tests.coordinator.rounds.test_trainings import step
from tests.fixtures.asking import ADA, ANALYST
from tests.site_agent.lone_site import COUNT, LoneSite
from wardround.federation.canonical import decode, encode
from wardround.federation.errors import LedgerCorrupt, MalformedMessage, QueryMistaken
from wardround.federation.forms.release import decode_release
from wardround.federation.ledger import site_tables
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, Pending, Released, SignedTask, sign_request
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.public_limits import PublicLimits
from wardround.privacy.noise.distribution import Mechanism

Check = Callable[[str, bytes], bool]


def is_signature(_: str, content: bytes) -> bool:
    return len(content) == 64


def is_release(plan_id: str, content: bytes) -> bool:
    # A refusal has none.
    return content == b"" or decode_release(content).plan_id == plan_id


# Every column of bytes that a ledger has; a new one says here what it holds.
COORDINATOR: Mapping[str, Check] = {
    "rounds.plan": lambda plan_id, content: decode(Plan, content).plan_id == plan_id,
    "submissions.payload": is_release,
    "entries.signature": is_signature,
    "sites.study_signature": is_signature,
    "site_entries.signature": is_signature,
    "lacking.signature": is_signature,
    "public_limits.limits": lambda _, content: encode(decode(PublicLimits, content)) == content,
    "askers.asked_by": lambda _, content: encode(decode(AskedBy, content)) == content,
    "answer_pages.page": lambda _, content: "estimates" in json.loads(zlib.decompress(content)),
}
SITE: Mapping[str, Check] = {
    "requests.task": lambda plan_id, content: decode(SignedTask, content).task.plan.plan_id == plan_id,
    "plans.plan": lambda plan_id, content: decode(Plan, content).plan_id == plan_id,
    "plans.asked_by": lambda _, content: encode(decode(AskedBy, content)) == content,
    "releases.payload": is_release,
    "entries.signature": is_signature,
    "receipts.signature": is_signature,
}


def columns(ledger: sqlite3.Connection, kind: str) -> set[str]:
    tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = [(table, *row) for table in tables for row in ledger.execute(f"PRAGMA table_info({table})")]
    return {f"{table}.{name}" for table, _, name, stored, *_ in rows if stored == kind}


def stored(folder: Path, column: str) -> list[tuple[str, bytes]]:
    table, _, name = column.partition(".")
    with contextlib.closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger:
        known = "plan_id" if f"{table}.plan_id" in columns(ledger, "TEXT") else "''"
        return ledger.execute(f"SELECT {known}, {name} FROM {table}").fetchall()


def signed_by_ada(world: World, request: AskRequest) -> AskRequest:
    return sign_request(request, ADA, analyst=ANALYST, study_hash=world.study.study_hash)


@pytest.mark.parametrize(
    ("tables", "known"),
    [
        (coordinator_ledger.SCHEMA + coordinator_ledger.LATER, COORDINATOR),
        (site_tables.SCHEMA + site_tables.LATER, SITE),
    ],
    ids=["coordinator", "site"],
)
def test_every_column_of_bytes_is_known(tables: str, known: Mapping[str, Check]) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as ledger:
        ledger.executescript(tables)
        assert columns(ledger, "BLOB") == known.keys()


def test_a_coordinator_stores_no_message(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "refuse"})
    for request in (ask(), step(0), ask(0.25, nonce="ab")):
        world.ask(signed_by_ada(world, request))
    for name in ("one", "two", "three"):
        world.coordinator.note_limits(name, PublicLimits(("count",), 1.0, 1e-6, by_person=False))
    world.close()
    for column, check in COORDINATOR.items():
        found = stored(tmp_path, column)
        assert len(found) >= (0 if column in {"lacking.signature", "answer_pages.page"} else 3)
        assert all(check(plan_id, content) for plan_id, content in found), column


def test_a_site_stores_no_message(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    for nonce in "ab":
        signed = site.task(site.plan(COUNT, nonce=nonce))
        assert isinstance(site.pipeline.run(signed), Pending)
        site.ledger.decide(signed.task.plan.plan_id, approve=True, by="ann")
        assert site.ledger.decided() == [signed]
        assert isinstance(site.pipeline.run(signed), Released)
    site.ledger.close()
    for column, check in SITE.items():
        found = stored(tmp_path, column)
        assert len(found) >= 2 or column == "receipts.signature"
        assert all(check(plan_id, content) for plan_id, content in found), column


@pytest.mark.parametrize("number", [0, 33])
def test_a_plan_that_could_not_be_read_again_is_not_stored(number: int) -> None:
    query = Query("encounters", (Aggregate(Statistic.COUNT),) * number)
    plan = Plan("ab" * 32, query, Mechanism.DISCRETE_LAPLACE, (Fraction(1),), ("north",))
    with pytest.raises(QueryMistaken, match="aggregates"):
        encode_plan(plan)


# --- what earlier versions stored -----------------------------------------------------------------------------


def as_before(world: World) -> None:
    """Store every plan as an earlier version did."""
    with world.coordinator.ledger.database.transaction() as connection:
        for plan_id, content in connection.execute("SELECT plan_id, plan FROM rounds").fetchall():
            message = PLAN.encode(decode(Plan, content))
            connection.execute("UPDATE rounds SET plan = ? WHERE plan_id = ?", (message, plan_id))


def test_a_plan_of_before_is_rewritten_once_and_served(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    first = world.coordinator.ask("ada", ask())
    before = stored(tmp_path, "rounds.plan")
    as_before(world)
    assert stored(tmp_path, "rounds.plan") != before
    rounds = world.coordinator.ledger.rounds
    with pytest.raises(LedgerCorrupt):
        rounds.question(first)
    rounds.rewrite_messages(stored_plan)
    assert stored(tmp_path, "rounds.plan") == before
    rounds.rewrite_messages(refuse)
    assert [estimate.value for estimate in world.watch(first).estimates] == [111.0]
    world.close()
    assert world.verified().problems == ()


def refuse(message: bytes) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(
    "damage",
    [lambda message: b"\xff" + message, lambda _: b"", lambda message: message.replace(b"two", b"tow")],
    ids=["unreadable", "empty", "another plan"],
)
def test_what_cannot_be_read_or_is_another_plan_stays_as_it_is(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    world = oracle(tmp_path)
    first, second = world.coordinator.ask("ada", ask()), world.coordinator.ask("ada", ask(nonce="ab"))
    as_before(world)
    messages = dict(stored(tmp_path, "rounds.plan"))
    with world.coordinator.ledger.database.transaction() as connection:
        damaged = damage(messages[first])
        connection.execute("UPDATE rounds SET plan = ? WHERE plan_id = ?", (damaged, first))
    rounds = world.coordinator.ledger.rounds
    rounds.rewrite_messages(stored_plan)
    found = dict(stored(tmp_path, "rounds.plan"))
    assert found[first] == damaged
    assert decode(Plan, found[second]).plan_id == second
    with pytest.raises(LedgerCorrupt):
        rounds.question(first)
    world.close()


def test_a_request_of_before_is_rewritten_and_answered(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    signed = site.task(site.plan(COUNT))
    site.pipeline.run(signed)
    site.ledger.decide(signed.task.plan.plan_id, approve=True, by="ann")
    with site.ledger._database.transaction() as connection:
        connection.execute("UPDATE requests SET task = ?", (TASK.encode(signed),))
    with pytest.raises(MalformedMessage):
        site.ledger.decided()
    site.ledger.rewrite_messages(stored_task)
    assert site.ledger.decided() == [signed]
    assert isinstance(site.pipeline.run(signed), Released)
