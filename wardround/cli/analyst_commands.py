"""`wardround ask`, `describe` and `budget`: the analyst's side."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.terminal.console import Interrupted, columns, note, print_document, show
from wardround.federation.errors import Mistaken, QueryMistaken

if TYPE_CHECKING:
    from wardround.analyst.learning.trained_model import TrainingResult
    from wardround.analyst.showing.budget import BudgetResult
    from wardround.analyst.showing.result import Result
    from wardround.federation.question.answer import Preview

Profile = Annotated[Path, typer.Option("--profile", metavar="FILE", help="Your profile, from the consortium.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Epsilon = Annotated[
    float | None,
    typer.Option("--epsilon", metavar="E", help="Privacy loss of this question (default: a tenth of the cap)."),
]
Delta = Annotated[float | None, typer.Option("--delta", metavar="D", help="Its δ (default: the study's).")]
Error = Annotated[
    list[str] | None,
    typer.Option(
        "--error",
        metavar="E",
        help="Ask for this half-width at 95 %; the least ε for it is found, at most --epsilon. "
        'Of several aggregates one each, in order or by name ("AVG(sbp)=0.5").',
    ),
]
Privacy = Annotated[str, typer.Option("--privacy", metavar="site|sum", help="Noise at each site, or a secure sum.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it, into a file ending in .svg, .png or .pdf.")
]
Long = Annotated[bool, typer.Option("--long", help="One estimate a line, with everything about it.")]
Intervals = Annotated[bool, typer.Option("--intervals", help="Show each number's interval, too.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say what the privacy of the answer means.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Search = Annotated[bool, typer.Option("--search", help="Find a single quantile by ten rounds of noisy binary search.")]

Purpose = Annotated[
    str, typer.Option("--purpose", metavar="TEXT", help="Why you ask; signed, and shown to the hospitals' stewards.")
]

Require = Annotated[
    str | None,
    typer.Option("--require", metavar="all|N", help="Keep no answer of fewer hospitals, and begin none without them."),
]

COORDINATOR = "waiting for the coordinator"


def add_to(app: typer.Typer) -> None:
    """Put the analyst's commands on the door."""
    app.command(
        epilog='Example: wardround ask --profile me.profile "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters '
        'WHERE age >= 40 GROUP BY diagnosis" --epsilon 0.5'
    )(ask)
    app.command(epilog="Example: wardround budget --profile me.profile")(budget)
    app.command(epilog="Example: wardround describe --profile me.profile")(describe)


def ask(
    sql: Annotated[str, typer.Argument(metavar='"SELECT …"', help="The question.")],
    profile: Profile,
    error: Error = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    privacy: Privacy = "site",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show charge and expected error; spend nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ask again with new noise, and pay again.")] = False,
    resume: Annotated[
        str, typer.Option("--resume", metavar="NONCE", help="Continue a fresh question that was interrupted.")
    ] = "",
    search: Search = False,
    purpose: Purpose = "",
    require: Require = None,
    plot: Plot = None,
    long: Long = False,
    intervals: Intervals = False,
    explain: Explain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Ask the federation a question; a question asked again costs nothing."""
    from wardround.analyst.asking.client import connect
    from wardround.analyst.asking.wanted_errors import read_errors
    from wardround.cli.terminal.round_lines import RoundLines
    from wardround.cli.terminal.step_lines import Steps
    from wardround.federation.plan.required import required
    from wardround.federation.trust.asked_by import check_purpose

    check_privacy(privacy)
    check_purpose(purpose)
    required(require)
    wanted = read_errors(error or [])
    nonce = chosen_nonce(fresh=fresh, resume=resume, what="question")
    if dry_run and plot is not None:
        raise QueryMistaken("a dry run has no answer to draw; leave out --plot or --dry-run.")
    check_plot(plot)
    with connect(profile) as federation:
        look = partial(federation.preview, sql, error=wanted, epsilon=epsilon, delta=delta, nonce=nonce, search=search)
        if dry_run:
            with Steps(COORDINATOR, quiet=quiet):
                preview = look()
            shown = f"{preview}\n{preview.explain()}" if explain else str(preview)
            print_document(preview.document()) if as_json else show(shown)
            return
        if fresh:
            # Asked first without a charge, so that nobody is told how to go on with what the other side refuses.
            tell_nonce(look().preview, nonce)
        with going_on(nonce, fresh=fresh), contextlib.closing(RoundLines(quiet=quiet)) as progress:
            asked = partial(federation.ask, sql, error=wanted, epsilon=epsilon, delta=delta, nonce=nonce, search=search)
            asked = partial(asked, require=require)
            result = asked(purpose=purpose, on_progress=progress.show, on_round=progress.begin, on_note=progress.note)
            progress.end(result.answer)
    shown = result.text(long=long, intervals=intervals, explain=explain, width=columns(sys.stdout))
    tell(result, shown, plot=plot, as_json=as_json)


def budget(
    profile: Profile,
    plot: Plot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show what the study has spent by every accountant, what remains, and what it means for one patient."""
    from wardround.analyst.asking.client import connect
    from wardround.cli.terminal.step_lines import Steps

    check_plot(plot)
    with connect(profile) as federation, Steps(COORDINATOR, quiet=quiet):
        report = federation.budget()
    tell(report, str(report), plot=plot, as_json=as_json)


def describe(profile: Profile, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Show what can be asked: tables and columns, hospitals with their limits, and what is left of the budget."""
    from wardround.analyst.asking.client import connect
    from wardround.cli.terminal.step_lines import Steps

    with connect(profile) as federation, Steps(COORDINATOR, quiet=quiet):
        description = federation.describe()
    print_document(description.document()) if as_json else show(str(description))


def chosen_nonce(*, fresh: bool, resume: str, what: str) -> str:
    """What tells a fresh question or training from the same one before it."""
    from wardround.analyst.asking.client import fresh_nonce

    if fresh and resume:
        raise Mistaken(f"--fresh begins a {what} and --resume goes on with one; leave out one of them.")
    return fresh_nonce() if fresh else resume


def tell_nonce(preview: Preview, nonce: str, *, what: str = "question") -> None:
    """Before anything is charged: whoever is killed afterwards finds what was paid for under this alone."""
    if preview.excess is None:
        note(f"a fresh {what}; if it is interrupted, go on with --resume {nonce}")


@contextlib.contextmanager
def going_on(nonce: str, *, fresh: bool) -> Iterator[None]:
    """Say how to go on when Ctrl-C ends the wait: what was asked is stored under its plan and is not paid twice."""
    try:
        yield
    except KeyboardInterrupt:
        again = f"the same command with --resume {nonce} instead of --fresh" if fresh else "the same command"
        raise Interrupted(
            f"interrupted; what was asked is kept: {again} goes on from there and pays nothing twice."
        ) from None


def check_plot(plot: Path | None) -> None:
    """A wrong file is a wrong call: it is said before anything is asked and charged."""
    if plot is not None:
        from wardround.analyst.pictures.picture_files import check_place

        check_place(plot)


def tell(result: Result | BudgetResult | TrainingResult, text: str, *, plot: Path | None, as_json: bool) -> None:
    """Show what was found and draw it: what was paid for is read also where its picture fails."""
    if not as_json:
        show(text)
    draw(result, plot)
    if as_json:
        print_document(result.document())


def draw(result: Result | BudgetResult | TrainingResult, plot: Path | None) -> None:
    """Draw what was found, if that is wanted."""
    if plot is not None:
        from wardround.analyst.pictures.picture_files import write_picture

        write_picture(result.plot(), plot)


def check_privacy(privacy: str) -> None:
    """The secure sum does not exist yet; say so instead of pretending."""
    if privacy not in ("site", "sum"):
        raise Mistaken(f"--privacy is {privacy!r}; it must be 'site' or 'sum'.")
    if privacy == "sum":
        raise Mistaken("--privacy sum needs the secure sum, which this version does not have; use --privacy site.")
