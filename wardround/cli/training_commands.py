"""`wardround train`: a model across hospitals, round by round."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.analyst_commands import (
    COORDINATOR,
    AsJson,
    Explain,
    Plot,
    Profile,
    Purpose,
    Quiet,
    check_plot,
    chosen_nonce,
    going_on,
    tell,
    tell_nonce,
)
from wardround.cli.terminal.console import print_document, show
from wardround.federation.errors import Mistaken

FOLDER = Path("models")


def add_to(app: typer.Typer) -> None:
    """Put the command on the door."""
    app.command(
        epilog="Example: wardround train --profile me.profile request.toml --dry-run  "
        "Then the same without --dry-run; after an interruption the same call goes on and pays nothing twice."
    )(train)


def train(
    request: Annotated[Path, typer.Argument(metavar="request.toml", help="What to train: kind, target, features, ε.")],
    profile: Profile,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the model in DIR (default: models/ and its id).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show stages, noise and charge; spend nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train anew, and pay anew.")] = False,
    resume: Annotated[
        str, typer.Option("--resume", metavar="NONCE", help="Go on with a fresh training that was interrupted.")
    ] = "",
    purpose: Purpose = "",
    plot: Plot = None,
    explain: Explain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a model across the hospitals; a training that was interrupted goes on where it stood."""
    from wardround.analyst.asking.client import connect
    from wardround.analyst.learning.request import read_request
    from wardround.cli.terminal.round_lines import TrainingLines
    from wardround.cli.terminal.step_lines import Steps
    from wardround.federation.trust.asked_by import check_purpose

    nonce = chosen_nonce(fresh=fresh, resume=resume, what="training")
    if dry_run and plot is not None:
        raise Mistaken("a dry run has no model to draw; leave out --plot or --dry-run.")
    check_plot(plot)
    check_purpose(purpose)
    wanted = read_request(request)
    with connect(profile) as federation:
        if dry_run:
            with Steps(COORDINATOR, quiet=quiet):
                preview = federation.preview_training(wanted, nonce=nonce)
            print_document(preview.document()) if as_json else show(str(preview))
            return
        if fresh:
            preview = federation.preview_training(wanted, nonce=nonce)
            tell_nonce(preview.beginning.preview, nonce, what="training")
        under = None if out is not None else FOLDER
        with going_on(nonce, fresh=fresh), contextlib.closing(TrainingLines(quiet=quiet)) as lines:
            result = federation.train(
                wanted,
                nonce=nonce,
                out=out,
                under=under,
                purpose=purpose,
                on_progress=lines.show,
                on_round=lines.begin,
                on_note=lines.note,
            )
    shown = f"{result}\n{result.explain()}" if explain else str(result)
    tell(result, shown, plot=plot, as_json=as_json)
