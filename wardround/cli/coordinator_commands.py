"""`wardround coordinator …`: the consortium's side."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.backup_command import Keep, back_up_folder
from wardround.cli.backup_command import Out as CopyOut
from wardround.cli.door.command_groups import CommandGroup
from wardround.cli.terminal.console import note, say, start_log
from wardround.federation.errors import ConfigurationMistaken, Mistaken, Refused
from wardround.federation.strict_toml import read_text

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The coordinator's folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the site or analyst.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the file; only you can read it.")]


@app.command(epilog="Example: wardround coordinator init consortium --study study.toml")
def init(
    folder: Folder,
    study: Annotated[Path, typer.Option("--study", metavar="FILE", help="The study every hospital will sign.")],
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="coordinator.toml.")] = None,
) -> None:
    """Make the consortium's certificate authority, signing key and ledger in a new folder."""
    from coordinator.serving.serve import initialise

    made = initialise(
        folder,
        study_text=read_text(study),
        configuration_text=None if config is None else read_text(config),
        now=_now(),
    )
    say(f"Study {made.name!r} is ready in {folder} (hash {made.study_hash[:16]}).")
    say(f"Next: wardround coordinator serve {folder}, and wardround coordinator invite {folder} SITE --out FILE")


@app.command(epilog="Example: wardround coordinator serve consortium")
def serve(folder: Folder) -> None:
    """Serve sites and analysts until interrupted."""
    from coordinator.serving.serve import serve as run

    start_log()
    run(folder, announce=note)


@app.command(epilog="Example: wardround coordinator invite consortium st-mary --out st-mary.json")
def invite(folder: Folder, site: Annotated[str, typer.Argument(metavar="SITE")], out: Out) -> None:
    """Make an invitation for one site; it can be used once, and expires."""
    from coordinator.members.enrolment import make_invitation
    from coordinator.members.folder import open_folder
    from wardround.federation.trust.enrolment import write_invitation

    _check_out(out)
    invitation = make_invitation(open_folder(folder), site, now=_now())
    write_invitation(invitation, out)
    say(f"Invitation for {site} is in {out}; it can be used once, until {invitation.expires}.")
    say("Send it by a channel the hospital trusts: whoever holds it can enrol as this site.")


@app.command(epilog="Example: wardround coordinator analyst consortium amira --out amira.profile")
def analyst(folder: Folder, name: Name, out: Out) -> None:
    """Issue a profile with which an analyst may ask questions."""
    from coordinator.members.enrolment import issue_profile
    from coordinator.members.folder import open_folder

    _check_out(out)
    expires = issue_profile(open_folder(folder), name, out, now=_now())
    say(f"Profile for {name} is in {out}; it is valid until {expires}.")
    say(f"Next: wardround budget --profile {out}")


@app.command(epilog="Example: wardround coordinator revoke consortium amira")
def revoke(folder: Folder, name: Name) -> None:
    """Remove a site or an analyst; their next call is refused."""
    from coordinator.members.enrolment import revoke as take_off
    from coordinator.members.folder import open_folder

    role = take_off(open_folder(folder), name)
    say(f"The {role} {name} is revoked from now on.")


@app.command(epilog="Example: wardround coordinator backup consortium /var/backups/consortium-2026-11-18")
def backup(folder: Folder, out: CopyOut, keep: Keep = None, quiet: Quiet = False) -> None:
    """Copy the coordinator to a new folder, also while it serves. A copy is recovered before it serves."""
    from coordinator.members.folder import back_up

    back_up_folder(back_up, folder, out, keep=keep, quiet=quiet)


@app.command(epilog="Example: wardround coordinator recover consortium --site st-mary --site ward-7 --analyst amira")
def recover(
    folder: Folder,
    site: Annotated[
        list[str] | None, typer.Option("--site", metavar="NAME", help="A hospital that takes part and is waited for.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="A hospital that may come back later.")
    ] = None,
    analyst: Annotated[
        list[str] | None, typer.Option("--analyst", metavar="NAME", help="An analyst who may go on asking.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Revoke everybody else without being asked.")] = False,
) -> None:
    """Begin again from a backup with the members you confirm; everybody else is revoked. Then serve."""
    from coordinator.members.recovering import members
    from coordinator.members.recovering import recover as begin_again
    from coordinator.store.recovery import Confirmed

    known, asks = members(folder), sys.stdin.isatty()
    if site is None and without is None and asks:
        site = [name for name in known.sites if typer.confirm(f"Does the hospital {name} still take part?")]
        analyst = [name for name in known.analysts if typer.confirm(f"May the analyst {name} still ask?")]
    names = Confirmed(tuple(site or ()), tuple(without or ()), tuple(analyst or ()))
    if not names.sites:
        raise Mistaken(f"name each hospital that takes part with --site; the ledger has {', '.join(known.sites)}.")
    others = ", ".join(known.others(names)) or "nobody"
    if not yes and not asks:
        raise Mistaken(f"this revokes {others} for good, and every invitation ends; repeat it with --yes.")
    if not yes and not typer.confirm(f"Revoke {others} for good, and end every invitation?"):
        raise Refused("Nothing was done.")
    begin_again(folder, names)
    say(f"Recovered; revoked: {others}.")
    say(f"Next: wardround coordinator serve {folder}; it waits for {', '.join(names.sites)}.")


def _check_out(out: Path) -> None:
    """A new invitation or profile ends the one before it, so a file that cannot be written is found first."""
    if not out.parent.is_dir() or out.is_dir() or not os.access(out.parent, os.W_OK):
        raise ConfigurationMistaken(f"{out} cannot be written; name a file in an existing folder.")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
