"""The forms in which a question could be asked, and of whom: typed, laid out and priced; nothing is spent."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.accounts.accounting import Accounting, PlannedQuestion
from coordinator.planning.by_error import ByError
from coordinator.planning.plans import planned_for, step_plan, step_target, target_of
from coordinator.store.ledger import Ledger
from coordinator.store.members import MemberState
from coordinator.store.rounds import Question
from wardround.federation.errors import BudgetExceeded, TooFewSites
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.models.step_layout import step_form
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import PrivacyTarget, planned
from wardround.federation.plan.task import AskRequest
from wardround.federation.study.study import Study


@dataclass(frozen=True, slots=True)
class QuestionForms:
    """Makes the forms of questions from the study, the members and the budget of one ledger."""

    _ledger: Ledger
    _accounting: Accounting
    _setting: NoiseSetting

    @property
    def _study(self) -> Study:
        return self._ledger.study

    def questions(self, analyst: str, request: AskRequest) -> tuple[PlannedQuestion, ...]:
        """The forms in which the question could be asked, best first, each typed, laid out and priced here once."""
        if isinstance(request.query, Step):
            return (self._step(analyst, request, request.query),)
        participants = self.enough_participants()
        if request.errors:
            by_error = ByError.of(request, request.query, self._study, participants, self._setting)
            return tuple(by_error.asked(found, analyst) for found in by_error.planned())
        target = target_of(request, self._study, participants)
        self._require_within_cap(target)
        return tuple(
            PlannedQuestion(Question(found.plan, analyst, target.epsilon, target.delta, request.asked_by), found)
            for found in planned_for(request, request.query, target, self._study, tuple(participants))
        )

    def _step(self, analyst: str, request: AskRequest, step: Step) -> PlannedQuestion:
        """A round of a training, asked of those who began it: one more hospital must not make it another training."""
        study = self._study
        # Before anything is hashed: only finite numbers have an encoding.
        form = step_form(step, study)
        began = frozenset(
            self._ledger.trainings.participants(step, study_hash=study.study_hash, nonce=request.nonce.lower())
        )
        if began:
            participants = {site.name: site.patients for site in self._ledger.members.sites() if site.name in began}
        else:
            participants = self.enough_participants()
        found = planned(step_plan(request, form, study, tuple(sorted(participants))), form, study)
        target = step_target(found, study, participants)
        if not began:
            self._require_within_cap(target)
        return PlannedQuestion(Question(found.plan, analyst, target.epsilon, target.delta, request.asked_by), found)

    def enough_participants(self) -> dict[str, int]:
        """Who would be asked now, with declared patients; `TooFewSites` where they are not enough."""
        participants, needed = self.participants(), self._study.min_sites
        if len(participants) < needed:
            raise TooFewSites(
                f"{len(participants)} sites can be asked and the study needs {needed}; nothing was charged."
            )
        return participants

    def participants(self) -> dict[str, int]:
        """Every site that may take part, with its declared patients."""
        return {site.name: site.patients for site in self._ledger.members.sites() if site.state is MemberState.ACTIVE}

    def _require_within_cap(self, target: PrivacyTarget) -> None:
        if target.epsilon > self._study.cap.epsilon:
            left = self._accounting.balances().remaining(delta=target.delta)
            raise BudgetExceeded(asked=target.epsilon, remaining=left.epsilon)
