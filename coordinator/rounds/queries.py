"""Questions from analysts: asked, watched, previewed; a question that was answered before is found first.

Asking reserves and opens before it returns, so a plan id that an analyst holds is a plan that is paid for.
Everything an analyst hears comes from the ledger.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Mapping

from coordinator.accounts.accounting import Accounting, Balances, question_of
from coordinator.accounts.budget_report import Reporting
from coordinator.clock import Patience
from coordinator.combining import NoiseSetting
from coordinator.combining.training_sums import updates
from coordinator.members.roster import Roster
from coordinator.rounds.dispatch import Dispatch, round_key
from coordinator.rounds.expected_error import expected_errors
from coordinator.rounds.planning import Sharpness, loss_of, plans_for, sharpness, step_plan, step_sharpness
from coordinator.rounds.round import Round, Rounds, ended_without_answer
from coordinator.rounds.stored_answers import StoredAnswer, decode_answer
from coordinator.store.ledger import Ledger
from coordinator.store.members import Standing
from coordinator.store.rounds import Question
from wardround.federation.errors import BudgetExceeded, InvariantBroken, PeerUnreachable, TooFewSites
from wardround.federation.forms.release import decode_release
from wardround.federation.models.step_layout import step_form
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import (
    Answer,
    AskRequest,
    BudgetReport,
    Excess,
    Loss,
    Preview,
    PrivacyStatement,
    Progress,
)
from wardround.federation.study.study import Study

_REMEMBERED = 10_000


class Queries:
    """What analysts may do."""

    def __init__(
        self,
        ledger: Ledger,
        patience: Patience,
        accounting: Accounting,
        dispatch: Dispatch,
        line: Round,
        rounds: Rounds,
        *,
        setting: NoiseSetting,
    ) -> None:
        self._ledger = ledger
        self._patience = patience
        self._accounting = accounting
        self._dispatch = dispatch
        self._line = line
        self._rounds = rounds
        self._setting = setting
        self._roster = Roster(ledger)
        self._reporting = Reporting(ledger)
        self._replays = _Replays()

    def ask(self, analyst: str, request: AskRequest) -> str:
        """The plan id of the question: stored, or charged and opened durably, with its round on the way."""
        self._roster.admit_analyst(analyst)
        questions = self._questions(analyst, request)
        known = self._known(questions)
        if known is not None and self._answered(known):
            self._replays.note(analyst, known.plan.plan_id, replayed=True)
            return known.plan.plan_id
        question = self._begin(questions if known is None else (known,))
        self._replays.note(analyst, question.plan.plan_id, replayed=False)
        self._rounds.start(question)
        return question.plan.plan_id

    def watch(self, analyst: str, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or the sites' states once they differ from `seen`, or after the wait."""
        self._roster.admit_analyst(analyst)
        question = question_of(self._ledger, plan_id)
        self._rounds.drive(plan_id)
        until = self._patience.now() + wait_seconds
        while True:
            changes = self._patience.changes(round_key(plan_id))
            # Read before the ledger: a round that has ended by now has its answer there by then.
            running = self._rounds.running(plan_id)
            if (answer := self._answer(analyst, question)) is not None:
                return answer
            if self._patience.ended:
                raise PeerUnreachable("The coordinator is stopping; ask again.")
            if not running:
                self._raise_outcome(plan_id)
            left = until - self._patience.now()
            if changes != seen or left <= 0:
                return Progress(changes, self._dispatch.told(question.plan))
            self._patience.wait(round_key(plan_id), seen=changes, seconds=left)

    def preview(self, analyst: str, request: AskRequest) -> Preview:
        """The plan that would be tried first among those that fit, with its price and its errors."""
        self._roster.admit_analyst(analyst)
        participants = self._participants()
        questions = self._questions(analyst, request)
        known = self._known(questions)
        question, excess = (known, None) if known is not None else self._tried(questions)
        plan, study = question.plan, self._ledger.study
        overlap = study.overlap_among(plan.participants)
        return Preview(
            plan_id=plan.plan_id,
            unit=study.unit.value,
            replayed=known is not None and self._answered(known),
            sites=plan.participants,
            expected=() if isinstance(plan.query, Step) else expected_errors(plan, study, participants, self._setting),
            privacy=_statement(
                self._accounting.balances(),
                mechanism=plan.mechanism.value,
                cost=loss_of(self._accounting.charged(plan), overlap=overlap, delta=question.delta),
                overlap=overlap,
                composition=self._setting.composition(overlap=overlap),
                delta=question.delta,
            ),
            excess=excess,
        )

    def budget(self, analyst: str) -> BudgetReport:
        """The study's budget at this moment."""
        self._roster.admit_analyst(analyst)
        return self._reporting.report()

    def _questions(self, analyst: str, request: AskRequest) -> tuple[Question, ...]:
        if isinstance(request.query, Step):
            return (self._step(analyst, request, request.query),)
        participants = self._participants()
        study = self._ledger.study
        self._require_enough(participants)
        sharp = sharpness(request, study, participants)
        self._require_within_cap(sharp)
        plans = plans_for(request, study, participants)
        return tuple(Question(plan, analyst, sharp.epsilon, sharp.delta) for plan in plans)

    def _step(self, analyst: str, request: AskRequest, step: Step) -> Question:
        """A round of a training, asked of those who began it: one more hospital must not make it another training."""
        study = self._ledger.study
        step_form(step, study)
        began = frozenset(
            self._ledger.trainings.participants(step, study_hash=study.study_hash, nonce=request.nonce.lower())
        )
        if not began:
            participants = self._participants()
            self._require_enough(participants)
        else:
            participants = {site.name: site.patients for site in self._roster.sites() if site.name in began}
        plan = step_plan(request, step, study, tuple(sorted(participants)))
        sharp = step_sharpness(plan, study, participants)
        if not began:
            self._require_within_cap(sharp)
        return Question(plan, analyst, sharp.epsilon, sharp.delta)

    def _require_enough(self, participants: Mapping[str, int]) -> None:
        needed = self._ledger.study.min_sites
        if len(participants) < needed:
            raise TooFewSites(
                f"{len(participants)} sites can be asked and the study needs {needed}; nothing was charged."
            )

    def _require_within_cap(self, sharp: Sharpness) -> None:
        if sharp.epsilon > self._ledger.study.cap.epsilon:
            left = self._accounting.balances().remaining(delta=sharp.delta)
            raise BudgetExceeded(asked=sharp.epsilon, remaining=left.epsilon)

    def _participants(self) -> dict[str, int]:
        return {site.name: site.patients for site in self._roster.sites() if site.state is Standing.ACTIVE}

    def _known(self, questions: tuple[Question, ...]) -> Question | None:
        """The form in which the question was asked before: answered if possible, else on its way."""
        with self._ledger.one_moment():
            looked_up = (self._ledger.rounds.question(question.plan.plan_id) for question in questions)
            asked = [found for found in looked_up if found is not None]
            answered = [found for found in asked if self._answered(found)]
        return next(iter(answered or asked), None)

    def _tried(self, questions: tuple[Question, ...]) -> tuple[Question, Excess | None]:
        """The first of the questions that the budget would admit; else the best, and what the last is refused with."""
        excess = None
        for question in questions:
            if (excess := self._accounting.excess(question)) is None:
                return question, None
        return questions[0], excess

    def _begin(self, questions: tuple[Question, ...]) -> Question:
        """The first of the questions that the budget admits, reserved and opened."""
        for question in questions[:-1]:
            try:
                self._line.begin(question)
            except BudgetExceeded:
                continue
            return question
        self._line.begin(questions[-1])
        return questions[-1]

    def _answered(self, question: Question) -> bool:
        return self._ledger.answers.exists(question.plan.plan_id)

    def _answer(self, analyst: str, question: Question) -> Answer | None:
        plan_id = question.plan.plan_id
        with self._ledger.one_moment():
            text = self._ledger.answers.text(plan_id)
            if text is None:
                return None
            now = self._accounting.balances()
            payloads = self._ledger.submissions.releases(plan_id) if isinstance(question.plan.query, Step) else {}
        replayed = self._replays.replayed(analyst, plan_id, otherwise=analyst != question.analyst)
        stored = decode_answer(text)
        told = _told(question.plan, stored, now, self._ledger.study, delta=question.delta, replayed=replayed)
        if not isinstance(question.plan.query, Step):
            return told
        # Not stored a second time: what the sites released is the answer.
        releases = [decode_release(payloads[site]) for site in stored.outcome.answered]
        return dataclasses.replace(told, updates=updates(releases, by_site=question.plan.query.training.by_site))

    def _raise_outcome(self, plan_id: str) -> None:
        """Raise what the round ended with; return when its answer came in the meantime."""
        error = self._rounds.outcome(plan_id) or ended_without_answer(self._ledger, plan_id)
        if error is not None:
            raise error.with_traceback(None)


class _Replays:
    """Whether the stored answer was there when an analyst asked; only for show, so only in memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def note(self, analyst: str, plan_id: str, *, replayed: bool) -> None:
        with self._guard:
            self._asked[analyst, plan_id] = replayed
            self._asked.move_to_end((analyst, plan_id))
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)

    def replayed(self, analyst: str, plan_id: str, *, otherwise: bool) -> bool:
        with self._guard:
            return self._asked.get((analyst, plan_id), otherwise)


def _told(plan: Plan, stored: StoredAnswer, now: Balances, study: Study, *, delta: float, replayed: bool) -> Answer:
    if stored.mechanism != plan.mechanism.value:
        raise InvariantBroken(private="a stored answer was made by another plan")
    return Answer(
        plan_id=plan.plan_id,
        unit=study.unit.value,
        replayed=replayed,
        noiseless=stored.noiseless,
        answered=stored.outcome.answered,
        refused=stored.outcome.refused,
        missing=stored.outcome.missing,
        estimates=stored.estimates,
        privacy=_statement(
            now,
            mechanism=stored.mechanism,
            cost=stored.charged,
            overlap=stored.overlap,
            composition=stored.composition,
            delta=delta,
        ),
        left_out=stored.left_out,
    )


def _statement(
    now: Balances, *, mechanism: str, cost: Loss, overlap: int, composition: str, delta: float
) -> PrivacyStatement:
    return PrivacyStatement(
        mechanism=mechanism,
        charged=cost,
        spent=now.spent(),
        remaining=now.remaining(delta=delta),
        overlap=overlap,
        composition=composition,
    )
