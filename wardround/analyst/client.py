"""The analyst's client: asks, waits, and returns estimates.

A mistake in a question is found here, against the study, before anything leaves the analyst's machine. A
question that was asked and not yet answered is never lost: asking it again continues it, at no new charge.
"""

from __future__ import annotations

import datetime
import math
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from wardround.analyst.budget import BudgetResult
from wardround.analyst.builder import Draft
from wardround.analyst.link import AnalystLink
from wardround.analyst.result import PreviewResult, Result
from wardround.federation.answer import Answer, AskRequest, Progress
from wardround.federation.errors import ConfigurationMistaken, DeadlinePassed, QueryMistaken
from wardround.federation.query import Query
from wardround.federation.study import Study
from wardround.federation.typing_rules import typed

Question = str | Query | Draft

POLL_SECONDS = 20.0


class Client:
    """One analyst's conversation with one study's coordinator, over any link."""

    def __init__(self, link: AnalystLink, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._study: Study | None = None

    @property
    def study(self) -> Study:
        """The agreement: tables, columns, bounds and budget. Read once; it never changes under a study."""
        if self._study is None:
            self._study = self._link.study()
        return self._study

    def ask(
        self,
        question: Question,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        fresh: bool = False,
        limit_seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """The answer, when enough sites have given theirs.

        The same question again returns the stored answer and costs nothing, unless it is `fresh`.

        Raises:
            AwaitingApproval: a site's steward has yet to decide; ask again later.
            DeadlinePassed: `limit_seconds` are over; the question runs on, and asking again continues it.
        """
        request = self._request(question, epsilon, delta, nonce=secrets.token_hex(16) if fresh else "")
        if limit_seconds is not None and not limit_seconds > 0:
            raise QueryMistaken(f"limit_seconds must be above 0, not {limit_seconds!r}.")
        ends = math.inf if limit_seconds is None else self._clock() + limit_seconds
        plan_id = self._link.ask(request)
        seen = 0
        while (left := ends - self._clock()) > 0:
            match self._link.watch(plan_id, seen=seen, wait_seconds=min(POLL_SECONDS, left)):
                case Answer() as answer:
                    return Result(answer)
                case Progress() as progress:
                    if on_progress is not None and progress.seen != seen:
                        on_progress(progress)
                    seen = progress.seen
        raise DeadlinePassed(
            f"No answer within {limit_seconds:g} s; the question runs on, and asking it again costs nothing more."
        )

    def preview(self, question: Question, *, epsilon: float | None = None, delta: float | None = None) -> PreviewResult:
        """What the question would cost and how good its answer would be; nothing is spent."""
        return PreviewResult(self._link.preview(self._request(question, epsilon, delta, nonce="")))

    def budget(self) -> BudgetResult:
        """What the study has spent, what is left, and what it means for one patient."""
        return BudgetResult(self._link.budget(), self.study)

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, question: Question, epsilon: float | None, delta: float | None, *, nonce: str) -> AskRequest:
        if epsilon is not None and not (_is_number(epsilon) and epsilon > 0):
            raise QueryMistaken(f"ε must be a finite number above 0, not {epsilon!r}.")
        if delta is not None and not (_is_number(delta) and 0 <= delta < 1):
            raise QueryMistaken(f"δ must be a number from 0 to below 1, not {delta!r}.")
        return AskRequest(
            query=typed(_query(question), self.study),
            epsilon=None if epsilon is None else float(epsilon),
            delta=None if delta is None else float(delta),
            nonce=nonce,
        )


def connect(profile: str | os.PathLike[str]) -> Client:
    """A client for the coordinator that an analyst's profile names."""
    # The wire is loaded only here: the simulation uses a client without it.
    from wardround.analyst.grpc_link import GrpcAnalystLink  # noqa: PLC0415
    from wardround.analyst.profile import open_profile  # noqa: PLC0415

    return Client(GrpcAnalystLink(open_profile(Path(profile), now=datetime.datetime.now(datetime.UTC))))


def _query(question: Question) -> Query:
    match question:
        case Query():
            return question
        case Draft(query):
            return query
        case str():
            try:
                from wardround.analyst.sql import parse  # noqa: PLC0415 - an extra, loaded only for text
            except ImportError:
                raise ConfigurationMistaken(
                    "sqlglot is not installed; install it with pip install 'wardround[analyst]'."
                ) from None
            return parse(question)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
