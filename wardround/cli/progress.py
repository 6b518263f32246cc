"""One line per site while a question is on its way."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from wardround.cli.console import columns
from wardround.federation.plain_text import escaped, fitted
from wardround.federation.question.answer import Progress, SiteState

_WORDS = {
    SiteState.OPEN: "waiting for the site",
    SiteState.CLAIMED: "waiting for the site",
    SiteState.PENDING: "waiting for a data steward",
    SiteState.RELEASED: "answered",
    SiteState.REFUSED: "refused",
    SiteState.FAILED: "waiting for the site",
    SiteState.MISSING: "missing",
}


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
        """Show the state of every site that changed."""
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
