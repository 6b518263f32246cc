"""The seam between the analyst and a coordinator: over gRPC in production, direct in a simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wardround.analyst.showing.foreseen import foreseen_lines
from wardround.federation.errors import DeadlinePassed, TooFewSites
from wardround.federation.plan.required import fewer_are_kept
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study
from wardround.federation.trust.public_limits import PublicSite


class AnalystLink(Protocol):
    """What an analyst can say to a coordinator. Every call may be repeated; errors are `FederationError`s."""

    def ask(self, request: AskRequest) -> str:
        """Open a round for the question and return its plan id at once."""

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or the progress once it differs from `seen`; raises the round's error."""

    def preview(self, request: AskRequest) -> Preview:
        """What the question would cost; nothing is spent."""

    def sites(self) -> tuple[str, ...]:
        """The sites that would be asked now."""

    def hospitals(self) -> tuple[PublicSite, ...]:
        """The hospitals of the study, by name, with what they say in public."""

    def budget(self) -> BudgetReport: ...

    def study(self) -> Study: ...

    def close(self) -> None: ...


POLL_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class RoundNotice:
    """One round of a question, for whoever waits: which of how many, and what it asks."""

    number: int
    rounds: int
    title: str


class Waiting:
    """A link, and how long and how visibly to wait on it."""

    def __init__(
        self,
        link: AnalystLink,
        clock: Callable[[], float],
        *,
        limit_seconds: float | None,
        on_progress: Callable[[Progress], None] | None,
        on_round: Callable[[RoundNotice], None] | None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self.link = link
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._ends = math.inf if limit_seconds is None else clock() + limit_seconds
        self._on_progress = on_progress
        self._on_round = on_round
        self._on_note = on_note
        self._noted: set[str] = set()

    def tell(self, titles: Sequence[str], number: int) -> None:
        """Say which of the rounds begins, when there are several."""
        if self._on_round is not None and len(titles) > 1:
            self._on_round(RoundNotice(number + 1, len(titles), titles[number]))

    def answer(self, request: AskRequest) -> Answer:
        """Ask, and wait for the answer."""
        if self._on_note is not None:
            self._tell_foreseen(self.link.preview(request), self._on_note)
        plan_id = self.link.ask(request)
        seen = 0
        while (left := self._ends - self._clock()) > 0:
            match self.link.watch(plan_id, seen=seen, wait_seconds=min(POLL_SECONDS, left)):
                case Answer() as answer:
                    _check_required(answer, request.require)
                    return answer
                case Progress() as progress:
                    if self._on_progress is not None and progress.seen != seen:
                        self._on_progress(progress)
                    seen = progress.seen
        raise DeadlinePassed(
            f"No answer within {self._limit_seconds:g} s; the question runs on, and asking it again costs nothing more."
        )

    def _tell_foreseen(self, preview: Preview, tell: Callable[[str], None]) -> None:
        """What hospitals will do other than answer at once; of several rounds each line once."""
        for line in foreseen_lines(preview):
            if line not in self._noted:
                self._noted.add(line)
                tell(line)


def _check_required(answer: Answer, require: int) -> None:
    """Looked at here, too: somebody who requires less may have asked the same meanwhile."""
    there = len(answer.answered)
    asked = there + len(answer.refused) + len(answer.missing) + len(answer.left_out)
    if there < min(require, asked):
        raise TooFewSites(fewer_are_kept(there, asked))
