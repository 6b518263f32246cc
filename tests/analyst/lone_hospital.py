"""A coordinator and its one site in a few lines: patients, a budget, stored answers, a line that breaks on demand."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, field

from tests.analyst.stored import estimate
from wardround.analyst.asking.multi_round import composed
from wardround.federation.errors import BudgetExceeded, FederationError, PeerUnreachable, QueryMistaken
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import (
    Answer,
    Estimate,
    ExpectedError,
    Loss,
    Preview,
    PrivacyStatement,
    Progress,
    Remaining,
)
from wardround.federation.question.query import Query, Statistic
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.accounting.gaussian_dp import epsilon_of, mu_of
from wardround.privacy.budget.calibration import without_slack

TEXT = """
    name = "cardio"
    overlap = 1
    [budget]
    epsilon = 3.0
    delta = 1e-6
    [tables.encounters]
    unit_key = "patient_id"
    max_rows_per_unit = 4
    [tables.encounters.columns]
    age   = { type = "integer", lower = 0, upper = 110 }
    sbp   = { type = "number", lower = 80, upper = 200, step = 0.1 }
    code  = { type = "category" }
    drug  = { type = "category" }
    """
STUDY = parse_study(TEXT)


@dataclass
class Hospital:
    """A coordinator and its one site: patients with a pressure and a code, a Gaussian budget, stored answers."""

    study_: Study = STUDY
    codes: tuple[str, ...] = ("aa",) * 60 + ("bb",) * 40
    pressures: tuple[float, ...] = tuple(random.Random(7).gauss(131.0, 15.0) for _ in range(2000))
    noise: float = 0.0
    seed: int = 0
    asked: list[AskRequest] = field(default_factory=list)
    charges: dict[str, Loss] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    # The round at which the connection breaks, once: before it is paid, or after.
    breaks_before: int | None = None
    breaks_after: int | None = None
    # How a round ended that has no answer, told once.
    outcome: FederationError | None = None

    def ask(self, request: AskRequest) -> str:
        plan_id = self._plan(request)
        self.asked.append(request)
        if plan_id not in self.charges:
            if len(self.charges) == self.breaks_before:
                self.breaks_before = None
                raise PeerUnreachable
            loss = Loss(request.epsilon or 0.3, 1e-6 if request.delta is None else request.delta)
            if composed([*self.charges.values(), loss]).epsilon > self.study_.cap.epsilon:
                raise BudgetExceeded(asked=loss.epsilon, remaining=self.remaining())
            self.charges[plan_id] = loss
        return plan_id

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        del seen, wait_seconds
        if plan_id not in self.charges:
            raise QueryMistaken("no question with this plan id was asked; ask it first.")
        if self.outcome is not None:
            told, self.outcome = self.outcome, None
            raise told
        request = next(each for each in self.asked if self._plan(each) == plan_id)
        if len(self.charges) - 1 == self.breaks_after:
            self.breaks_after = None
            raise PeerUnreachable
        replayed = plan_id in self.answers
        self.answers.setdefault(plan_id, self._answer(plan_id, request))
        return self._told(self.answers[plan_id], replayed=replayed)

    def preview(self, request: AskRequest) -> Preview:
        plan_id = self._plan(request)
        expected = (ExpectedError("keys", "code", 1, 2.0, ""),)
        privacy = self._privacy(Loss(request.epsilon or 0.3, 1e-6))
        return Preview(plan_id, "patient", plan_id in self.answers, ("north",), expected, privacy)

    def sites(self) -> tuple[str, ...]:
        return ("north",)

    def budget(self) -> BudgetReport:
        raise NotImplementedError

    def study(self) -> Study:
        return self.study_

    def close(self) -> None:
        pass

    def remaining(self) -> float:
        cap = self.study_.cap
        alone = without_slack(1e-6)
        spent = sum(mu_of(loss.epsilon, alone) ** 2 for loss in self.charges.values())
        left = mu_of(cap.epsilon, alone) ** 2 - spent
        return epsilon_of(alone, math.sqrt(left)) if left > 0 else 0.0

    def _plan(self, request: AskRequest) -> str:
        return hashlib.sha256(repr(request).encode()).hexdigest()

    def _privacy(self, charged: Loss) -> PrivacyStatement:
        remaining = Remaining(self.remaining(), 0.5)
        return PrivacyStatement("discrete_gaussian", charged, Loss(0.0, 1e-6), remaining, 1, "parallel")

    def _answer(self, plan_id: str, request: AskRequest) -> Answer:
        privacy = self._privacy(self.charges[plan_id])
        return Answer(plan_id, "patient", False, False, ("north",), (), (), self._estimates(request.query), privacy)

    def _told(self, answer: Answer, *, replayed: bool) -> Answer:
        fields = (answer.answered, answer.refused, answer.missing, answer.estimates, answer.privacy)
        return Answer(answer.plan_id, answer.unit, replayed, False, *fields)

    def _estimates(self, asked: Query) -> tuple[Estimate, ...]:
        (aggregate,) = asked.aggregates
        draw = random.Random(1000 * self.seed + len(self.answers))
        match aggregate.statistic:
            case Statistic.KEYS:
                return tuple(
                    estimate("keys", aggregate.column, float(self.codes.count(key)), 1.0, group=(("code", key),))
                    for key in sorted(set(self.codes))
                )
            case Statistic.BELOW:
                share = sum(1 for each in self.pressures if each <= (aggregate.level or 0.0)) / len(self.pressures)
                return (estimate("below", aggregate.column, share + draw.gauss(0.0, self.noise), self.noise),)
            case _:
                keys = asked.group_by[0].keys if asked.group_by else ()
                return tuple(
                    estimate("count", aggregate.column, float(self.codes.count(key)), 1.0, group=(("code", key),))
                    for key in keys
                )
