"""`wardround coordinator backup` and `wardround site backup`: the same command for two kinds of folder."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from wardround.cli.terminal.console import say

if TYPE_CHECKING:
    from wardround.federation.ledger.folder_copy import Report
    from wardround.federation.trust.entry import Head

Out = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="The new folder, or with --keep the folder of copies; only you can read it."),
]
Keep = Annotated[
    int | None,
    typer.Option(
        "--keep", metavar="N", min=1, help="Add a copy to OUT, named by the time, and remove all but N of them."
    ),
]


class BackUp(Protocol):
    """Copies a folder of some role to a new one; how far its ledger was."""

    def __call__(self, path: Path, out: Path, *, now: datetime.datetime, report: Report) -> Head: ...


def back_up_folder(back_up: BackUp, folder: Path, out: Path, *, keep: int | None, quiet: bool) -> None:
    """Make a copy, say how to check it, and remove the oldest of a series."""
    from wardround.cli.terminal.step_lines import Steps
    from wardround.federation.ledger.folder_copy import place_among, remove_older

    now, name = datetime.datetime.now(datetime.UTC), folder.resolve().name
    place = out if keep is None else place_among(out, name, now=now)
    with Steps("copying the ledger", quiet=quiet) as steps:
        head = back_up(folder, place, now=now, report=steps.pages)
    say(f"{place} holds {folder} as it was at entry {head.sequence}; check it with: wardround ledger verify {place}")
    for older in () if keep is None else remove_older(out, name, keep=keep):
        say(f"{older} is removed.")
