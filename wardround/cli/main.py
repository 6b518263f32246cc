"""The door: one command, each role loaded only when it is asked for."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import Annotated, NoReturn

import click
import typer

from wardround.cli.door.command_groups import Door
from wardround.cli.door.tools import version
from wardround.cli.terminal.console import Interrupted, Unwritable, fail, note, write_plainly
from wardround.federation.errors import FederationError, InvariantBroken, Mistaken

# gRPC writes its own lines about failed handshakes to standard error; ours say the same in one sentence.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_SHORT = (["ask"], ["budget"], ["describe"])
_ALLOCATIONS = 200_000

app = typer.Typer(
    name="wardround",
    cls=Door,
    help="Answer research questions across hospitals without showing anyone a patient.",
    epilog="Begin with `wardround demo`: a whole federation on this machine, in about a minute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


# Flower holds typer to a version whose mistakes are click's; a newer typer has its own.
_MISTAKES: type[click.ClickException] = getattr(typer, "TyperException", click.ClickException)


@app.callback()
def door(
    version_asked: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Answer research questions across hospitals without showing anyone a patient."""
    del version_asked  # answered by its callback, before a command is asked for


def _plainly(mistake: click.ClickException) -> str:
    """A wrong call as one sentence in our words: an older typer says that an option has the variable 'None'."""
    if isinstance(mistake, click.NoSuchOption):
        near = " or ".join(mistake.possibilities or ())
        return f"No such option {mistake.option_name}{f'; did you mean {near}?' if near else '.'}"
    sentence = " ".join(mistake.format_message().split())
    for theirs, ours in (
        (" (env var: 'None')", ""),
        ("a valid float", "a number"),
        ("a valid integer", "a whole number"),
    ):
        sentence = sentence.replace(theirs, ours)
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def main(arguments: list[str] | None = None) -> None:
    """Run one command, by default that of this process, and leave with the contract's exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is not None or words[:1] not in _SHORT:
        _run(words)
    # All that is loaded stays, and there are few numbers to reckon with: searching it for what could be freed, at its
    # end once more, and the threads of numpy's linear algebra, which wait by turning around, took a third of a
    # question's time. Other commands load drivers that want their objects back.
    gc.set_threshold(_ALLOCATIONS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        _run(words)
    finally:
        gc.freeze()


def _run(words: list[str]) -> NoReturn:
    as_json = "--json" in words
    output = sys.stdout
    write_plainly()
    try:
        # An older typer raises what an interruption is; a newer one returns its code and says nothing.
        outcome = typer.main.get_command(app).main(args=words, prog_name="wardround", standalone_mode=False)
    except FederationError as error:
        # A document about an output that takes none would fail in the same way.
        fail(error, as_json=as_json and not isinstance(error, Unwritable))
    except _MISTAKES as error:
        usage = getattr(error, "ctx", None)
        if (usage is not None and not words) or error.format_message().startswith("Usage:"):
            note(*error.format_message().split("\n"))
            raise SystemExit(2) from None
        path = "wardround" if usage is None else usage.command_path
        fail(Mistaken(f"{_plainly(error)} See: {path} --help"), as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        fail(Interrupted(), as_json=as_json)
    except SystemExit:
        # typer exits with 1, which is our "refused", after it muted an output whose reader has gone.
        if sys.stdout is output:
            raise
        raise SystemExit(0) from None
    except Exception as error:  # noqa: BLE001 -- one of the two top loops
        # An exception's text may quote what a driver saw; where it happened may be said, what it said may not.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
        fail(InvariantBroken(f"Something unexpected happened ({place}); please report it."), as_json=as_json)
    if outcome == Interrupted.exit_code:
        fail(Interrupted(), as_json=as_json)
    raise SystemExit(outcome if isinstance(outcome, int) else 0)
