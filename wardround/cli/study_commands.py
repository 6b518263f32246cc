"""`wardround study …`: a study read as the hospitals will read it, before any of them is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.analyst_commands import AsJson
from wardround.cli.door.command_groups import CommandGroup
from wardround.cli.terminal.console import Document, print_document, say
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import read_study

if TYPE_CHECKING:
    from wardround.federation.plan.study_review import StudyFinding
    from wardround.simulation.study_costs import StudyCosts

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def study() -> None:
    """Check a study before anyone signs it."""


@app.command(epilog="Example: wardround study check study.toml --patients 40000 --sites 4")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="study.toml.")],
    patients: Annotated[
        int | None, typer.Option("--patients", metavar="N", min=1, help="How many patients all sites declare together.")
    ] = None,
    sites: Annotated[int | None, typer.Option("--sites", metavar="S", min=1, help="How many sites answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the hospitals would sign, what is missing, and what typical questions would cost; reads no table."""
    from wardround.federation.plan.sql_text import study_text
    from wardround.federation.plan.study_review import findings
    from wardround.simulation.study_costs import study_costs

    read = read_study(file)
    costs = study_costs(read, patients=patients, sites=sites)
    found = findings(read)
    if as_json:
        print_document(_document(read, found, costs))
        return
    say(*study_text(read).split("\n"), "", *_findings_text(found), "", *_costs_text(read, costs))


def _findings_text(found: tuple[StudyFinding, ...]) -> list[str]:
    if not found:
        return ["Nothing is missing: every column has what its questions need."]
    return ["Know this before you sign:", *(f"  {each.place}: {each.sentence}" for each in found)]


def _costs_text(read: Study, costs: StudyCosts) -> list[str]:
    said = "assumed" if costs.assumed else "declared"
    sites = f"{costs.sites} {'site' if costs.sites == 1 else 'sites'}"
    lines = [f"What typical questions would cost, for {costs.patients} {said} patients at {sites}:"]
    head = [
        ["standard error of", *(asking.title for asking in costs.askings), "default ones"],
        ["", *(f"ε = {asking.epsilon:.3g}" for asking in costs.askings), "that fit"],
    ]
    rows: list[list[str]] = []
    for line in costs.questions:
        title = f"{line.table}: {line.title}"
        rows.append([title, *(_error_text(error) for error in line.errors), str(line.fitting)])
        if line.shown_from:
            patients = ["–" if least is None else str(least) for least in line.shown_from]
            rows.append(["  shown when so many patients of a site have it", *patients, ""])
    table = head + rows
    widths = [max(len(row[place]) for row in table) for place in range(len(head[0]))]
    for row in table:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(("  " + "  ".join(cells)).rstrip())
    lines.append("  “one of n” is a question that uses 1/n of the whole budget. Each number of a GROUP BY or a")
    lines.append("  histogram has this error. Means, medians and shares: over all patients, with evenly spread values.")
    if read.cap.delta > 0.0:
        lines.append(
            f"  δ = {read.cap.delta:g}: sites can join as long as all of them together declare fewer than "
            f"{1 / read.cap.delta:,.0f} patients."
        )
    return lines


def _error_text(error: float | None) -> str:
    return "–" if error is None else f"± {error:.3g}"


def _document(read: Study, found: tuple[StudyFinding, ...], costs: StudyCosts) -> Document:
    return {
        "study": read.name,
        "study_hash": read.study_hash,
        "findings": [{"place": each.place, "kind": each.kind.value, "sentence": each.sentence} for each in found],
        "costs": {
            "sites": costs.sites,
            "patients": costs.patients,
            "assumed": costs.assumed,
            "askings": [
                {"title": asking.title, "epsilon": asking.epsilon, "questions": asking.questions}
                for asking in costs.askings
            ],
            "questions": [
                {
                    "sql": line.sql,
                    "groups": line.groups,
                    "standard_errors": list(line.errors),
                    "default_ones_that_fit": line.fitting,
                    "note": line.note,
                    "shown_from": list(line.shown_from),
                }
                for line in costs.questions
            ],
        },
    }
