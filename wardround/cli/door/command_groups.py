"""How commands are found, listed and suggested. Nothing here loads rich: typer would, for every help."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, MutableMapping
from difflib import get_close_matches

import click
import typer
import typer.core

from wardround.cli.door.table import COMMANDS, ROLES

COMPLETION = "_WARDROUND_COMPLETE"
"""The variable by which a shell says that it asks for completions."""

# With rich installed, typer escapes what it prints for it, `\[required]`, although we have it print plain text.
typer.core.HAS_RICH = False


class CommandGroup(typer.core.TyperGroup):
    """A group that lists each command with its whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._sentence(ctx, name)) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}{or_near(args[0], known)}")
        return super().resolve_command(ctx, args)

    def _sentence(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        text = " ".join(((command and command.help) or "").split("\n\n")[0].split())
        return text[: text.index(". ") + 1] if ". " in text else text


class Door(CommandGroup):
    """The commands of the table, each loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return loaded(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        widest = max(map(len, COMMANDS))
        for role, offers in ROLES.items():
            with formatter.section(role):
                formatter.write_dl([(name.ljust(widest), offer.text) for name, offer in offers.items()])

    def _main_shell_completion(
        self, ctx_args: MutableMapping[str, object], prog_name: str, complete_var: str | None = None
    ) -> None:
        """Answer a shell that completes a line. click does it as its own scripts ask; typer would load rich."""
        del complete_var
        if instruction := os.environ.get(COMPLETION):
            from click.shell_completion import shell_complete
            from typer.models import TyperPath

            # typer's own offers no file names.
            TyperPath.shell_complete = click.Path.shell_complete  # type: ignore[method-assign]
            raise SystemExit(shell_complete(self, ctx_args, prog_name, COMPLETION, instruction))


def loaded(name: str) -> click.Command:
    """A command of the table, from its module: the group that is its `app`, or one of those that it adds."""
    offer = COMMANDS[name]
    module = importlib.import_module(f"wardround.cli.{offer.module}")
    app: typer.Typer | None = getattr(module, "app", None)
    shelf = typer.Typer(rich_markup_mode=None) if app is None else app
    if app is None:
        module.add_to(shelf)
    group = typer.main.get_group(shelf)
    for command in group.commands.values():
        # Where there are several examples, each begins a line.
        command.epilog = re.sub(" {2,}", "\n\n", command.epilog or "")
    if app is None:
        return group.commands[name]
    group.name, group.help = name, offer.text
    group.epilog = f"Example: wardround {name} {next(iter(group.commands))} --help"
    return group


def or_near(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the known ones that it may have been meant for, if there are any."""
    near = get_close_matches(word, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
