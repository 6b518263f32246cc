"""`wardround simulate` and `wardround demo`: a federation on a laptop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.analyst_commands import AsJson, Delta, Epsilon, Privacy, Search
from wardround.cli.console import Document, note, print_document, say
from wardround.federation.errors import Mistaken
from wardround.federation.study_file import read_study

MOST_REPEATS = 100_000
FEWEST_SITES = 2
MOST_SITES = 32


def add_to(app: typer.Typer) -> None:
    """Put the laptop's commands on the door."""
    app.command(
        epilog='Example: wardround simulate --study study.toml --tables hospitals "SELECT COUNT(*) FROM encounters" '
        "--epsilon 1 --repeat 100"
    )(simulate)
    app.command(epilog="Example: wardround demo --keep /tmp/wardround-demo")(demo)


def simulate(
    sql: Annotated[str, typer.Argument(metavar='"SELECT …"', help="The question.")],
    study: Annotated[Path, typer.Option("--study", metavar="FILE", help="The study.")],
    tables: Annotated[Path, typer.Option("--tables", metavar="DIR", help="DIR/<site>/<table>.csv or .parquet.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    privacy: Privacy = "site",
    noiseless: Annotated[bool, typer.Option("--noiseless", help="No noise: to compare with known answers.")] = False,
    search: Search = False,
    repeat: Annotated[int | None, typer.Option("--repeat", metavar="N", help="Ask N independent federations.")] = None,
    as_json: AsJson = False,
) -> None:
    """Try a study on your own tables: the same roles, in one process, without sockets."""
    from wardround.simulation.study_trial import Trial, run_trials

    if privacy not in ("site", "sum"):
        msg = f"--privacy is {privacy!r}; it must be 'site' or 'sum'."
        raise Mistaken(msg)
    runs = 1 if repeat is None else repeat
    if not 1 <= runs <= MOST_REPEATS:
        msg = f"--repeat is {runs}; it must be from 1 to {MOST_REPEATS}."
        raise Mistaken(msg)
    trial = Trial(sql, epsilon=epsilon, delta=delta, noiseless=noiseless, trusted_total=privacy == "sum", search=search)
    documents: list[Document] = []
    for number, result in enumerate(run_trials(read_study(study), tables, trial, repeat=runs), start=1):
        if as_json:
            documents.append(result.document())
        else:
            say(str(result))
        if runs > 1 and sys.stderr.isatty() and number % 10 == 0:
            note(f"{number} of {runs}")
    if as_json:
        print_document(documents[0] if repeat is None else {"runs": documents})


def demo(
    sites: Annotated[int, typer.Option("--sites", metavar="N", help="How many hospitals.")] = 4,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Keep everything in DIR.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a real federation on loopback: separate processes, mutual TLS, durable ledgers, synthetic patients."""
    from wardround.cli.demo import run_demo

    if not FEWEST_SITES <= sites <= MOST_SITES:
        msg = f"--sites is {sites}; a demo needs from {FEWEST_SITES} to {MOST_SITES} hospitals."
        raise Mistaken(msg)
    document = run_demo(sites=sites, keep=keep, tell=note if as_json else say)
    if as_json:
        print_document(document)
