"""Which hospitals a question or a training waits for, round by round."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from wardround.cli.terminal.bar import bar_for
from wardround.cli.terminal.console import note
from wardround.federation.plain_text import escaped
from wardround.federation.question.answer import Answer, Progress, SiteState

if TYPE_CHECKING:
    from wardround.analyst.learning.driver import TrainingRound
    from wardround.analyst.link.link import RoundNotice

_WORDS = {
    SiteState.OPEN: "waiting for the site",
    SiteState.CLAIMED: "waiting for the site",
    SiteState.PENDING: "waiting for a data steward",
    SiteState.RELEASED: "answered",
    SiteState.REFUSED: "refused",
    SiteState.FAILED: "waiting for the site",
    SiteState.MISSING: "missing",
}

# Of many rounds only this is worth a line: who has to do something, or did not do it, and whom a slow round waits for.
_SLOW_SECONDS = 3.0
_TOLD = (SiteState.PENDING, SiteState.REFUSED, SiteState.MISSING)


class RoundLines:
    """Which sites a question waits for: on a terminal in a bar, elsewhere a line whenever a site's state changes."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._title = ""
        self._shown: dict[str, SiteState] = {}
        self._bar = bar_for("waiting for the coordinator", quiet=quiet)

    def begin(self, each: RoundNotice) -> None:
        """A round of several has its title."""
        self._title = f"round {each.number} of {each.rounds}: {each.title}"
        self._shown = {}
        if self._bar is not None:
            self._bar.show(self._title)
        elif not self._quiet:
            note(self._title)

    def show(self, progress: Progress) -> None:
        if self._bar is not None:
            text = "; ".join(filter(None, (self._title, waiting_text(progress))))
            self._bar.show(text, done=_answered(progress), total=len(progress.sites))
        elif not self._quiet:
            self._shown = tell_changes(progress, self._shown, note)

    def end(self, answer: Answer) -> None:
        """The last sites' word comes with the answer, and nobody is left waiting whom it has."""
        states = dict.fromkeys((*answer.answered, *answer.left_out), SiteState.RELEASED)
        states |= dict.fromkeys((site for site, _ in answer.refused), SiteState.REFUSED)
        states |= dict.fromkeys(answer.missing, SiteState.MISSING)
        if self._shown:
            self.show(Progress(0, tuple((site, states.get(site, state)) for site, state in self._shown.items())))

    def note(self, text: str) -> None:
        """A line that stays, and is more than progress."""
        note(text) if self._bar is None else self._bar.line(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def tell_changes(progress: Progress, shown: dict[str, SiteState], tell: Callable[[str], None]) -> dict[str, SiteState]:
    """A line for each site that is not in the state it was shown in; what is shown now."""
    width = max((len(site) for site, _ in progress.sites), default=0)
    for site, state in progress.sites:
        if shown.get(site) is not state:
            tell(f"  {escaped(site):<{width}}  {_WORDS[state]}")
    return shown | dict(progress.sites)


def waiting_text(progress: Progress) -> str:
    """How many sites answered, whom it waits for, and who will not answer."""
    awaited, refused, missing = [], [], []
    for site, state in progress.sites:
        match state:
            case SiteState.REFUSED:
                refused.append(site)
            case SiteState.MISSING:
                missing.append(site)
            case SiteState.PENDING:
                awaited.append(f"{site} (data steward)")
            case SiteState.OPEN | SiteState.CLAIMED | SiteState.FAILED:
                awaited.append(site)
    others = {"waiting for": awaited, "refused:": refused, "missing:": missing}
    said = [f"{words} {', '.join(sites)}" for words, sites in others.items() if sites]
    return "; ".join([f"{_answered(progress)} of {len(progress.sites)} answered", *said])


def _answered(progress: Progress) -> int:
    return sum(state is SiteState.RELEASED for _, state in progress.sites)


class TrainingLines:
    """A line for each round, with what is left of the budget, and below it the sites that hold it up.

    On a terminal the round is in a bar, and only what a site did not do is a line. What a site refused or missed is
    said once, not again in every round after it, until the site has answered.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar = bar_for("waiting for the coordinator", quiet=quiet)
        self._round: TrainingRound | None = None
        self._shown: dict[str, SiteState] = {}
        self._said: dict[str, SiteState] = {}
        self._latest: Progress | None = None
        self._slow = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def note(self, text: str) -> None:
        """A line that stays, and is more than progress."""
        note(text) if self._bar is None else self._bar.line(text)

    def begin(self, each: TrainingRound) -> None:
        """The next round; what the last one said of its sites is remembered."""
        self._stop()
        with self._lock:
            if self._latest is not None:
                self._remember(self._latest)
            self._round, self._shown, self._latest, self._slow = each, {}, None, False
            if self._bar is not None:
                self._bar.show(_title(each), done=each.number - 1, total=each.rounds)
            elif not self._quiet:
                note(_title(each))
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
        self._stop()
        if self._bar is not None:
            self._bar.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _grow_slow(self) -> None:
        with self._lock:
            self._slow = True
            if self._latest is not None:
                self._tell(self._latest)

    def _tell(self, progress: Progress) -> None:
        states = (*_TOLD, SiteState.OPEN) if self._slow and self._bar is None else _TOLD
        told = tuple(
            (site, state) for site, state in progress.sites if state in states and self._said.get(site) is not state
        )
        if self._bar is not None and self._round is not None:
            each = self._round
            text = f"{_title(each)}; {waiting_text(progress)}" if self._slow else _title(each)
            self._bar.show(text, done=each.number - 1, total=each.rounds)
        if not self._quiet:
            line = note if self._bar is None else self._bar.line
            self._shown = tell_changes(Progress(progress.seen, told), self._shown, line)

    def _remember(self, progress: Progress) -> None:
        for site, state in progress.sites:
            if state in _TOLD:
                self._said[site] = state
            elif state is SiteState.RELEASED:
                self._said.pop(site, None)


def _title(each: TrainingRound) -> str:
    return f"round {each.number} of {each.rounds}: {each.title} (ε = {each.remaining.epsilon:.4g} is left)"
