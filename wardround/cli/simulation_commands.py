"""`wardround simulate` and `wardround demo`: a federation on a laptop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.analyst_commands import (
    AsJson,
    Delta,
    Epsilon,
    Error,
    Explain,
    Intervals,
    Long,
    Plot,
    Privacy,
    Quiet,
    Search,
    check_plot,
    draw,
)
from wardround.cli.terminal.console import Document, columns, note, print_document, say, show
from wardround.federation.errors import Mistaken
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import read_study

if TYPE_CHECKING:
    from wardround.analyst.learning.driver import TrainingRound
    from wardround.analyst.learning.trained_model import TrainingResult
    from wardround.analyst.showing.result import Result
    from wardround.cli.terminal.step_lines import Steps

MOST_REPEATS = 100_000
FEWEST_SITES = 2
MOST_SITES = 32


def add_to(app: typer.Typer) -> None:
    """Put the laptop's commands on the door."""
    app.command(
        epilog='Example: wardround simulate --study study.toml --tables hospitals "SELECT COUNT(*) FROM encounters" '
        "--epsilon 1 --repeat 100   Or: wardround simulate --study study.toml --tables hospitals --train request.toml"
    )(simulate)
    app.command(epilog="Example: wardround demo --keep /tmp/wardround-demo")(demo)


def simulate(
    study: Annotated[Path, typer.Option("--study", metavar="FILE", help="The study.")],
    tables: Annotated[Path, typer.Option("--tables", metavar="DIR", help="DIR/<site>/<table>.csv or .parquet.")],
    sql: Annotated[str | None, typer.Argument(metavar='"SELECT …"', help="The question.", show_default=False)] = None,
    train: Annotated[
        Path | None, typer.Option("--train", metavar="request.toml", help="Train a model instead of asking.")
    ] = None,
    error: Error = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    privacy: Privacy = "site",
    noiseless: Annotated[bool, typer.Option("--noiseless", help="No noise: to compare with known answers.")] = False,
    search: Search = False,
    repeat: Annotated[int | None, typer.Option("--repeat", metavar="N", help="Ask N independent federations.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="With --train: keep the model in DIR.")
    ] = None,
    plot: Plot = None,
    long: Long = False,
    intervals: Intervals = False,
    explain: Explain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Try a study on your own tables: the same roles, in one process, without sockets."""
    from wardround.cli.terminal.step_lines import Steps
    from wardround.simulation.sites import without_tables

    if privacy not in ("site", "sum"):
        raise Mistaken(f"--privacy is {privacy!r}; it must be 'site' or 'sum'.")
    if (sql is None) == (train is None):
        raise Mistaken('simulate takes either a question, "SELECT …", or --train request.toml.')
    runs = _runs(repeat, out=out is not None, trained=train is not None, plot=plot is not None)
    if train is not None:
        _no_question(search=search, error=bool(error), form=long or intervals)
    check_plot(plot)
    form = _Form(long=long, intervals=intervals, explain=explain)
    trial = _Trial(error or [], epsilon, delta, noiseless=noiseless, trusted_total=privacy == "sum", repeat=runs)
    agreed = read_study(study)
    documents: list[Document] = []
    with Steps("asking" if train is None else "training", quiet=quiet) as steps:
        results = (
            _answers(agreed, tables, trial, sql or "", search=search)
            if train is None
            else _models(agreed, tables, trial, train, out=out, steps=steps)
        )
        for number, result in enumerate(results, start=1):
            if as_json:
                documents.append(result.document())
            else:
                steps.make_room()
                show(form.text(result))
            draw(result, plot)
            if runs > 1:
                steps.count(f"{number} of {runs} done", done=number, total=runs)
    for name in without_tables(tables, agreed):
        note(f"{name} took no part: it holds no file of the study's tables, such as {agreed.tables[0].name}.csv.")
    if as_json:
        print_document(documents[0] if repeat is None else {"runs": documents})


def _runs(repeat: int | None, *, out: bool, trained: bool, plot: bool) -> int:
    """How often it is asked; what keeps or draws one answer wants one."""
    runs = 1 if repeat is None else repeat
    if not 1 <= runs <= MOST_REPEATS:
        raise Mistaken(f"--repeat is {runs}; it must be from 1 to {MOST_REPEATS}.")
    if out and (not trained or runs > 1):
        raise Mistaken("--out keeps the one model of --train; leave it out, or leave out --repeat.")
    if plot and runs > 1:
        raise Mistaken("--plot draws one answer; leave it out, or leave out --repeat.")
    return runs


def _no_question(*, search: bool, error: bool, form: bool) -> None:
    """Refuse beside --train what only a question has."""
    if search:
        raise Mistaken("--search finds a quantile; leave it out with --train.")
    if error:
        raise Mistaken("--error is for a question; leave it out with --train.")
    if form:
        raise Mistaken("--long and --intervals are for the answer to a question; leave them out with --train.")


@dataclass(frozen=True, slots=True)
class _Trial:
    """What questions and trainings of a simulation have in common."""

    error: list[str]
    epsilon: float | None
    delta: float | None
    noiseless: bool
    trusted_total: bool
    repeat: int


@dataclass(frozen=True, slots=True)
class _Form:
    """How an answer is shown."""

    long: bool = False
    intervals: bool = False
    explain: bool = False

    def text(self, result: Result | TrainingResult) -> str:
        from wardround.analyst.learning.trained_model import TrainingResult

        if isinstance(result, TrainingResult):
            return f"{result}\n{result.explain()}" if self.explain else str(result)
        return result.text(long=self.long, intervals=self.intervals, explain=self.explain, width=columns(sys.stdout))


def _answers(study: Study, tables: Path, trial: _Trial, sql: str, *, search: bool) -> Iterator[Result | TrainingResult]:
    from wardround.analyst.asking.wanted_errors import read_errors
    from wardround.simulation.trial import Trial, run_trials

    question = Trial(
        sql,
        error=read_errors(trial.error),
        epsilon=trial.epsilon,
        delta=trial.delta,
        noiseless=trial.noiseless,
        trusted_total=trial.trusted_total,
        search=search,
    )
    yield from run_trials(study, tables, question, repeat=trial.repeat)


def _models(
    study: Study, tables: Path, trial: _Trial, request: Path, *, out: Path | None, steps: Steps
) -> Iterator[Result | TrainingResult]:
    from wardround.analyst.learning.request import read_request, sharper
    from wardround.simulation.trial import TrainingTrial, run_trainings

    wanted = sharper(read_request(request), epsilon=trial.epsilon, delta=trial.delta)
    training = TrainingTrial(wanted, noiseless=trial.noiseless, trusted_total=trial.trusted_total)

    def begin(each: TrainingRound) -> None:
        # Of many trainings the finished ones are counted.
        if trial.repeat == 1:
            text = f"round {each.number} of {each.rounds}: {each.title}"
            steps.count(text, done=each.number - 1, total=each.rounds)

    yield from run_trainings(study, tables, training, repeat=trial.repeat, out=out, on_round=begin)


def demo(
    sites: Annotated[int, typer.Option("--sites", metavar="N", help="How many hospitals.")] = 4,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Keep everything in DIR.")] = None,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", metavar="DIR", help="Where pictures go (default: demo-pictures).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a real federation on loopback: separate processes, mutual TLS, durable ledgers, synthetic patients."""
    from wardround.cli.demo import run_demo

    if not FEWEST_SITES <= sites <= MOST_SITES:
        raise Mistaken(f"--sites is {sites}; a demo needs from {FEWEST_SITES} to {MOST_SITES} hospitals.")
    line = note if as_json else say
    document = run_demo(sites=sites, keep=keep, pictures=pictures, tell=lambda text: line(*text.split("\n")))
    if as_json:
        print_document(document)
