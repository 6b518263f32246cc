"""Which hospitals a question or a training waits for, round by round."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from wardround.cli.console import columns, note
from wardround.federation.plain_text import escaped, fitted
from wardround.federation.question.answer import Progress, SiteState

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


class ProgressLines:
    """Prints a site's line whenever its state changes; on a terminal the lines are redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, SiteState] = {}
        self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()

    def show(self, progress: Progress) -> None:
        changed = [(site, state) for site, state in progress.sites if self._shown.get(site) is not state]
        if not changed:
            return
        self._shown.update(progress.sites)
        terminal = columns(self._stream)
        if terminal is not None:
            if self._drawn:
                self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            changed = list(progress.sites)
            self._drawn = len(changed)
        width = max(len(site) for site, _ in progress.sites)
        for site, state in changed:
            line = f"  {escaped(site):<{width}}  {_WORDS[state]}"
            # A line that took two rows would be redrawn in the wrong place.
            self._stream.write((line if terminal is None else fitted(line, terminal)) + "\n")
        self._stream.flush()


class RoundLines:
    """The sites' lines of each round, under its title where there are several."""

    def __init__(self) -> None:
        self._lines = ProgressLines(sys.stderr)

    def begin(self, each: RoundNotice) -> None:
        note(f"round {each.number} of {each.rounds}: {each.title}")
        self._lines = ProgressLines(sys.stderr)

    def show(self, progress: Progress) -> None:
        self._lines.show(progress)


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
