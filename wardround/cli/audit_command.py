"""`wardround audit`: does this installation leak no more than it says?"""

from typing import Annotated

import typer

from wardround.cli.analyst_commands import AsJson
from wardround.cli.console import note, print_document, show

NOT_WHAT_WAS_CLAIMED = 4


def add_to(app: typer.Typer) -> None:
    """Put the audit on the door."""
    app.command(epilog="Example: wardround audit --draws 400000 --json")(audit)


def audit(
    draws: Annotated[int | None, typer.Option("--draws", metavar="N", help="Draws of each world (300000).")] = None,
    as_json: AsJson = False,
) -> None:
    """Try to tell two worlds apart, with and without one patient, through every mechanism.

    Models are trained whole, one training for every thousand draws.

    Proves a lower bound on what each mechanism leaks and compares it with what is charged. Mechanisms that are
    broken on purpose must be flagged in the same run. Exit code 4 when a claim does not hold, or was not tested
    hard enough, or a broken control was missed.
    """
    from wardround.simulation.audit.run import DEFAULT_DRAWS, run_audit

    report = run_audit(draws=DEFAULT_DRAWS if draws is None else draws, tell=lambda step: note(f"auditing: {step}"))
    if as_json:
        print_document(report.document())
    else:
        show(report.text())
    if not report.passed:
        raise typer.Exit(NOT_WHAT_WAS_CLAIMED)
