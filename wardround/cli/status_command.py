"""`wardround status`: how a folder's role stands, in lines, as JSON, and as an exit code for probes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.terminal.console import print_document, say
from wardround.federation.errors import ConfigurationMistaken

NOT_WELL = 3


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(epilog="Example: wardround status /var/lib/wardround/site --json")(status)


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a coordinator or of a site.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show whether a coordinator or a site is served, heard and well; the exit code is 3 if it is not."""
    now = datetime.datetime.now(datetime.UTC)
    found = _coordinator(folder, now) if _is_coordinator(folder) else _site(folder, now)
    document, lines = found
    if as_json:
        print_document(document)
    else:
        say(*lines)
    if not document["healthy"]:
        raise typer.Exit(NOT_WELL)


def _is_coordinator(folder: Path) -> bool:
    if (folder / "authority").exists() or (folder / "coordinator.toml").exists():
        return True
    if (folder / "coordinator.json").exists() or (folder / "site.toml").exists():
        return False
    raise ConfigurationMistaken(
        f"{folder} is the folder of neither a coordinator nor a site; name one that wardround coordinator init or "
        "wardround site init has made."
    )


def _coordinator(folder: Path, now: datetime.datetime) -> tuple[dict[str, object], list[str]]:
    from coordinator.serving.status import status as of_coordinator

    found = of_coordinator(folder, now=now)
    return found.document(), found.lines()


def _site(folder: Path, now: datetime.datetime) -> tuple[dict[str, object], list[str]]:
    from site_agent.telling.status import status as of_site

    found = of_site(folder, now=now)
    return found.document(), found.lines()
