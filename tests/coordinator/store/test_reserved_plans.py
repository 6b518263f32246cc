"""Plans by their ids: read once, remembered a few at a time, and never another than was reserved."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from coordinator.store.rounds import ReservedPlans, encode_plan
from tests.federation.ledger.ledger_bench import plan
from wardround.federation.errors import LedgerCorrupt


@pytest.fixture
def rounds() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE rounds (plan_id TEXT PRIMARY KEY, plan BLOB)")
        yield connection


def reserve(rounds: sqlite3.Connection, word: str, stored: bytes | None = None) -> str:
    found = plan(word)
    rounds.execute("INSERT INTO rounds VALUES (?, ?)", (found.plan_id, stored or encode_plan(found)))
    return found.plan_id


def test_a_plan_is_read_once(rounds: sqlite3.Connection) -> None:
    plans, name = ReservedPlans(), reserve(rounds, "one")
    first = plans.reserved(rounds, name)
    assert first == plan("one")
    rounds.execute("DELETE FROM rounds")
    assert plans.reserved(rounds, name) is first


def test_only_the_latest_are_remembered(rounds: sqlite3.Connection) -> None:
    plans, names = ReservedPlans(), [reserve(rounds, f"plan {number}") for number in range(40)]
    for name in names:
        assert plans.reserved(rounds, name).plan_id == name
    rounds.execute("DELETE FROM rounds")
    assert plans.reserved(rounds, names[-1]).plan_id == names[-1]
    with pytest.raises(LedgerCorrupt):
        plans.reserved(rounds, names[0])


def test_a_task_without_a_round_is_corrupt(rounds: sqlite3.Connection) -> None:
    with pytest.raises(LedgerCorrupt):
        ReservedPlans().reserved(rounds, "0" * 64)


@pytest.mark.parametrize("stored", [b"\xff\xff", encode_plan(plan("another"))])
def test_a_stored_plan_that_is_not_its_own_is_corrupt(rounds: sqlite3.Connection, stored: bytes) -> None:
    plans, name = ReservedPlans(), reserve(rounds, "one", stored)
    for _ in range(2):
        with pytest.raises(LedgerCorrupt):
            plans.reserved(rounds, name)
