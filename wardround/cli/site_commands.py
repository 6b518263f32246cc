"""`wardround site …`: a hospital's side. Every command works while the agent is serving."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.backup_command import Keep, Out, back_up_folder
from wardround.cli.door.command_groups import CommandGroup
from wardround.cli.terminal.console import note, print_document, say, say_in_one_row, show, start_log
from wardround.federation.errors import Mistaken, Refused

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)
analyst = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)
app.add_typer(analyst, name="analyst", help="Show which analysts are known by their keys, and trust a key.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The site's folder.")]
PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="The plan id, or enough of its beginning to be unique.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


@app.command(epilog="Example: wardround site init st-mary --invite st-mary.json --config site.toml")
def init(
    folder: Folder,
    invite: Annotated[Path, typer.Option("--invite", metavar="FILE", help="The consortium's invitation.")],
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="site.toml.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Sign the study without being asked.")] = False,
) -> None:
    """Look at the tables, show the study, make this site's keys, sign the study and enrol."""
    from site_agent.serving.enrolment import enrol, prepare_enrolment
    from wardround.cli.terminal.step_lines import Steps

    with Steps("looking at the tables", quiet=False) as steps:
        ready = prepare_enrolment(folder, invite, config, report=lambda text: steps.name(f"wardround: {text}"))
    show(ready.text())
    if sys.stdin.isatty() and not yes and not typer.confirm("Sign this study and enrol?"):
        raise Refused("The study was not signed; nothing was enrolled.")
    enrol(ready)
    say(f"{ready.configuration.name} signed the study and is enrolled; its keys are in {folder}.")
    say(f"Next: wardround site check {folder}, then wardround site serve {folder}")


@app.command(epilog="Example: wardround site serve st-mary")
def serve(folder: Folder) -> None:
    """Answer the coordinator's tasks until interrupted. Dials out; listens on nothing."""
    from site_agent.serving.serve import serve as run

    start_log()
    run(folder, announce=note)


@app.command(epilog="Example: wardround site check st-mary")
def check(folder: Folder, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Check configuration, permissions, ledger, connection and tables, and say what to do about each fault."""
    from site_agent.serving.check import check_site
    from wardround.cli.terminal.step_lines import Steps

    with Steps("looking at everything", quiet=quiet) as steps:
        findings = check_site(folder, report=lambda text: steps.name(f"wardround: {text}"))
    if as_json:
        print_document({"findings": [f.document() for f in findings], "ok": all(f.ok for f in findings)})
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            say(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.subject:<{width}}  {finding.text}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command(epilog="Example: wardround site account st-mary")
def account(folder: Folder) -> None:
    """Add this folder's charges to the account that it shares with other folders over the same patients."""
    from site_agent.serving.folder_account import bring_charges

    say(bring_charges(folder))


@app.command(epilog="Example: wardround site backup st-mary /var/backups/st-mary-2026-11-18")
def backup(folder: Folder, out: Out, keep: Keep = None, quiet: Quiet = False) -> None:
    """Copy the site to a new folder, without prepared tables, also while it serves. A copy is recovered first."""
    from site_agent.serving.backup import back_up

    back_up_folder(back_up, folder, out, keep=keep, quiet=quiet)


@app.command(epilog="Example: wardround site recover st-mary")
def recover(
    folder: Folder,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="State, signed, that the coordinator lists everything that was asked here."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Recover without being asked.")] = False,
    quiet: Quiet = False,
) -> None:
    """Let a site go on that froze or came from a backup, with what the coordinator keeps of its ledger."""
    from site_agent.serving.recover import recover as go_on
    from wardround.cli.terminal.step_lines import Steps

    price = "what the coordinator says it asked and this site does not know" if complete else "all that is left"
    show(f"What this site signed comes back. For what nobody can prove it is charged {price}. Questions that were paid")
    show("and not answered, and trainings that have begun, are not answered any more.")
    if not yes and not sys.stdin.isatty():
        raise Mistaken("this is charged for good; repeat it with --yes.")
    if not yes and not typer.confirm("Recover?"):
        raise Refused("Nothing was done.")
    with Steps("asking the coordinator", quiet=quiet) as steps:
        done = go_on(folder, complete=complete, report=lambda text: steps.name(f"wardround: {text}"))
    say(f"{done.back} entries came back, up to {done.head.sequence}; ε = {done.charged:.3g} is charged for the rest.")
    say(f"Next: wardround site check {folder}, then wardround site serve {folder}")


@app.command(epilog="Example: wardround site prepare st-mary")
def prepare(folder: Folder, quiet: Quiet = False) -> None:
    """Copy the study's columns into DIR/prepared, sorted by patient, so that questions are answered faster."""
    from site_agent.serving.open_dataset import prepare_site
    from wardround.cli.terminal.step_lines import Steps

    with Steps("preparing", quiet=quiet) as steps:
        tables = prepare_site(folder, report=lambda text: steps.name(f"wardround: {text}"), on_rows=steps.thousands)
    for table in tables:
        say(f"{table} is prepared; {folder / 'prepared' / table} holds patient rows and is readable by this user only.")


@app.command(epilog="Example: wardround site requests st-mary")
def requests(
    folder: Folder,
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="Show this one in full.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the questions that wait for a data steward and those already decided; or show one in full."""
    from site_agent.serving.steward import askings, named

    found = askings(folder)
    if plan is not None:
        meant = named([asking.request.plan_id for asking in found], plan, see=f"see: wardround site requests {folder}")
        found = [asking for asking in found if asking.request.plan_id == meant]
    if as_json:
        print_document({"requests": [asking.document() for asking in found]})
        return
    for asking in found:
        if plan is None:
            say_in_one_row(asking.line())
        else:
            say(asking.line(digits=None), asking.asker())
            # The price again: the first row may have left the screen.
            say(f"Approving it costs {asking.price}.")
    if not found:
        say("No question has asked for approval.")


@app.command(epilog="Example: wardround site approve st-mary 3f9c0a12")
def approve(folder: Folder, plan: PlanId) -> None:
    """Let a waiting question run; it is charged only now."""
    from site_agent.serving.steward import decide

    decide(folder, plan, approve=True)
    say("Approved; the running agent answers it within seconds.")


@app.command(epilog="Example: wardround site deny st-mary 3f9c0a12")
def deny(folder: Folder, plan: PlanId) -> None:
    """Refuse a waiting question; nothing is charged."""
    from site_agent.serving.steward import decide

    decide(folder, plan, approve=False)
    say("Denied; nothing was charged.")


@app.command(epilog="Example: wardround site reopen st-mary encounters")
def reopen(
    folder: Folder, table: Annotated[str, typer.Argument(metavar="TABLE", help="The study's name for the table.")]
) -> None:
    """Open a closed table, so that it answers questions again; the ledger records it."""
    from site_agent.serving.folder import open_folder
    from site_agent.serving.serve import open_ledger

    names = [each.name for each in open_folder(folder).study().tables]
    if table not in names:
        raise Mistaken(f"the study has no table {table!r}; it has {', '.join(names)}.")
    with open_ledger(folder) as ledger:
        ledger.tables.reopen(table)
    say(f"{table} is open again; the running agent answers questions about it from now on.")


@app.command(epilog="Example: wardround site history st-mary --csv")
def history(
    folder: Folder,
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="Show this one in full.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")] = False,
) -> None:
    """Show everything that ever left this site, who asked for it and who approved; and which tables were closed."""
    from site_agent.telling import history as past

    if as_csv and (as_json or plan is not None):
        raise Mistaken("--csv is for the whole history, without --json and without a plan; leave one of them out.")
    if plan is not None:
        found, release = past.departure(folder, plan)
        if as_json:
            sent = {} if release is None else {"released": release.values.tolist(), "keys": list(release.keys)}
            print_document({**found.document(), **sent})
        else:
            say(*found.full(release))
        return
    lines = past.departures(folder)
    if as_json:
        print_document({"history": [line.document() for line in lines]})
    elif as_csv:
        say(*past.as_csv(lines).splitlines())
    else:
        for line in lines:
            say_in_one_row(line.text())
        if not lines:
            say("Nothing has left this site.")


@analyst.command("list", epilog="Example: wardround site analyst list st-mary")
def list_analysts(folder: Folder, as_json: AsJson = False) -> None:
    """List the analysts that are known, each with the fingerprint of the key and how it became known."""
    from site_agent.serving.analysts import known_analysts

    found = known_analysts(folder)
    if as_json:
        print_document({"analysts": [known.document() for known in found]})
        return
    for known in found:
        for line in known.lines():
            say(line)
    if not found:
        say("No analyst has asked yet.")


@analyst.command(epilog="Example: wardround site analyst trust st-mary amira 3f9c 0a12 … (all sixteen groups)")
def trust(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The analyst's name.")],
    fingerprint: Annotated[
        list[str],
        typer.Argument(
            metavar="FINGERPRINT",
            help="As the analyst reads it to you, by telephone or in person; or the whole key, ed25519:….",
        ),
    ],
) -> None:
    """Know an analyst by this key from now on, once you compared its fingerprint; the ledger records it."""
    from site_agent.serving.analysts import trust as pin

    key = pin(folder, name, fingerprint)
    say(f"{name} is known by the key {key.fingerprint}; what already waits still waits for your decision.")
