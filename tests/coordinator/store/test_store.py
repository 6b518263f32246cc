"""The storage room: a block is one transaction, reads inside it see it, and no driver is seen outside."""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import coordinator.store
from coordinator.store.kept_answers import WrittenAnswer
from coordinator.store.members import MemberState
from coordinator.store.rounds import RoundState
from tests.coordinator.hospitals import ANALYST, World, ask, oracle
from wardround.federation.errors import InvariantBroken


class Stopped(Exception):
    """Somebody decided otherwise."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return oracle(tmp_path)


def test_a_read_inside_a_block_sees_what_the_block_wrote(world: World) -> None:
    members = world.coordinator.ledger.members
    with members.changing("two") as member:
        member.freeze("for the test")
        assert members.standing("two") is MemberState.FROZEN
        assert "two" not in members.active()
    assert members.standing("two") is MemberState.FROZEN


def test_a_block_that_raised_left_nothing(world: World) -> None:
    ledger, entries = world.coordinator.ledger, world.kinds()
    with contextlib.suppress(Stopped), ledger.members.changing("two") as member:
        member.revoke()
        raise Stopped
    assert ledger.members.standing("two") is MemberState.ACTIVE
    assert world.kinds() == entries


def test_a_block_inside_a_block_is_refused(world: World) -> None:
    ledger = world.coordinator.ledger
    with pytest.raises(InvariantBroken), ledger.members.changing("two"):
        ledger.answers.keep("0" * 64, WrittenAnswer("{}"))


def test_a_block_that_only_looked_changed_nothing(world: World) -> None:
    ledger, plan_id = world.coordinator.ledger, world.coordinator.ask(ANALYST, ask())
    entries, before = world.kinds(), ledger.rounds.standing(plan_id)
    with ledger.tasks.settling(plan_id) as round_:
        assert round_.before == before
        assert dict(round_.states) == ledger.tasks.states(plan_id)
    with ledger.submissions.accepting(plan_id, "two") as task:
        assert (task.standing, task.opened_after, task.kept()) == (MemberState.ACTIVE, 0, None)
    with ledger.submissions.accepting("0" * 64, "nobody") as task:
        assert (task.standing, task.opened_after) == (None, None)
    assert before.state is RoundState.OPEN
    assert (world.kinds(), ledger.rounds.standing(plan_id)) == (entries, before)


def test_a_round_that_was_never_reserved_has_no_standing(world: World) -> None:
    with pytest.raises(InvariantBroken):
        world.coordinator.ledger.rounds.standing("0" * 64)


def public_methods() -> dict[str, str]:
    """What the room hands out: its stores, and what their blocks and reads return."""
    modules = [
        import_module(f"coordinator.store.{found.name}") for found in pkgutil.iter_modules(coordinator.store.__path__)
    ]
    kinds = [kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)]
    return {
        f"{kind.__name__}.{name}": str(inspect.signature(member))
        for kind in kinds
        if kind.__module__.startswith("coordinator.store.") and kind.__name__ != "ReservedPlans"
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_no_type_of_a_driver_is_handed_out() -> None:
    found = public_methods()
    assert {"RoundStore.reserving", "MemberStore.changing", "TaskStore.opening", "AcceptingTask.keep"} <= found.keys()
    assert [name for name, signature in found.items() if "sqlite3" in signature or "onnection" in signature] == []
