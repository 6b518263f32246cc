"""The coordinator as its services and the simulation call it: a few verbs for analysts and sites, and no wire.

Callers are named by whoever checked their certificate; every verb looks the name up on the roster again. Asking
reserves and opens before it returns, so a plan id that an analyst holds is a plan that is paid for. Everything an
analyst hears comes from the ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coordinator.accounts.accounting import Accounting, PlannedQuestion, question_of
from coordinator.accounts.budget_report import Reporting
from coordinator.clock import Clock, RealClock
from coordinator.members.older_copy import refuse_if_older
from coordinator.members.own_signature import require_own
from coordinator.members.presence import Presence
from coordinator.members.roster import Roster
from coordinator.planning.by_error import FACTORS, ByError, split_by_cost
from coordinator.planning.expected import expected_errors
from coordinator.planning.foreseeing import answerable, error_cost, foreseen
from coordinator.planning.plans import loss_of
from coordinator.rounds.admitting import Admitting
from coordinator.rounds.attending import Attendant, ThreadedAttendant
from coordinator.rounds.calls_inside import STOPPING, CallsInside
from coordinator.rounds.collection import Collection
from coordinator.rounds.dispatch import Dispatch, round_key
from coordinator.rounds.open_rounds import OpenRounds
from coordinator.rounds.question_forms import QuestionForms
from coordinator.rounds.rejoining import Rejoining
from coordinator.rounds.returning import Returning
from coordinator.rounds.round import Round, ended_without_answer
from coordinator.rounds.statements import WHOLE, Telling, Wanted, statement
from coordinator.rounds.stored_answers import read_answer
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome, Question
from wardround.federation.errors import (
    AwaitingApproval,
    BudgetExceeded,
    InvariantBroken,
    PeerUnreachable,
    Unavailable,
)
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import AskRequest, SignedTask, Submission
from wardround.federation.question.answer import Answer, ErrorCost, Excerpt, ExpectedError, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.trust.enrolment import Presenting, Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.public_limits import PublicLimits, PublicSite


class Coordinator:
    """One study's coordinator over its ledger, which it closes in the end.

    Open rounds have no threads of their own; a few look after all of them. A simulation hands in an `attendant` and a
    `clock` that let the sites of the same process work instead; without `presence` its sites are always there.
    `noiseless` and `trusted_total` only say what a simulation's sites do, so that the error bars are right; they change
    no noise.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock | None = None,
        attendant: Attendant | None = None,
        rounds: OpenRounds | None = None,
        presence: Presence | None = None,
        noiseless: bool = False,
        trusted_total: bool = False,
    ) -> None:
        self.ledger = ledger
        self.study = ledger.study
        self.identity = ledger.identity
        self.roster = Roster(ledger)
        self._clock: Clock = RealClock() if clock is None else clock
        self._clock.go_on_from(ledger.rounds.served())
        self._presence = presence
        if presence is not None:
            presence.begin(self._clock)
        self._setting = NoiseSetting(noiseless=noiseless, trusted_total=trusted_total)
        self._rounds = OpenRounds() if rounds is None else rounds
        self._accounting = Accounting(ledger, self._clock)
        self._dispatch = Dispatch(ledger, self._clock, self._rounds)
        self._collection = Collection(ledger, self._clock, self._accounting, self._rounds)
        self._rejoining = Rejoining(ledger, self._clock, self._accounting, self._collection)
        self._line = Round(ledger, self._clock, self._accounting, self._dispatch, self._rounds, self._setting)
        self._attendant: Attendant = ThreadedAttendant() if attendant is None else attendant
        self._attendant.attend(self._line, self._clock)
        self._admitting = Admitting(ledger, self._clock, self._rounds, presence)
        self._forms = QuestionForms(ledger, self._accounting, self._setting)
        self._reporting = Reporting(ledger)
        self._telling = Telling(ledger, self._accounting, self._setting)
        self._calls = CallsInside(self._clock)
        self._inside = self._calls.one
        self.returning = Returning(ledger, self._calls)

    def note_limits(self, site: str, limits: PublicLimits | None) -> None:
        """A site says in public which questions it answers, or nothing about it."""
        with self._inside():
            self.ledger.members.note_limits(site, limits)

    def greet(self, site: str, presenting: Presenting) -> Standing:
        """Hear a site's limits and its newest receipt, and say how far its own ledger is known."""
        with self._inside():
            self._heard(site)
            if self._presence is not None:
                self._presence.note_version(site, presenting.version)
            refuse_if_older(self.ledger, site, presenting.receipt)
            self.ledger.members.note_limits(site, presenting.limits)
            return self._rejoining.standing(site)

    def recall(self, site: str, recalled: Recalled) -> None:
        """Hear from a site that is to rejoin what it knows of a plan."""
        with self._inside():
            self._rejoining.recall(site, recalled)

    def rejoin(self, site: str, head: Head) -> None:
        """Take a site back that recalled all its plans; with the last one the rounds go on."""
        with self._inside():
            if self._rejoining.rejoin(site, head):
                self._take_up()

    def show(self, site: str, entries: tuple[Entry, ...]) -> None:
        """Keep what a site shows of its own chain."""
        with self._inside():
            self._collection.keep_shown(site, entries)

    def claim(self, site: str, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        """A task that `site` has yet to answer, waiting up to `wait_seconds` for one."""
        with self._inside():
            self._heard(site)
            refuse_if_older(self.ledger, site, receipt)
            self._rejoining.refuse_unless_back(site)
            task = self._dispatch.claim(site, wait_seconds=wait_seconds)
            self._heard(site)
            return task

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Take a site's answer; a release or a signed refusal gets a receipt, the same one every time."""
        with self._inside():
            self._heard(site)
            self._rejoining.refuse_unless_back(site)
            self._rejoining.refuse_while_recovering()
            receipt = self._collection.accept(site, submission)
            self._attendant.look(submission.plan_id)
            return receipt

    def ask(self, analyst: str, request: AskRequest) -> str:
        """The plan id of the question: stored, or charged and opened durably, with its round on the way."""
        with self._for(analyst):
            questions = self._forms.questions(analyst, request)
            require_own(request.asked_by, analyst=analyst, plan=questions[0].plan)
            known = self._known(questions)
            if known is not None and self._answered(known.plan):
                self._admitting.check_kept(known.plan, self._kept(known.plan), request.require)
                self._telling.replays.note(analyst, known.plan.plan_id, replayed=True)
                return known.plan.plan_id
            possible = self._answerable(questions) if known is None else (known,)
            admitted = self._admitting.admitted(possible, request.require, paid=known is not None)
            asked = self._begin(analyst, admitted, require=request.require)
            plan_id = asked.plan.plan_id
            self._telling.replays.note(analyst, plan_id, replayed=False)
            self._attendant.look(plan_id)
            return plan_id

    def watch(self, analyst: str, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or how far the sites are once that differs from `seen`, or after the wait.

        Raises what the round ended with, where that was no answer.
        """
        told = self.watch_excerpt(analyst, plan_id, seen=seen, wait_seconds=wait_seconds, wanted=WHOLE)
        return told.answer if isinstance(told, Excerpt) else told

    def watch_excerpt(
        self, analyst: str, plan_id: str, *, seen: int, wait_seconds: float, wanted: Wanted
    ) -> Progress | Excerpt:
        """The same, with those estimates of the answer that are wanted."""
        with self._for(analyst):
            question = question_of(self.ledger, plan_id)
            self._attendant.drive(plan_id)
            until = self._clock.now() + wait_seconds
            while True:
                changes = self._clock.changes(round_key(plan_id))
                # Read before the ledger: a round that is not open by now has its answer there, or ended without.
                told = self._rounds.told(plan_id)
                if told is None:
                    return self._concluded(analyst, question, wanted)
                if self._clock.ended:
                    raise PeerUnreachable(STOPPING)
                if stewards := self._line.awaited_stewards(plan_id):
                    names = ", ".join(stewards)
                    raise AwaitingApproval(f"The question is waiting for approval at {names}; ask again later.")
                left = until - self._clock.now()
                if changes != seen or left <= 0:
                    return Progress(changes, told)
                self._clock.wait(round_key(plan_id), seen=changes, seconds=left)

    def preview(self, analyst: str, request: AskRequest) -> Preview:
        """What the question would cost and how good its answer would be; nothing is spent or opened.

        It is about the plan that would be tried first among those that fit.
        """
        with self._for(analyst):
            questions = self._forms.questions(analyst, request)
            known = self._known(questions)
            asked, excess = (known, None) if known is not None else self._accounting.tried(self._answerable(questions))
            plan, form, study = asked.plan, asked.planned.layout, self.study
            overlap, delta = study.overlap_among(plan.participants), asked.question.delta
            expected: tuple[ExpectedError, ...] = ()
            if not isinstance(form, StepLayout):
                split = split_by_cost(asked.planned.charge) if request.errors else ()
                expected = expected_errors(plan, form, self._forms.participants(), self._setting, split=split)
            return Preview(
                plan_id=plan.plan_id,
                unit=study.unit.value,
                replayed=known is not None and self._answered(plan),
                sites=plan.participants,
                expected=expected,
                privacy=statement(
                    self._accounting.balances(),
                    mechanism=plan.mechanism.value,
                    cost=loss_of(self._accounting.charged(asked.planned), overlap=overlap, delta=delta),
                    overlap=overlap,
                    composition=self._setting.composition(overlap=overlap),
                    delta=delta,
                ),
                excess=excess,
                block=plan.block,
                foreseen=foreseen(asked.planned, self.ledger.members.limits()),
                dearer=None if excess is not None else self._telling.dearer(asked.question),
                by_error=self._error_costs(analyst, request),
            )

    def sites(self, analyst: str) -> tuple[str, ...]:
        """The sites that would be asked now; `TooFewSites` when they are not enough."""
        with self._for(analyst):
            return tuple(sorted(self._forms.enough_participants()))

    def hospitals(self, analyst: str) -> tuple[PublicSite, ...]:
        """Every hospital that belongs to the study, by name, with what it says in public."""
        with self._for(analyst):
            return self.roster.public_sites()

    def budget(self, analyst: str) -> BudgetReport:
        """The study's budget as the ledger has it."""
        with self._for(analyst):
            return self._reporting.report(live=self._admitting.there)

    def resume(self) -> None:
        """Continue every round that a stop or a crash left unfinished."""
        with self._inside():
            if not self.ledger.recovery.awaited():
                self._take_up()

    def fault(self) -> BaseException | None:
        """What a round died of, other than a refusal or a wait; the process should stop and decide from disk."""
        return self._attendant.fault()

    def stop(self) -> None:
        """Wake every waiting call and begin nothing new; what is being written is finished."""
        self._clock.end()

    def close(self) -> None:
        """Stop, wait for the calls and rounds that are under way, and close the ledger."""
        self.stop()
        self._calls.wait_until_over()
        self._attendant.close()
        # A hint: where there is no room for it, open rounds have some seconds more.
        with contextlib.suppress(Unavailable, InvariantBroken):
            self._line.note_served()
        self.ledger.close()

    def _take_up(self) -> None:
        self._line.take_up()
        for plan_id in self._rounds.plans():
            self._attendant.look(plan_id)

    @contextlib.contextmanager
    def _for(self, analyst: str) -> Iterator[None]:
        """A call of an analyst who may ask, while the coordinator answers analysts."""
        with self._inside():
            self.roster.admit_analyst(analyst)
            self._rejoining.refuse_while_recovering()
            yield

    def _heard(self, site: str) -> None:
        if self._presence is not None:
            self._presence.heard(site)

    def _known(self, questions: tuple[PlannedQuestion, ...]) -> PlannedQuestion | None:
        """The form in which the question was asked before: answered if possible, else on its way."""
        with self.ledger.one_moment():
            looked_up = ((asked, self.ledger.rounds.question(asked.plan.plan_id)) for asked in questions)
            before = [PlannedQuestion(found, asked.planned) for asked, found in looked_up if found is not None]
            answered = [asked for asked in before if self._answered(asked.plan)]
        if not answered:
            for asked in questions:
                self._rejoining.refuse_if_lost(asked.plan.plan_id, asked.planned.charge.block)
        return next(iter(answered or before), None)

    def _answerable(self, questions: tuple[PlannedQuestion, ...]) -> tuple[PlannedQuestion, ...]:
        return answerable(questions, self.ledger, self._accounting)

    def _begin(self, analyst: str, questions: tuple[PlannedQuestion, ...], *, require: int) -> PlannedQuestion:
        """The first of the questions that the budget admits, reserved and opened."""
        with self._rounds.room(analyst, [asked.plan.plan_id for asked in questions]):
            for asked in questions[:-1]:
                try:
                    self._line.begin(asked, require=require)
                except BudgetExceeded:
                    continue
                return asked
            self._line.begin(questions[-1], require=require)
            return questions[-1]

    def _error_costs(self, analyst: str, request: AskRequest) -> tuple[ErrorCost, ...]:
        """What half of the errors would cost, the same, and twice."""
        if isinstance(request.query, Step) or not request.errors:
            return ()
        by_error = ByError.of(request, request.query, self.study, self._forms.participants(), self._setting)
        return tuple(error_cost(by_error, analyst, factor, self._known, self._accounting) for factor in FACTORS)

    def _concluded(self, analyst: str, question: Question, wanted: Wanted) -> Excerpt:
        """The answer of a round that is not open; raises why there is none."""
        if (excerpt := self._telling.excerpt(analyst, question, wanted)) is not None:
            return excerpt
        plan_id = question.plan.plan_id
        raise (self._attendant.ended(plan_id) or ended_without_answer(self.ledger, plan_id)).with_traceback(None)

    def _kept(self, plan: Plan) -> Outcome:
        return read_answer(self.ledger.answers.text(plan.plan_id) or "").answer.outcome

    def _answered(self, plan: Plan) -> bool:
        return self.ledger.answers.exists(plan.plan_id)
