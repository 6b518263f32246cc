"""`wardround completion` and `wardround version`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wardround.cli.door.command_groups import COMPLETION
from wardround.cli.terminal.console import say


class Shell(StrEnum):
    """The shells that click writes a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add_to(app: typer.Typer) -> None:
    """Put them on the door."""
    app.command(
        epilog="Example: wardround completion bash >> ~/.bashrc   For fish: wardround completion fish > "
        "~/.config/fish/completions/wardround.fish"
    )(completion)
    app.command(epilog="Example: wardround version")(version)


def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell you use.")]
) -> None:
    """Print a script by which your shell completes commands, options and file names; add it to the shell's own file."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    writer = {Shell.BASH: BashComplete, Shell.ZSH: ZshComplete, Shell.FISH: FishComplete}[shell]
    typer.echo(writer(ctx.find_root().command, {}, "wardround", COMPLETION).source())


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as distribution_version

    say(distribution_version("wardround"))
