"""`wardround study …`: a study read as the hospitals will read it, before any of them is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.console import say
from wardround.federation.study_file import read_study
from wardround.federation.wording import study_text

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def study() -> None:
    """Check a study before anyone signs it."""


@app.command(epilog="Example: wardround study check study.toml")
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="study.toml.")]) -> None:
    """Read a study.toml and show what the hospitals would sign, or say what is wrong with it."""
    say(study_text(read_study(file)))
