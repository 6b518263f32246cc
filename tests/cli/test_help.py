"""Help that helps: every command says what it does and shows a call that could be typed."""

from __future__ import annotations

import importlib
import shlex

import pytest
import typer

from tests.cli.calling import call, commands
from wardround.cli.door.table import COMMANDS, ROLES

CONTRACT = {
    ("demo",),
    ("coordinator", "init"),
    ("coordinator", "serve"),
    ("coordinator", "invite"),
    ("coordinator", "analyst"),
    ("coordinator", "revoke"),
    ("site", "init"),
    ("site", "serve"),
    ("site", "check"),
    ("site", "requests"),
    ("site", "approve"),
    ("site", "deny"),
    ("site", "history"),
    ("ask",),
    ("train",),
    ("budget",),
    ("ledger", "verify"),
    ("ledger", "export"),
    ("simulate",),
}


def test_every_command_of_the_contract_exists() -> None:
    assert set(commands()) >= CONTRACT


@pytest.mark.parametrize("path", sorted(commands()), ids=" ".join)
def test_every_command_says_what_it_does_and_shows_an_example(path: tuple[str, ...]) -> None:
    done = call(*path, "--help")
    assert (done.code, done.err) == (0, "")
    text = " ".join(done.out.split())
    start = f"Example: wardround {' '.join(path)}"
    assert start in text
    shlex.split(text[text.index(start) :])
    assert "\\" not in done.out
    assert max(map(len, done.out.splitlines())) < 80
    description = done.out.split("\n\n")[1]
    assert description.strip().endswith((".", "…")), description


@pytest.mark.parametrize(
    "path", [(), ("coordinator",), ("site",), ("ledger",), ("study",)], ids=lambda path: " ".join(path) or "door"
)
def test_a_door_without_a_command_shows_what_there_is(path: tuple[str, ...]) -> None:
    done = call(*path)
    assert done.code in (0, 2)
    told = done.out + done.err
    assert f"wardround {' '.join(path)}".strip() in told
    assert all(heading in told for heading in (ROLES if not path else ("Commands:", "Example: wardround")))


def test_the_version_is_the_distribution_s() -> None:
    done = call("version")
    assert done.code == 0
    assert done.out.count(".") >= 1


def test_the_table_has_every_command_of_the_modules_it_names() -> None:
    for name in {entry.module for entry in COMMANDS.values()}:
        module = importlib.import_module(f"wardround.cli.{name}")
        listed = {command for command, entry in COMMANDS.items() if entry.module == name}
        if hasattr(module, "app"):
            assert len(listed) == 1
        else:
            shelf = typer.Typer()
            module.add_to(shelf)
            assert listed == set(typer.main.get_group(shelf).commands)


def test_the_list_of_commands_is_grouped_by_role_and_has_a_whole_line_for_each() -> None:
    rows = call("--help").out.splitlines()
    for role, entries in ROLES.items():
        start = rows.index(f"{role}:") + 1
        assert [row.split()[0] for row in rows[start : start + len(entries)]] == list(entries)
        assert [row.split(maxsplit=1)[1] for row in rows[start : start + len(entries)]] == [
            entry.text for entry in entries.values()
        ]


@pytest.mark.parametrize(
    "path",
    [
        ("ask",),
        ("audit",),
        ("budget",),
        ("ledger", "verify"),
        ("simulate",),
        ("site", "check"),
        ("site", "prepare"),
        ("train",),
    ],
    ids=" ".join,
)
def test_a_command_that_may_take_long_can_be_quiet(path: tuple[str, ...]) -> None:
    assert "--quiet" in {option for parameter in commands()[path].params for option in parameter.opts}
