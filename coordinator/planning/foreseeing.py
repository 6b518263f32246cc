"""What hospitals will do with a plan, by the limits that they published: said before anything is charged.

A site tells its limits whenever it starts, and by the same rules decides on its own. So a refusal that is foreseen here
is one that would come; and where so many would refuse that there can be no answer, none is begun: those who did answer
would have paid for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from coordinator.accounts.accounting import Accounting, PlannedQuestion
from coordinator.planning.by_error import ByError
from coordinator.planning.plans import loss_of
from coordinator.store.ledger import Ledger
from wardround.federation.errors import TooFewSites
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.allowance import affordable, not_allowed
from wardround.federation.plan.plan import Plan, Planned
from wardround.federation.question.answer import AWAITED, ErrorCost, Foreseen
from wardround.federation.question.query import Statistic
from wardround.federation.refusal import RefusalReason
from wardround.federation.statistics import find
from wardround.federation.study.study import Study
from wardround.federation.trust.public_limits import TRAINING, PublicLimits
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_charged

_MOST_NAMED = 8


def foreseen(planned: Planned[AnswerLayout | StepLayout], limits: Mapping[str, PublicLimits]) -> tuple[Foreseen, ...]:
    """Who would not answer at once; of a site that published nothing, nothing is foreseen."""
    plan, cost = planned.plan, planned.charge.cost
    found = []
    for site in plan.participants:
        if (own := limits.get(site)) is None:
            continue
        if words := not_allowed(plan.query, own):
            reason = RefusalReason.TRAINING if words == (TRAINING,) else RefusalReason.STATISTIC
            found.append(Foreseen(site, reason, f"{site} does not allow {_spoken(words)}"))
        elif not affordable(cost, own):
            found.append(Foreseen(site, RefusalReason.EPSILON, _too_dear(site, own, cost)))
        elif own.by_person:
            found.append(Foreseen(site, AWAITED, f"{site}: each question waits for a person"))
    return tuple(found)


def answerable(
    questions: tuple[PlannedQuestion, ...], ledger: Ledger, accounting: Accounting
) -> tuple[PlannedQuestion, ...]:
    """Those of the forms of a question that enough sites would answer; `TooFewSites` where there is none.

    A training that has begun goes on: it is paid for. What the budget refuses anyway is left to be refused for that.
    """
    limits, kept, refusal = ledger.members.limits(), [], None
    for asked in questions:
        begun = ledger.trainings.begun(asked.planned.charge) is not None
        few = None if begun else _too_few(asked.plan, foreseen(asked.planned, limits), ledger.study)
        if few is None:
            kept.append(asked)
        refusal = refusal or few
    if refusal is None or kept:
        return tuple(kept)
    if all(accounting.excess(asked) is not None for asked in questions):
        return questions
    raise refusal


def _too_few(plan: Plan, expected: Sequence[Foreseen], study: Study) -> TooFewSites | None:
    refusing = [each.sentence for each in expected if each.refuses]
    asked, left = len(plan.participants), len(plan.participants) - len(refusing)
    if not refusing or left >= study.min_sites:
        return None
    more = f"; and {len(refusing) - _MOST_NAMED} more" if len(refusing) > _MOST_NAMED else ""
    return TooFewSites(
        f"{left} of {asked} hospitals would answer this question and the study needs {study.min_sites}: "
        f"{'; '.join(refusing[:_MOST_NAMED])}{more}. Nothing was charged."
    )


def _spoken(words: Sequence[str]) -> str:
    """Statistics by the names that SQL has for them."""
    if words == (TRAINING,):
        return "models to be trained"
    return ", ".join(find(Statistic(word)).functions[0].name for word in words)


def _too_dear(site: str, limits: PublicLimits, cost: Cost) -> str:
    asked = epsilon_charged(cost, delta=limits.delta)
    takes = f"ε = {asked:.4g}" if math.isfinite(asked) else "noise that no ε bounds there"
    allowed = f"ε = {limits.max_epsilon:.4g} a question (at δ = {limits.delta:.3g})"
    return f"{site} allows {allowed} and this one takes {takes}"


def error_cost(
    by_error: ByError,
    analyst: str,
    factor: float,
    known: Callable[[tuple[PlannedQuestion, ...]], PlannedQuestion | None],
    accounting: Accounting,
) -> ErrorCost:
    """What this many times the asked errors would cost; nothing where it was asked before."""
    errors = by_error.errors(factor)
    questions = tuple(by_error.asked(found, analyst) for found in by_error.reached(errors))
    if not questions:
        return ErrorCost(errors)
    asked = known(questions) or accounting.tried(questions)[0]
    loss = loss_of(asked.planned.charge.cost, overlap=by_error.overlap, delta=by_error.delta)
    return ErrorCost(errors, loss, asked.plan.mechanism.value, accounting.share_of_rest(asked))
