"""The long updates somebody is reading on in, so that a page costs what it holds and not the whole answer.

One answer at a time, and only until its last page: an answer never changes, so the ledger can always give it again.
"""

from __future__ import annotations

import threading

from protos.pages import PAGE_BYTES
from protos.words import Watch
from wardround.federation.question.answer import Answer, Progress

# Whoever reads longer updates than these has each page made from the ledger anew.
KEPT_BYTES = 256 * PAGE_BYTES


class PagedAnswer:
    """The answer that is being read page by page, and by whom."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: dict[tuple[str, str], Answer] = {}

    def begun(self, analyst: str, watch: Watch) -> Answer | None:
        """The answer whose first page this analyst has read, if it is the one that is kept."""
        with self._guard:
            return self._kept.get((analyst, watch.plan_id)) if watch.first_update_byte > 0 else None

    def note(self, analyst: str, watch: Watch, outcome: Progress | Answer) -> None:
        """Keep an answer that has further pages, instead of any other, and let go of it with the last."""
        if not isinstance(outcome, Answer):
            return
        size = sum(len(update.total) for update in outcome.updates)
        with self._guard:
            if watch.first_update_byte + PAGE_BYTES < size <= KEPT_BYTES:
                self._kept = {(analyst, watch.plan_id): outcome}
            else:
                self._kept.pop((analyst, watch.plan_id), None)
