"""`wardround train`: a model across hospitals, round by round."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.analyst_commands import AsJson, Profile, chosen_nonce, going_on, tell_nonce
from wardround.cli.console import ProgressLines, note, print_document, show
from wardround.federation.question.answer import Progress, SiteState

if TYPE_CHECKING:
    from wardround.analyst.learning.driver import TrainingRound

FOLDER = Path("models")


# Of many rounds only this is worth a line: who has to do something, or did not do it, and whom a slow round waits for.
_SLOW_SECONDS = 3.0
_TOLD = (SiteState.PENDING, SiteState.REFUSED, SiteState.MISSING)


class TrainingLines:
    """A line for each round, with what is left of the budget, and below it the sites that hold it up.

    What a site refused or missed is said once, not again in every round after it, until the site has answered.
    """

    def __init__(self) -> None:
        self._lines = ProgressLines(sys.stderr)
        self._said: dict[str, SiteState] = {}
        self._latest: Progress | None = None
        self._slow = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def begin(self, each: TrainingRound) -> None:
        left = f"ε = {each.remaining.epsilon:.4g} is left"
        self.close()
        with self._lock:
            if self._latest is not None:
                self._remember(self._latest)
            note(f"round {each.number} of {each.rounds}: {each.title} ({left})")
            self._lines, self._latest, self._slow = ProgressLines(sys.stderr), None, False
        # A site that is down sends no word, so nothing else would say whom a round waits for until its deadline.
        self._timer = threading.Timer(_SLOW_SECONDS, self._grow_slow)
        self._timer.daemon = True
        self._timer.start()

    def show(self, progress: Progress) -> None:
        """Show every site that waits, refused or is missing."""
        with self._lock:
            self._latest = progress
            self._tell(progress)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _grow_slow(self) -> None:
        with self._lock:
            self._slow = True
            if self._latest is not None:
                self._tell(self._latest)

    def _tell(self, progress: Progress) -> None:
        states = (*_TOLD, SiteState.OPEN) if self._slow else _TOLD
        told = tuple(
            (site, state) for site, state in progress.sites if state in states and self._said.get(site) is not state
        )
        if told:
            self._lines.show(Progress(progress.seen, told))

    def _remember(self, progress: Progress) -> None:
        for site, state in progress.sites:
            if state in _TOLD:
                self._said[site] = state
            elif state is SiteState.RELEASED:
                self._said.pop(site, None)


def add_to(app: typer.Typer) -> None:
    """Put the command on the door."""
    app.command(
        epilog="Example: wardround train --profile me.profile request.toml --dry-run  "
        "Then the same without --dry-run; after an interruption the same call goes on and pays nothing twice."
    )(train)


def train(
    request: Annotated[Path, typer.Argument(metavar="request.toml", help="What to train: kind, target, features, ε.")],
    profile: Profile,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the model in DIR (default: models/ and its id).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show stages, noise and charge; spend nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train anew, and pay anew.")] = False,
    resume: Annotated[
        str, typer.Option("--resume", metavar="NONCE", help="Go on with a fresh training that was interrupted.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Train a model across the hospitals; a training that was interrupted goes on where it stood."""
    from wardround.analyst.asking.client import connect
    from wardround.analyst.learning.request import read_request

    nonce = chosen_nonce(fresh=fresh, resume=resume, what="training")
    wanted = read_request(request)
    with connect(profile) as federation:
        if dry_run:
            preview = federation.preview_training(wanted, nonce=nonce)
            print_document(preview.document()) if as_json else show(str(preview))
            return
        tell_nonce(nonce, fresh=fresh, what="training")
        lines = TrainingLines()
        under = None if out is not None else FOLDER
        with going_on(nonce, fresh=fresh), contextlib.closing(lines):
            result = federation.train(
                wanted, nonce=nonce, out=out, under=under, on_progress=lines.show, on_round=lines.begin
            )
    print_document(result.document()) if as_json else show(str(result))
