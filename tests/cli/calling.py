"""`wardround …` as a person at a terminal calls it, in this process."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

import click
import typer

from wardround.cli.main import app, main


@dataclass(frozen=True)
class Call:
    """What a call left behind."""

    code: int
    out: str
    err: str

    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1, self.out
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def sentence(self) -> str:
        """The one sentence on standard error."""
        assert self.err.startswith("wardround: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("wardround: ").removesuffix("\n")


def call(*words: object) -> Call:
    """Run one command to its end."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as left:
            code = left.code
    assert isinstance(code, int)
    return Call(code, out.getvalue(), err.getvalue())


def commands() -> dict[tuple[str, ...], click.Command]:
    """Every command, by its words."""
    found: dict[tuple[str, ...], click.Command] = {}
    waiting: list[tuple[tuple[str, ...], click.Command]] = [((), typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            within = click.Context(command)
            for name in command.list_commands(within):
                child = command.get_command(within, name)
                assert child is not None
                waiting.append(((*path, name), child))
        else:
            found[path] = command
    return found
