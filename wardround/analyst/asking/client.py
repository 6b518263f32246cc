"""The analyst's client: asks, waits, and returns estimates.

A mistake in a question is found here, against the study, before anything leaves the analyst's machine. A
question that was asked and not yet answered is never lost: asking it again continues it, at no new charge.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wardround.analyst.asking.ask import Terms, previewed, result_of, run
from wardround.analyst.asking.binding import settled
from wardround.analyst.asking.builder import Draft
from wardround.analyst.asking.multi_round import MultiRoundQuestion, course_of
from wardround.analyst.asking.wanted_errors import WantedError, errors_of
from wardround.analyst.link.link import AnalystLink, RoundNotice, Waiting
from wardround.analyst.link.signing import SignedLink, Signer, own_identity, with_purpose
from wardround.analyst.showing.budget import BudgetResult
from wardround.analyst.showing.description import Description
from wardround.analyst.showing.foreseen import foreseen_lines
from wardround.analyst.showing.result import PreviewResult, Result
from wardround.analyst.tables.presentation import BoundQuestion
from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.required import required
from wardround.federation.question.answer import Progress
from wardround.federation.question.query import Query
from wardround.federation.study.study import Study

if TYPE_CHECKING:
    from wardround.analyst.learning.driver import Beginning, TrainingRound
    from wardround.analyst.learning.request import TrainingRequest
    from wardround.analyst.learning.trained_model import TrainingPreview, TrainingResult

    Request = TrainingRequest | str | os.PathLike[str]

Question = str | Query | Draft


class Client:
    """One analyst's conversation with one study's coordinator, over any link.

    Every question carries the signature of `signer`; without one nobody signs, and at each site a person has to decide.
    """

    def __init__(
        self, link: AnalystLink, *, signer: Signer | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._link = link if signer is None else SignedLink(link, signer, lambda: self.study.study_hash)
        self._clock = clock
        self._study: Study | None = None

    @property
    def link(self) -> AnalystLink:
        """What it speaks over, for whoever drives rounds of their own."""
        return self._link

    @property
    def study(self) -> Study:
        """The agreement: tables, columns, bounds and budget. Read once; it never changes under a study."""
        if self._study is None:
            self._study = self._link.study()
        return self._study

    def ask(  # noqa: PLR0913 -- everything but the question is said by name, and rarely
        self,
        question: Question,
        *,
        error: WantedError | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        fresh: bool = False,
        nonce: str = "",
        search: bool = False,
        purpose: str = "",
        require: int | str | None = None,
        limit_seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_round: Callable[[RoundNotice], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Result:
        """The answer, when enough sites have given theirs.

        The same question again returns the stored answer and costs nothing, unless it is `fresh`; a fresh one that was
        interrupted goes on with its `nonce`. With `search` a single quantile is found in ten rounds. Where a question
        takes several rounds, `epsilon` is for all of them. `on_note` is told, before anything is asked, which hospitals
        will refuse it or let a person decide; all of them are asked none the less. With
        `error`, a half-width at 95 %, ε is the least that gives it, and at most `epsilon`; of several aggregates each
        needs its own, in order or by name. The `purpose`, why you ask, is signed with the question and shown to the
        hospitals' stewards; it is no part of the question. With `require`, a number of hospitals or "all", the question
        is not begun before so many are there, and no answer of fewer is kept.

        Raises:
            AwaitingApproval: a site's steward has yet to decide; ask again later.
            BudgetExceeded: not all rounds fit into what remains; nothing was charged.
            DeadlinePassed: `limit_seconds` are over; the question runs on, and asking again continues it.
            SitesAway: too few hospitals are there, or have answered; asking again costs nothing more.
            TooFewSites: too few hospitals would answer, by their public limits: nothing was charged; or did.
        """
        course = self._course(question, epsilon, delta, search=search)
        waiting = self._waiting(limit_seconds, on_progress, on_round, on_note, purpose=purpose)
        errors = errors_of(error, course)
        terms = dataclasses.replace(
            _terms(epsilon, delta, nonce=fresh_nonce() if fresh else nonce, errors=errors), require=required(require)
        )
        return result_of(course, run(course, terms, waiting, self.study), self.study)

    def preview(
        self,
        question: Question,
        *,
        error: WantedError | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        nonce: str = "",
        search: bool = False,
    ) -> PreviewResult:
        """What the question would cost and how good its answer would be; nothing is spent.

        With `error` also what half of it would cost, and twice.
        """
        course = self._course(question, epsilon, delta, search=search)
        terms = _terms(epsilon, delta, nonce=nonce, errors=errors_of(error, course))
        return previewed(course, terms, self._link, self.study)

    def train(  # noqa: PLR0913 -- as above
        self,
        request: Request,
        *,
        fresh: bool = False,
        nonce: str = "",
        out: str | os.PathLike[str] | None = None,
        under: str | os.PathLike[str] | None = None,
        purpose: str = "",
        limit_seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_round: Callable[[TrainingRound], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> TrainingResult:
        """The model that a request describes, round by round, from wherever its training stands.

        The same request again replays the stored rounds and costs nothing, unless it is `fresh`; a fresh one that was
        interrupted goes on with its `nonce`. The model is kept in the folder `out`, or in one of its own `under` a
        folder, and nowhere when neither is given. A `purpose` stands in place of the request's own.

        Raises:
            AwaitingApproval: a site's steward has yet to decide; ask again later.
            BudgetExceeded: the whole training does not fit into what remains; nothing was charged.
            DeadlinePassed: `limit_seconds` are over; the same request goes on from there.
            TooFewSites: a round has too few answers; what was done before it is kept.
        """
        from wardround.analyst.learning.driver import drive  # noqa: PLC0415 - only for whoever trains
        from wardround.analyst.learning.model_store import check_folder  # noqa: PLC0415
        from wardround.analyst.learning.request import TrainingRequest, read_request  # noqa: PLC0415
        from wardround.analyst.learning.trained_model import TrainingResult  # noqa: PLC0415

        wanted = request if isinstance(request, TrainingRequest) else read_request(Path(request))
        waiting = self._waiting(limit_seconds, on_progress, purpose=purpose or wanted.purpose)
        beginning = self._beginning(wanted, nonce=fresh_nonce() if fresh else nonce.lower())
        if on_note is not None:
            for line in foreseen_lines(beginning.preview):
                on_note(line)
        folder = Path(out) if out is not None else None if under is None else Path(under) / beginning.block
        if folder is not None:
            check_folder(folder, model_id=beginning.block)
        result = TrainingResult(drive(beginning, self.study, waiting, on_round=on_round), self.study)
        return result if folder is None else result.save(folder)

    def preview_training(self, request: Request, *, nonce: str = "") -> TrainingPreview:
        """What a training would cost, its stages and their noise; nothing is spent."""
        from wardround.analyst.learning.trained_model import TrainingPreview  # noqa: PLC0415

        return TrainingPreview(self._beginning(request, nonce=nonce.lower()), self.study)

    def describe(self) -> Description:
        """What can be asked and of whom: tables, columns, hospitals with their limits, and what is left."""
        return Description(self.study, self._link.hospitals(), self._link.budget())

    def budget(self) -> BudgetResult:
        """What the study has spent, what is left, and what it means for one patient."""
        return BudgetResult(self._link.budget(), self.study)

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _waiting(
        self,
        limit_seconds: float | None,
        on_progress: Callable[[Progress], None] | None,
        on_round: Callable[[RoundNotice], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        *,
        purpose: str = "",
    ) -> Waiting:
        if limit_seconds is not None and not limit_seconds > 0:
            raise QueryMistaken(f"limit_seconds must be above 0, not {limit_seconds!r}.")
        return Waiting(
            with_purpose(self._link, purpose),
            self._clock,
            limit_seconds=limit_seconds,
            on_progress=on_progress,
            on_round=on_round,
            on_note=on_note,
        )

    def _beginning(self, request: Request, *, nonce: str) -> Beginning:
        from wardround.analyst.asking.named_strategy import combine_named, require_combinable  # noqa: PLC0415
        from wardround.analyst.learning.driver import prepared  # noqa: PLC0415
        from wardround.analyst.learning.planner import outline  # noqa: PLC0415
        from wardround.analyst.learning.request import TrainingRequest, own_nonce, read_request  # noqa: PLC0415

        wanted = request if isinstance(request, TrainingRequest) else read_request(Path(request))
        combine = combine_named(wanted.strategy)
        sites = self._link.sites()
        exact = outline(wanted, self.study, sites=sites)
        require_combinable(wanted.strategy, sites=sites, weights=len(wanted.features) + 1)
        return prepared(exact, self.study, self._link, nonce=nonce or own_nonce(wanted.strategy), combine=combine)

    def _course(
        self, question: Question, epsilon: float | None, delta: float | None, *, search: bool
    ) -> MultiRoundQuestion:
        if epsilon is not None and not (_is_number(epsilon) and epsilon > 0):
            raise QueryMistaken(f"ε must be a finite number above 0, not {epsilon!r}.")
        if delta is not None and not (_is_number(delta) and 0 <= delta < 1):
            raise QueryMistaken(f"δ must be a number from 0 to below 1, not {delta!r}.")
        asked = settled(_asked(question, self.study), self.study)
        course = course_of(asked, self.study, by_search=search)
        if (fault := fault_in(asked)) is not None:
            raise QueryMistaken(f"a text in the question {fault}.")
        return course


def _terms(epsilon: float | None, delta: float | None, *, nonce: str, errors: tuple[float, ...]) -> Terms:
    loss = None if epsilon is None else float(epsilon)
    return Terms(loss, None if delta is None else float(delta), nonce.lower(), errors)


def fresh_nonce() -> str:
    """What tells a fresh question or training from the same one before it."""
    return secrets.token_hex(16)


def connect(profile: str | os.PathLike[str]) -> Client:
    """A client for the coordinator that an analyst's profile names.

    It signs by the key beside the profile, which is made with the first question.
    """
    # The wire is loaded only here: the simulation uses a client without it.
    from wardround.analyst.link.grpc_link import GrpcAnalystLink, open_profile  # noqa: PLC0415

    path = Path(profile)
    own = open_profile(path, now=datetime.datetime.now(datetime.UTC))
    return Client(GrpcAnalystLink(own), signer=Signer(own.name, lambda: own_identity(path)))


def _asked(question: Question, study: Study) -> BoundQuestion:
    match question:
        case Query():
            return BoundQuestion(question)
        case Draft(query, view):
            return BoundQuestion(query, view)
        case str():
            try:
                from wardround.analyst.sql.read import read  # noqa: PLC0415 - an extra, loaded only for text
            except ImportError:
                raise ConfigurationMistaken(
                    "sqlglot is not installed; install it with pip install 'wardround[analyst]'."
                ) from None
            return read(question, study)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
