"""Help that helps: every command says what it does and shows a call that could be typed."""

from __future__ import annotations

import shlex

import pytest
import typer

from tests.cli.calling import call
from wardround.cli.main import app


def commands() -> list[tuple[str, ...]]:
    """The words of every command."""
    found: list[tuple[str, ...]] = []
    waiting = [((), typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop()
        below = getattr(command, "commands", None)
        if below is None:
            found.append(path)
        else:
            waiting.extend(((*path, name), child) for name, child in below.items())
    return sorted(found)


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


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_does_and_shows_an_example(path: tuple[str, ...]) -> None:
    done = call(*path, "--help")
    assert (done.code, done.err) == (0, "")
    text = " ".join(done.out.split())
    start = f"Example: wardround {' '.join(path)}"
    assert start in text
    shlex.split(text[text.index(start) :])
    description = done.out.split("\n\n")[1]
    assert description.strip().endswith((".", "…")), description


@pytest.mark.parametrize(
    "path", [(), ("coordinator",), ("site",), ("ledger",)], ids=lambda path: " ".join(path) or "door"
)
def test_a_door_without_a_command_shows_what_there_is(path: tuple[str, ...]) -> None:
    done = call(*path)
    assert done.code in (0, 2)
    assert "Commands:" in done.out + done.err


def test_the_version_is_the_distribution_s() -> None:
    done = call("version")
    assert done.code == 0
    assert done.out.count(".") >= 1
