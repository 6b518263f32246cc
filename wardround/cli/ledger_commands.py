"""`wardround ledger …`: anyone may check, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.door.command_groups import CommandGroup
from wardround.cli.terminal.console import note, print_document, say

if TYPE_CHECKING:
    from wardround.federation.ledger.verify.verify import Verification

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A site's or coordinator's folder, or an exported file.")]


@app.command(epilog="Example: wardround ledger verify st-mary --json")
def verify(
    folder: Folder,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check every entry: the chain, the signatures, a charge before each release, and sums within the cap."""
    from wardround.cli.terminal.step_lines import Steps
    from wardround.federation.ledger.sqlite_file import RESTORE
    from wardround.federation.ledger.verify.verify import verify as check

    with Steps("checking every entry", quiet=quiet):
        found = check(folder)
    if as_json:
        print_document(_document(found))
    else:
        verdict = "valid" if found.valid else "INVALID"
        say(f"{verdict}: {found.entries} entries of a {found.role or 'ledger'}, head {found.head.digest[:16]}")
        for problem in found.problems:
            where = f"entry {problem.entry}" if problem.entry else "the whole ledger"
            say(f"  {where}: {problem.code}. {problem.code.sentence}")
        if found.unattested:
            say(f"  not attested, as an earlier version wrote them: rows of {', '.join(found.unattested)}.")
        if not found.entries:
            note(f"wardround: {folder} holds no entry of a ledger; {RESTORE}.")
    if not found.valid:
        raise typer.Exit(4)


@app.command(epilog="Example: wardround ledger export st-mary --out st-mary.ledger")
def export(
    folder: Folder, out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.")]
) -> None:
    """Write the ledger to one file that an auditor can verify elsewhere."""
    from wardround.federation.ledger.verify.evidence import export as write

    count = write(folder, out)
    say(f"{count} entries are in {out}; check them with: wardround ledger verify {out}")


def _document(found: Verification) -> dict[str, object]:
    from wardround.privacy.budget.filter import epsilon_spent

    spent, limit = None, None
    if found.cap is not None:
        spent = {"epsilon": epsilon_spent(found.spent, found.cap), "delta": found.cap.delta}
        limit = {"epsilon": found.cap.epsilon, "delta": found.cap.delta}
    return {
        "valid": found.valid,
        "role": found.role,
        "entries": found.entries,
        "head": found.head.digest,
        "spent": spent,
        "cap": limit,
        "unattested": list(found.unattested),
        "problems": [{"entry": problem.entry, "code": problem.code} for problem in found.problems],
    }
