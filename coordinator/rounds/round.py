"""One plan asked once of its participants: four keyed, repeatable steps.

Recovery after a crash is to call `run_round` again. Each step finds what it did before and goes on from
there; there is no other code for a restart.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from coordinator.accounts.accounting import Accounting, PlannedQuestion, question_of
from coordinator.clock import Clock
from coordinator.rounds.collection import Collection
from coordinator.rounds.combining import combine_releases, impossible
from coordinator.rounds.dispatch import Dispatch, round_key
from coordinator.rounds.planning import loss_of, planned_again
from coordinator.rounds.stored_answers import StoredAnswer, encode_answer
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome, Question
from wardround.federation.errors import FederationError, PeerUnreachable, Refused, TooFewSites, Unavailable
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import decode_release
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Estimate
from wardround.federation.refusal import refusal_texts
from wardround.federation.study.study import Study

MOST_THREADS = 1024

log = logging.getLogger("wardround.coordinator")


@dataclass(frozen=True, slots=True)
class Round:
    """The straight line of one plan."""

    _ledger: Ledger
    _accounting: Accounting
    _dispatch: Dispatch
    _collection: Collection
    _setting: NoiseSetting

    def begin(self, asked: PlannedQuestion) -> None:
        """The two steps that are durable before an analyst hears of the plan."""
        self._accounting.reserve(asked)
        self._collection.expect(asked.planned.charge)
        self._dispatch.open(asked.plan)

    def take_up(self, question: Question) -> None:
        """Run the round of a question that the ledger gave back."""
        self.run_round(planned_again(question, self._ledger.study))

    def run_round(self, asked: PlannedQuestion) -> None:
        """Reserve, open, gather, settle; then combine what was released into the answer that stays.

        The answer to a step holds no more than who answered: its sums are the releases themselves.
        """
        plan, form, study = asked.plan, asked.planned.layout, self._ledger.study
        self.begin(asked)
        try:
            self._collection.gather(plan)
        finally:
            self._collection.expect_no_more(plan)
        outcome = self._accounting.settle(plan)
        refuse_too_few(outcome, study)
        estimates, left_out = ((), ()) if isinstance(form, StepLayout) else self._estimates(plan, form, outcome)
        overlap = study.overlap_among(plan.participants)
        answer = StoredAnswer(
            outcome=outcome.without(left_out),
            estimates=estimates,
            mechanism=plan.mechanism.value,
            charged=loss_of(self._accounting.charged(asked.planned), overlap=overlap, delta=asked.question.delta),
            overlap=overlap,
            composition=self._setting.composition(overlap=overlap),
            noiseless=self._setting.noiseless,
            left_out=left_out,
        )
        self._ledger.answers.keep(plan.plan_id, encode_answer(answer))
        self._dispatch.forget(plan)

    def _estimates(
        self, plan: Plan, form: AnswerLayout, outcome: Outcome
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """The estimates, and the sites that are in none of them because no table gives what they sent."""
        study = self._ledger.study
        stored = self._ledger.submissions.releases(plan.plan_id)
        releases = [decode_release(stored[site]) for site in outcome.answered]
        left_out = impossible(plan, form, releases)
        if left_out:
            log.warning("round %s leaves out %s: impossible totals", plan.plan_id[:12], ", ".join(left_out))
        refuse_too_few(outcome.without(left_out), study, left_out)
        kept = [release for release in releases if release.site not in left_out]
        declared = {site.name: site.patients for site in self._ledger.members.sites()}
        return combine_releases(plan, form, kept, setting=self._setting, patients=declared), left_out


class Rounds(Protocol):
    """Who runs rounds: threads of their own, or whoever waits for the answer."""

    def start(self, plan_id: str, run: Callable[[], None]) -> None:
        """Have the round of this plan run, unless it runs already."""

    def unless_answered(self, plan_id: str, then: Callable[[], None]) -> bool:
        """Have `then` called if the round that runs now ends without an answer; False where none runs."""

    def drive(self, plan_id: str) -> None:
        """Give the round the caller's time, where it has no thread; raises what the round raises."""

    def state(self, plan_id: str) -> tuple[bool, BaseException | None]:
        """Whether the round runs, and if not what it last ended with, where that was no answer: at one moment."""

    def fault(self) -> BaseException | None:
        """The first outcome that no rule explains."""

    def close(self) -> None:
        """Return once no round runs."""


class ThreadedRounds:
    """One thread for each running round; what a round ends with is kept for whoever asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="round")
        self._rounds: dict[str, Future[None]] = {}
        self._then: dict[str, Callable[[], None]] = {}
        self._fault: BaseException | None = None

    def start(self, plan_id: str, run: Callable[[], None]) -> None:
        """Run the round in a thread, unless one does."""
        with self._guard:
            if self._clock.ended:
                raise PeerUnreachable("The coordinator is stopping; ask again.")
            if (found := self._rounds.get(plan_id)) is not None and not found.done():
                return
            future = self._pool.submit(run)
            self._rounds[plan_id] = future
        future.add_done_callback(lambda done: self._note(plan_id, done))

    def unless_answered(self, plan_id: str, then: Callable[[], None]) -> bool:
        """Remember what to do when the thread has ended, once however often it is said; the last word counts."""
        with self._guard:
            found = self._rounds.get(plan_id)
            running = found is not None and not found.done()
            if running:
                self._then[plan_id] = then
            return running

    def drive(self, plan_id: str) -> None:
        """Nothing: the round has its own thread."""

    def state(self, plan_id: str) -> tuple[bool, BaseException | None]:
        """Whether a thread runs the round or will again, or what its thread ended with, if not with an answer."""
        with self._guard:
            found, goes_on = self._rounds.get(plan_id), plan_id in self._then
        if found is None:
            return False, None
        return (False, found.exception()) if found.done() and not goes_on else (True, None)

    def fault(self) -> BaseException | None:
        """The first outcome that no rule explains."""
        return self._fault

    def close(self) -> None:
        """Wait for the threads, which end because the clock has."""
        self._pool.shutdown(wait=True)

    def _note(self, plan_id: str, done: Future[None]) -> None:
        error = done.exception()
        with self._guard:
            then = self._then.get(plan_id)
            if error is None and self._rounds.get(plan_id) is done:
                del self._rounds[plan_id]
        if error is not None:
            explained = isinstance(error, Refused | Unavailable)
            log.log(
                logging.INFO if explained else logging.ERROR, "round %s ended: %s", plan_id[:12], type(error).__name__
            )
            if self._fault is None and not explained:
                self._fault = error
            if then is not None and explained:
                self._go_on(then)
        with self._guard:
            # Only now, so that nobody who looks meanwhile takes the round for ended.
            if then is not None and self._then.get(plan_id) is then:
                del self._then[plan_id]
        self._clock.announce(round_key(plan_id))

    def _go_on(self, then: Callable[[], None]) -> None:
        try:
            then()
        except FederationError as error:
            # A busy ledger is looked at again when somebody asks; a broken one stops the process.
            if self._fault is None and not isinstance(error, Refused | Unavailable):
                self._fault = error


def unfinished(ledger: Ledger, plan_id: str | None = None) -> list[Question]:
    """Every round (or the one named) that has neither an answer nor ended with too few sites, oldest first."""
    with ledger.one_moment():
        return [
            question_of(ledger, found)
            for found in ledger.rounds.unanswered(plan_id)
            if (outcome := ledger.rounds.standing(found).outcome) is None
            or len(outcome.answered) >= ledger.study.min_sites
        ]


def ended_without_answer(ledger: Ledger, plan_id: str) -> FederationError | None:
    """Why a round that is not running has no answer, as far as the ledger knows; None when it has one."""
    with ledger.one_moment():
        if ledger.answers.exists(plan_id):
            return None
        outcome = ledger.rounds.standing(plan_id).outcome
    if outcome is not None and len(outcome.answered) < ledger.study.min_sites:
        return too_few(outcome, ledger.study)
    return Unavailable("The round is not running now; ask again.")


def refuse_too_few(outcome: Outcome, study: Study, left_out: tuple[str, ...] = ()) -> None:
    """`TooFewSites` unless enough sites answered, those that are left out apart."""
    if len(outcome.answered) < study.min_sites:
        raise too_few(outcome, study, left_out)


def too_few(outcome: Outcome, study: Study, left_out: tuple[str, ...] = ()) -> TooFewSites:
    """The refusal, with who is missing, who refused and who is left out."""
    asked = len(outcome.answered) + len(outcome.refused) + len(outcome.missing) + len(left_out)
    text = f"{len(outcome.answered)} of {asked} sites answered and the study needs {study.min_sites}"
    if outcome.missing:
        text += f"; missing: {', '.join(outcome.missing)}"
    if outcome.refused:
        text += f"; refused: {', '.join(refusal_texts(outcome.refused))}"
    if left_out:
        text += f"; left out: {', '.join(left_out)} (sent totals that no table can give)"
        return TooFewSites(
            f"{text}. What a site has sent cannot be replaced: once the hospital has fixed it, ask again with --fresh."
        )
    # A refusal is signed and stays; a site that is only missing may still answer the same plan.
    if study.min_sites > len(outcome.answered) + len(outcome.missing):
        text += ". A refusal is final for this question: once the hospitals have changed their policy, ask it again"
        return TooFewSites(f"{text} (--fresh).")
    return TooFewSites(f"{text}. Asking again costs nothing more.")
